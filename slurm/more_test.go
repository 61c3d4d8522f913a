package slurm

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/api"
)

// check runs command lines and compares what they print.
func (f *fake) check(t *testing.T, cases map[string]string) {
	t.Helper()
	for words, want := range cases {
		code, out, errs := f.do(t, "", strings.Split(words, " ")...)
		if got := out + errs; got != want || code != 0 {
			t.Errorf("%s: %d\n%s---\n%s", words, code, got, want)
		}
	}
}

// TestSalloc: the allocation is a job that is never requeued and runs salloc's command, or a shell.
func TestSalloc(t *testing.T) {
	f := newFake()
	code, out, errs := f.do(t, "", "salloc", "-G2", "-t", "10", "-A", "lab", "python3", "-i")
	want := "salloc: Pending job allocation 1\nsalloc: job 1 queued and waiting for resources\nsalloc: Granted job allocation 1\nsalloc: Relinquishing job allocation 1\n"
	if code != 0 || out != "attached\n" || errs != want {
		t.Errorf("%d %q %q", code, out, errs)
	}
	s := f.jobs[0].Submission
	if strings.Join(s.Command, " ") != "python3 -i" || s.Name != "python3" || s.GPUs != 2 || s.Queue != "lab" ||
		!s.Attached || !s.NoRequeue || s.Pty || s.Kind != "interactive" {
		t.Errorf("%+v", s)
	}
	env := []string{"SHELL=/bin/zsh", "SALLOC_TIMELIMIT=30", "SALLOC_PARTITION=debug"}
	if code, _, errs = f.doEnv(t, "", env, "salloc", "-Q"); code != 0 || errs != "" {
		t.Errorf("%d %q", code, errs)
	}
	if s = f.jobs[1].Submission; s.Command[0] != "/bin/zsh" || s.Name != "interactive" ||
		time.Duration(s.Limit) != 30*time.Minute || s.Partitions[0] != "debug" {
		t.Errorf("%+v", s)
	}
	code, _, errs = f.do(t, "", "salloc", "--no-shell", "-J", "mine")
	if s = f.jobs[2].Submission; code != 0 || s.Attached || s.Name != "mine" ||
		!strings.Contains(errs, "muster exec 3 COMMAND") {
		t.Errorf("%d %q %+v", code, errs, s)
	}
	for words, say := range map[string]string{"salloc --no-shell true": "exclude each other",
		"salloc -I true": "--immediate is not supported", "salloc -a 1-2 true": "invalid option -- 'a'"} {
		if code, _, errs = f.do(t, "", strings.Fields(words)...); code == 0 || !strings.Contains(errs, say) {
			t.Errorf("%s: %d %s", words, code, errs)
		}
	}
}

// TestSallocRevoked: an allocation that was cancelled before it started is reported as revoked.
func TestSallocRevoked(t *testing.T) {
	f := newFake()
	f.revoke = true
	code, _, errs := f.do(t, "", "salloc", "true")
	if code != 1 || !strings.Contains(errs, "salloc: error: Job allocation 1 has been revoked: CANCELLED") {
		t.Errorf("%d %q", code, errs)
	}
}

// TestNodes: more than one node is refused, with the equivalent request for one machine.
func TestNodes(t *testing.T) {
	for words, want := range map[string]string{
		"srun --nodes=4 x": "--nodes=1 --ntasks=4\n",
		"srun -N2 --ntasks-per-node=4 --gpus-per-node=h100:2 x": "--nodes=1 --ntasks=8 --gpus=h100:4\n",
		"sbatch -N 2-4 -n 6 --gres=gpu:1 --wrap x":              "--nodes=1 --ntasks=6 --gpus=2\n",
		"salloc --nodes=3 --gres=gpu x":                         "--nodes=1 --ntasks=3\n",
	} {
		code, _, errs := newFake().do(t, "", strings.Fields(words)...)
		if code == 0 || !strings.Contains(errs, notHere+": there is one machine; for as much on it write "+want) {
			t.Errorf("%s: %d %s", words, code, errs)
		}
	}
}

// TestAccountWithoutQueues: where no queue is configured an account is accepted, with a warning that it counts
// for nothing.
func TestAccountWithoutQueues(t *testing.T) {
	f := newFake()
	f.queues = []api.Queue{{Name: "default"}}
	for _, words := range []string{"sbatch -A proj --wrap x", "sbatch -A default --wrap x", "srun -A proj x"} {
		code, _, errs := f.do(t, "", strings.Fields(words)...)
		if told := strings.Contains(errs,
			"warning: --account=proj counts for nothing: no queue is configured here"); code != 0 ||
			told != strings.Contains(words, "proj") {
			t.Errorf("%s: %d %s", words, code, errs)
		}
	}
	if a, b := f.jobs[0].Submission.Queue, f.jobs[1].Submission.Queue; a != "" || b != "default" {
		t.Errorf("queues %q, %q", a, b)
	}
}

func fairFake(t *testing.T) *fake {
	f := newFake()
	f.fair = api.Fair{Policy: "multifactor", Counted: true,
		Weights: &api.Factors{Age: 1000, FairShare: 10000, Partition: 1000},
		Shares: []api.Share{{Queue: "lab", Shares: 3, Part: 1, Usage: 7200, UsagePart: 1},
			{Queue: "vision", Parent: "lab", Shares: 1, Part: 1, Usage: 7200, UsagePart: 1},
			{Queue: "vision", User: "ann", Shares: 1, Part: 0.5, Usage: 1800, UsagePart: 0.25, Factor: 1},
			{Queue: "vision", User: "bob", Shares: 1, Part: 0.5, Usage: 5400, UsagePart: 0.75, Factor: 0.5}},
		Jobs: []api.Priority{
			{Job: 1, Points: 5512, Own: 7, Factors: api.Factors{Age: 0.0051, FairShare: 0.5, Partition: 0.5}}}}
	f.do(t, "", "sbatch", "-A", "vision", "--priority", "7", "--wrap", "x")
	return f
}

// TestSprio: factors by their weights, without those of weight 0; other policies have none.
func TestSprio(t *testing.T) {
	f := fairFake(t)
	f.check(t, map[string]string{
		"sprio": "          JOBID PARTITION   PRIORITY       SITE        AGE  FAIRSHARE  PARTITION\n" +
			"              1 gpu             5512          7          5       5000        500\n",
		"sprio -h -o %i|%Y|%F|%f|%u": "1|5512|5000|0.5000000|ann\n",
		"sprio -hn -o %A":            "0.0051000\n",
		"sprio -w":                   "          JOBID PARTITION   PRIORITY       SITE        AGE  FAIRSHARE  PARTITION\n                                                      1000      10000       1000\n",
		"sprio -h -u bob":            "",
	})
	f.fair = api.Fair{Policy: "las"}
	if code, _, errs := f.do(t, "", "sprio"); code == 0 ||
		!strings.Contains(errs, "the policy here is las, whose order is no sum of factors") {
		t.Errorf("%d %s", code, errs)
	}
}

// TestSshare: the tree with the caller's own lines, all lines, or only users.
func TestSshare(t *testing.T) {
	f := fairFake(t)
	head := "Account|User|RawShares|NormShares|RawUsage|EffectvUsage|FairShare\n"
	ann, bob := "  vision|ann|1|0.500000|1800|0.250000|1.000000\n", "  vision|bob|1|0.500000|5400|0.750000|0.500000\n"
	tree := "root|||0.000000|7200|1.000000|\n lab||3|1.000000|7200|1.000000|\n  vision||1|1.000000|7200|1.000000|\n"
	f.check(t, map[string]string{
		"sshare -P":                                head + tree + " " + ann,
		"sshare -nPa":                              tree + " " + ann + " " + bob,
		"sshare -nPU -u bob":                       " " + bob,
		"sshare -nPa -A vision -o User,LevelFS":    "|1.000000\nann|2.000000\nbob|0.666667\n",
		"sshare -hP -A lab -a":                     " lab||3|1.000000|7200|1.000000|\n",
		"sshare -n -U -o Account%8,User%-4,rawu%6": "   visi+ ann    1800 \n",
	})
}

// TestSstat: measurements of running jobs under Slurm's names.
func TestSstat(t *testing.T) {
	f := newFake()
	f.do(t, "", "sbatch", "--wrap", "x")
	f.do(t, "", "sbatch", "--wrap", "x")
	f.start(1, 0)
	mem, util, joule := int64(20480), 93.4, 1234.0
	f.meter = api.Samples{
		Measured: api.Measured{Seconds: 120, RAM: 2048, MemoryMost: &mem, Most: &util, Energy: &joule},
		Points:   []api.Point{{CPU: 1, RAM: 500}, {CPU: 3, RAM: 1000}}}
	f.check(t, map[string]string{
		"sstat -nP -j 1 -o JobID,MaxRSS,AveRSS,AveCPU,ConsumedEnergy,MaxVMSize": "1.batch|2097152K|1024000K|00:04:00|1234|\n",
		"sstat -nP 1.batch --format=TRESUsageInMax":                             "cpu=00:04:00,gres/gpumem=20480M,gres/gpuutil=93,mem=2048M\n",
	})
	for words, say := range map[string]string{"sstat -j 2": "no steps running for job 2", "sstat": "sstat -j JOB",
		"sstat -i -j 1": "muster exec JOB ps"} {
		if code, _, errs := f.do(t, "", strings.Fields(words)...); code == 0 || !strings.Contains(errs, say) {
			t.Errorf("%s: %d %s", words, code, errs)
		}
	}
}

// TestSacctmgr: queues, users and tiers under Slurm's names; changes are refused.
func TestSacctmgr(t *testing.T) {
	f := fairFake(t)
	f.check(t, map[string]string{
		"sacctmgr -nP show account":                                                               "lab|lab|root\nvision|vision|lab\n",
		"sacctmgr -nP list acct where name=lab format=account%30":                                 "lab\n",
		"sacctmgr -nP show user":                                                                  "ann|vision|None\nbob|vision|None\n",
		"sacctmgr -nP show user ann withassoc format=account,user,defaultaccount":                 "vision|ann|vision\n",
		"sacctmgr -nP show assoc where user=ann format=cluster,account,user,share":                "muster|vision|ann|1\n",
		"sacctmgr -nP show assoc account=vision format=account,user,grptres,parentname,fairshare": "vision||gres/gpu=4|lab|1\nvision|ann|||1\nvision|bob|||1\n",
		"sacctmgr -n show qos format=name%-12,priority":                                           "critical              2 \nstandard              1 \nbest-effort           0 \n",
		"sacctmgr -nP show cluster format=cluster":                                                "muster\n",
	})
	for words, say := range map[string]string{"sacctmgr -i add account x": "are in the configuration",
		"sacctmgr modify user ann set fairshare=2": "are in the configuration",
		"sacctmgr show tres":                       "there are account, association, user, qos, cluster",
		"sacctmgr show":                            "show what?",
		"sacctmgr shwo":                            "did you mean", "sacctmgr show user format=Foo": "Invalid field"} {
		if code, _, errs := f.do(t, "", strings.Fields(words)...); code == 0 || !strings.Contains(errs, say) {
			t.Errorf("%s: %d %s", words, code, errs)
		}
	}
}

// TestSacctMeasured: measurements of a job belong to its batch step.
func TestSacctMeasured(t *testing.T) {
	f := newFake()
	f.do(t, "", "sbatch", "--wrap", "x")
	f.start(1, 0)
	f.end(1, 0)
	f.jobs[0].CPUTime, f.jobs[0].RAMPeak = api.Duration(90*time.Second), 3
	f.check(t, map[string]string{
		"sacct -nP -o JobID,MaxRSS,AveCPU,TotalCPU": "1|||00:01:30\n1.batch|3072K|00:01:30|00:01:30\n"})
}

// TestAtTheEarliest: the earliest possible start is not printed as the expected start.
func TestAtTheEarliest(t *testing.T) {
	f := newFake()
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.Local)
	for _, open := range []bool{true, false} {
		f.jobs = append(f.jobs,
			api.Job{ID: len(f.jobs) + 1, State: api.StatePending, Expected: &at, AtEarliest: open, Submitted: at})
	}
	code, out, errs := f.do(t, "", "squeue", "--start", "-h", "-o", "%i %S")
	if want := "2 2026-03-01T12:00:00\n1 N/A\n"; code != 0 || out != want {
		t.Errorf("%d %q %s; want %q", code, out, errs, want)
	}
	if text := testText(f.jobs[0]); !strings.Contains(text, "to start at the earliest at 2026-03-01T12:00:00") {
		t.Error(text)
	}
}

// TestSubmitAsksOnce: a submission that names no model, node or whole machine is one request; requests beyond
// the machine are still refused in Slurm's words, which requires a request for the machine.
func TestSubmitAsksOnce(t *testing.T) {
	for words, asked := range map[string]bool{
		"sbatch --wrap x": false, "sbatch -G2 -c4 --mem=1G -p debug -t 10 -a 0-3 --wrap x": false,
		"sbatch --gres=gpu:h100:1 --wrap x": true, "sbatch --exclusive --wrap x": true, "sbatch --mem=0 --wrap x": true,
		"sbatch -w box --wrap x": true,
	} {
		f := newFake()
		if code, out, errs := f.do(t, "", strings.Fields(words)...); code != 0 || out != "Submitted batch job 1\n" ||
			f.asked > 0 != asked {
			t.Errorf("%s: %d %s%s, asked %d times", words, code, out, errs, f.asked)
		}
	}
	for words, want := range map[string]string{
		"sbatch -G9 --wrap x":               "Requested node configuration is not available: 9 GPUs, and the machine has 8",
		"sbatch -n 65 --wrap x":             "Requested node configuration is not available: 65 CPUs, and the machine has 64",
		"sbatch --mem=30000 --wrap x":       "Requested node configuration is not available: 30000 MiB of memory, and the machine has 20000",
		"sbatch -p gpu,no --wrap x":         "Invalid partition name specified: no",
		"sbatch --test-only -G9 --wrap x":   "Requested node configuration is not available: 9 GPUs, and the machine has 8",
		"sbatch --test-only -p no --wrap x": "Invalid partition name specified: no",
		"srun -p no x":                      "Invalid partition name specified: no",
		"srun -G9 x":                        "Requested node configuration is not available: 9 GPUs, and the machine has 8",
		"salloc -G9 x":                      "Requested node configuration is not available: 9 GPUs, and the machine has 8",
	} {
		f := newFake()
		name, _, _ := strings.Cut(words, " ")
		if code, _, errs := f.do(t, "", strings.Fields(words)...); code != 1 || errs != name+": error: "+want+"\n" ||
			len(f.jobs) > 0 {
			t.Errorf("%s: %d %s", words, code, errs)
		}
	}
	f := newFake()
	if _, _, err := ReadScript([]string{"testdata/gpus-too-many.sh"}, nil, f); err == nil ||
		!strings.Contains(err.Error(), "and the machine has 8") {
		t.Errorf("a script that is read without being submitted: %v", err)
	}
	f.fail = errors.New("no room")
	if _, _, errs := f.do(t, "", "sbatch", "--wrap",
		"x"); errs != "sbatch: error: Batch job submission failed: no room\n" {
		t.Error(errs)
	}
}
