package slurm

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/api"
)

func script(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "job.sh")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestPrecedence: the command line overrides the environment, which overrides the script, and #MUSTER lines
// override #SBATCH lines.
func TestPrecedence(t *testing.T) {
	f := newFake()
	file := script(t, "#!/bin/sh\n#SBATCH -t 10 --job-name=\"my job\" -c 2 --mem=4G\n\n  # a comment\n#SBATCH -p gpu # why\n#MUSTER --share=50 --time=20\ntrue\n#SBATCH -n 64\n")
	check := func(env []string, words []string, limit time.Duration, part string, ram int64) {
		t.Helper()
		code, out, errs := f.doEnv(t, "", env, append(words, file, "a", "-b")...)
		if code != 0 || errs != "" || !strings.HasPrefix(out, "Submitted batch job ") {
			t.Fatalf("%d %q %q", code, out, errs)
		}
		s := f.jobs[len(f.jobs)-1].Submission
		if time.Duration(s.Limit) != limit || s.Partitions[0] != part || s.Name != "my job" || s.CPU != 2000 ||
			s.RAM != ram || s.Share != 500 || s.GPUs != 1 || strings.Join(s.Args, " ") != "a -b" || !s.Once ||
			s.Tasks != 1 {
			t.Errorf("%v %v: %+v", env, words, s)
		}
	}
	check(nil, []string{"sbatch"}, 20*time.Minute, "gpu", 4096)
	check([]string{"SBATCH_TIMELIMIT=30", "SBATCH_PARTITION=debug"}, []string{"sbatch"}, 30*time.Minute, "debug", 4096)
	check([]string{"SBATCH_TIMELIMIT=30", "SBATCH_PARTITION=debug"},
		[]string{"sbatch", "--time", "40", "--mem-per-cpu=1G"}, 40*time.Minute, "debug", 2048)
}

// TestRefusals: options without which something else would run are refused, those without a meaning are named,
// and a misspelt option is answered with the nearest one.
func TestRefusals(t *testing.T) {
	for _, c := range []struct{ words, say string }{
		{"sbatch --tiime=5 --wrap x", "did you mean '--time'"},
		{"sbatch --tim 5 --wrap x", "ambiguous; possibilities: '--time' '--time-min'"},
		{"sbatch -L matlab --wrap x", "--licenses is not supported"},
		{"sbatch -N 2 --wrap x", notHere},
		{"sbatch -G 9 --wrap x", notHere},
		{"sbatch -G a100:1 --wrap x", `GPU type "a100": ` + notHere + " (there are: H100-80GB)"},
		{"sbatch --gpus-per-task=1 --wrap x", "without either --gpus or -n/--ntasks"},
		{"sbatch -G 1 --gres=shard:1 --wrap x", "mps:PERCENT"},
		{"sbatch --mem 1G --mem-per-cpu 1G --wrap x", "mutually exclusive"},
		{"sbatch -q gold --wrap x", "unknown tier"},
		{"sbatch --wrap x file", "Script arguments not permitted with --wrap"},
		{"sbatch nofile.sh", "Unable to open file nofile.sh"},
		{"sbatch -a 5-1 --wrap x", "Invalid job array specification"},
		{"sbatch --deadline now+5minutes -t 10 --wrap x", "cannot be done by"},
		{"scancel", "No job identification provided"},
		{"scancel 99", "Kill job error on job id 99: Invalid job id specified"},
		{"squeue -t FOO", "invalid job state"},
		{"squeue -j 99", "Invalid job id specified"},
		{"squeue -o %I", "Invalid job format specification"},
		{"sinfo -t FOO", "Bad state string"},
		{"sacct --format=Foo", "Invalid field requested"},
		{"scontrol show job 99", "Invalid job id specified"},
		{"scontrol update jobid=1 tiemlimit=5", `did you mean "timelimit"`},
		{"scontrol hodl 1", `did you mean "hold"`},
		{"sbatch -d afterok:1,afterok:1?after:1 --wrap x", "mixes"},
		{"srun", "no command given"},
		{"srun --mpi=pmix -n 2 x", "torchrun"},
		{"foo", "unknown Slurm command"},
	} {
		f := newFake()
		f.Submit(api.Submission{})
		code, out, errs := f.do(t, "", strings.Fields(c.words)...)
		if code == 0 || !strings.Contains(errs, c.say) || out != "" {
			t.Errorf("%s: %d %q %q; want %q", c.words, code, out, errs, c.say)
		}
	}
	f := newFake()
	if code, out, errs := f.do(t, "", "sbatch", "--mail-type=END", "--switches=1", "--parsable", "--wrap",
		"x"); code != 0 || out != "1\n" || strings.Count(errs, "warning: --") != 2 {
		t.Errorf("%d %q %q", code, out, errs)
	}
}

// TestListings compares with the output of a real Slurm for the same jobs.
func TestListings(t *testing.T) {
	time.Local = time.UTC
	f := newFake()
	f.do(t, "", "sbatch", "-G", "2", "--wrap", "x")
	f.do(t, "", "sbatch", "-a", "1-3%1", "-t", "10", "-n", "2", "-c", "2", "--wrap", "x")
	f.do(t, "", "sbatch", "-H", "-J", "averylongname", "-p", "debug", "--wrap", "x")
	f.start(1, 0, 1)
	f.now = f.now.Add(75 * time.Second)
	f.jobs[0].Submission.Limit = api.Duration(time.Hour)
	for _, c := range []struct{ words, want string }{
		{"squeue", `             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)
         2_[1-3%1]       gpu     wrap      ann PD       0:00      1 (Resources)
                 1       gpu     wrap      ann  R       1:15      1 box
                 5     debug averylon      ann PD       0:00      1 (JobHeldUser)
`},
		{"squeue -l --me -t R", `Wed Mar  4 10:01:15 2026
             JOBID PARTITION     NAME     USER    STATE       TIME TIME_LIMI  NODES NODELIST(REASON)
                 1       gpu     wrap      ann  RUNNING       1:15   1:00:00      1 box
`},
		{"squeue -h -r -o %i|%T|%l -n wrap",
			"2_1|PENDING|10:00\n2_2|PENDING|10:00\n2_3|PENDING|10:00\n1|RUNNING|1:00:00\n"},
		{"squeue -j 2_2,5 -h -o %i", "2_[2%1]\n5\n"},
		{"squeue -O jobid:6,state:.10,timelimit -j 1",
			"JOBID      STATETIME_LIMIT          \n1        RUNNING1:00:00             \n"},
		{"sinfo", `PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST
gpu*         up 7-00:00:00      1    mix box
debug        up      30:00      1    mix box
`},
		{"sinfo -s", `PARTITION AVAIL  TIMELIMIT   NODES(A/I/O/T) NODELIST
gpu*         up 7-00:00:00          1/0/0/1 box
debug        up      30:00          1/0/0/1 box
`},
		{"sinfo -N", "NODELIST   NODES PARTITION STATE \nbox            1      gpu* mix   \nbox            1     debug mix   \n"},
		{"sinfo -R", "REASON               USER      TIMESTAMP           NODELIST\n"},
		{"sinfo -h -o %G|%C|%m", "gpu:H100-80GB:8|1/63/0/64|20000\ngpu:H100-80GB:8|1/63/0/64|20000\n"},
		{"scontrol show hostnames n[01-03,7],x", "n01\nn02\nn03\nn7\nx\n"},
		{"scontrol -o show partition debug",
			"PartitionName=debug AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=NO QoS=N/A DefaultTime=NONE DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO MaxNodes=UNLIMITED MaxTime=00:30:00 MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED Nodes=box PriorityJobFactor=1 PriorityTier=1 RootOnly=NO ReqResv=NO OverSubscribe=NO State=UP TotalCPUs=64 TotalNodes=1 SelectTypeParameters=NONE TRES=cpu=64,mem=20000M,node=1,billing=64\n"},
		{"sacct -X", `JobID           JobName  Partition    Account  AllocCPUS      State ExitCode 
------------ ---------- ---------- ---------- ---------- ---------- -------- 
1                  wrap        gpu                     1    RUNNING      0:0 
2_1                wrap        gpu                     4    PENDING      0:0 
2_2                wrap        gpu                     4    PENDING      0:0 
2_3                wrap        gpu                     4    PENDING      0:0 
5            averylong+      debug                     1    PENDING      0:0 
`},
		{"sacct -n -P -j 1 --format=JobID,State,Elapsed,Timelimit",
			"1|RUNNING|00:01:15|01:00:00\n1.batch|RUNNING|00:01:15|\n"},
		{"sacct -n --format=JobName%6,State%-9 -X -j 5", "avery+ PENDING   \n"},
	} {
		code, out, errs := f.do(t, "", strings.Fields(c.words)...)
		if code != 0 || out != c.want || errs != "" {
			t.Errorf("%s: %d %s\n--- got\n%s--- want\n%s", c.words, code, errs, out, c.want)
		}
	}
	for _, words := range []string{"squeue --json", "sinfo --json", "sacct --json", "scontrol --json show job"} {
		_, out, _ := f.do(t, "", strings.Fields(words)...)
		if !json.Valid([]byte(out)) {
			t.Errorf("%s: %s", words, out)
		}
	}
}

// TestVerbs: the verbs reach the service with the right jobs.
func TestVerbs(t *testing.T) {
	f := newFake()
	f.do(t, "", "sbatch", "-a", "0-2", "--wrap", "x")
	f.do(t, "", "sbatch", "-J", "b", "--wrap", "x")
	f.start(4)
	for _, c := range []struct{ words, want string }{
		{"scontrol hold 1_1", "hold 2"},
		{"scontrol release 1", "release 1;release 2;release 3"},
		{"scontrol requeuehold 4", "requeue 4;hold 4"},
		{"scontrol suspend 4", "suspend 4"},
		{"scontrol resume jobid=4", "resume 4"},
		{"scontrol update JobId=4 TimeLimit=2:00:00 Nice=5", "update 4"},
		{"scontrol update nodename=box state=drain reason=fan", "node box draining fan"},
		{"scontrol update nodename=box state=resume", "node box up "},
		{"scancel -s USR1 4", "signal 4 USR1 0"},
		{"scancel -b -s 10 4", "signal 4 USR1 1"},
		{"scancel -f -s SIGTERM 4", "signal 4 TERM 2"},
		{"scancel 1_[0,2]", "cancel 1;cancel 3"},
		{"scancel -n b", "cancel 4"},
		{"scancel -t PD --me", "cancel 2"},
		{"scancel 4", ""},
	} {
		f.log = nil
		code, out, errs := f.do(t, "", strings.Fields(c.words)...)
		if got := strings.Join(f.log, ";"); code != 0 || got != c.want {
			t.Errorf("%s: %d %q %q: %q; want %q", c.words, code, out, errs, got, c.want)
		}
	}
	if s := f.jobs[3].Submission; time.Duration(s.Limit) != 2*time.Hour || s.Priority != -5 {
		t.Errorf("%+v", s)
	}
}

// TestWait: sbatch --wait ends with the job's status.
func TestWait(t *testing.T) {
	f := newFake()
	if code, out, _ := f.do(t, "#!/bin/sh\ntrue\n", "sbatch", "-W"); code != 0 || out != "Submitted batch job 1\n" ||
		f.log[0] != "wait 1" {
		t.Errorf("%d %q %v", code, out, f.log)
	}
	if code, out, _ := f.do(t, "", "srun", "-G1", "hostname"); code != 0 || out != "attached\n" {
		t.Errorf("%d %q", code, out)
	}
	if s := f.jobs[1].Submission; !s.Attached || s.GPUs != 1 || s.Command[0] != "hostname" {
		t.Errorf("%+v", s)
	}
	f.do(t, "", "srun", "-n4", "--gpus-per-task=1", "-l", "a", "-n")
	if s := f.jobs[2].Submission; s.GPUs != 4 ||
		strings.Join(s.Command, " ") != "muster slurm srun --ntasks=4 --gpus-per-task=1 --label -- a -n" {
		t.Errorf("%+v", s)
	}
}

// TestStep: inside a job srun runs its tasks here, with the devices divided.
func TestStep(t *testing.T) {
	f := newFake()
	t.Setenv("TMPDIR", t.TempDir())
	env := []string{"PATH=/usr/bin:/bin", "SLURM_JOB_ID=7", "SLURM_NTASKS=4", "SLURM_CPUS_ON_NODE=4",
		"CUDA_VISIBLE_DEVICES=GPU-a,GPU-b,GPU-c,GPU-d", "SLURM_JOB_NODELIST=box", "FOO=bar"}
	for _, c := range []struct {
		words []string
		want  string
		code  int
	}{
		{[]string{"srun", "-l", "sh", "-c", "echo $SLURM_PROCID/$SLURM_NTASKS $CUDA_VISIBLE_DEVICES $FOO"},
			"0: 0/4 GPU-a,GPU-b,GPU-c,GPU-d bar\n1: 1/4 GPU-a,GPU-b,GPU-c,GPU-d bar\n2: 2/4 GPU-a,GPU-b,GPU-c,GPU-d bar\n3: 3/4 GPU-a,GPU-b,GPU-c,GPU-d bar\n", 0},
		{[]string{"srun", "--gpus-per-task=1", "sh", "-c", "echo $SLURM_LOCALID $CUDA_VISIBLE_DEVICES"},
			"0 GPU-a\n1 GPU-b\n2 GPU-c\n3 GPU-d\n", 0},
		{[]string{"srun", "--ntasks-per-gpu=2", "sh", "-c", "echo $SLURM_LOCALID $CUDA_VISIBLE_DEVICES"},
			"0 GPU-a\n1 GPU-a\n2 GPU-b\n3 GPU-b\n", 0},
		{[]string{"srun", "-n1", "-G2", "--export=FOO", "sh", "-c", "echo $SLURM_JOB_ID $CUDA_VISIBLE_DEVICES $FOO"},
			"7 GPU-a,GPU-b bar\n", 0},
		{[]string{"srun", "-n1", "sh", "-c", "exit 3"}, "", 3},
		{[]string{"srun", "-n1", "sh", "-c", "kill -9 $$"}, "", 137},
		{[]string{"srun", "-n1", "--exact", "-G5", "true"}, "", 1},
		{[]string{"srun", "-n5", "true"}, "", 1},
		{[]string{"srun", "-n2", "-K", "sh", "-c", "if [ $SLURM_PROCID = 0 ]; then exit 4; fi; exec sleep 60"}, "",
			137},
	} {
		code, out, errs := f.doEnv(t, "", env, c.words...)
		lines := strings.SplitAfter(out, "\n")
		if c.want != "" { // the tasks run side by side
			slices.Sort(lines)
		}
		if got := strings.Join(lines, ""); code != c.code || got != c.want {
			t.Errorf("%q: %d %q %q; want %d %q", c.words, code, got, errs, c.code, c.want)
		}
	}
}

// TestStepsShare: steps that run at once hold different devices, and one that finds too few waits.
func TestStepsShare(t *testing.T) {
	f := newFake()
	t.Setenv("TMPDIR", t.TempDir())
	env := []string{"PATH=/usr/bin:/bin", "SLURM_JOB_ID=8", "CUDA_VISIBLE_DEVICES=0,1"}
	type res struct{ out string }
	ends := make(chan res, 3)
	dir := t.TempDir()
	for range 3 {
		go func() {
			_, out, errs := f.doEnv(t, "", env, "srun", "-n1", "--exact", "--gpus=1", "sh", "-c",
				"mkdir "+dir+"/$CUDA_VISIBLE_DEVICES || echo CLASH; sleep 0.2; rmdir "+dir+
					"/$CUDA_VISIBLE_DEVICES; echo $CUDA_VISIBLE_DEVICES")
			ends <- res{out + errs}
		}()
	}
	seen := map[string]int{}
	for range 3 {
		seen[strings.TrimSpace((<-ends).out)]++
	}
	if seen["0"]+seen["1"] != 3 || seen["0"] == 0 || seen["1"] == 0 {
		t.Errorf("%v", seen)
	}
}

// TestEnv: the variables inside a job.
func TestEnv(t *testing.T) {
	f := newFake()
	f.do(t, "", "sbatch", "-a", "1-5:2", "-n", "4", "-c", "2", "-G", "2", "-t", "10", "--mem=1G", "-p", "gpu",
		"--export=NONE", "--wrap", "x")
	f.start(2, 3, 1)
	f.jobs[1].Restarts = 2
	got := strings.Join(Env(f.jobs[1]), "\n")
	for _, want := range []string{"SLURM_JOB_ID=2", "SLURM_ARRAY_JOB_ID=1", "SLURM_ARRAY_TASK_ID=3",
		"SLURM_ARRAY_TASK_COUNT=3", "SLURM_ARRAY_TASK_MIN=1", "SLURM_ARRAY_TASK_MAX=5", "SLURM_ARRAY_TASK_STEP=2",
		"SLURM_GPUS_ON_NODE=2", "SLURM_JOB_GPUS=1,3", "SLURM_CPUS_ON_NODE=8", "SLURM_RESTART_COUNT=2",
		"SLURM_JOB_NODELIST=box", "SLURM_TASKS_PER_NODE=4", "SLURM_JOB_PARTITION=gpu", "SLURM_MEM_PER_NODE=1024"} {
		if !strings.Contains(got+"\n", want+"\n") {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
	if sub := f.jobs[1].Submission; strings.Contains(strings.Join(sub.Env, " "), "HOME=") ||
		!strings.Contains(strings.Join(sub.Env, " "), "SLURM_NTASKS=4") {
		t.Errorf("%v", sub.Env)
	}
}
