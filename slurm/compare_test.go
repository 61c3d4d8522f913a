package slurm

import (
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/ask"
)

// chosen are the intended differences from a real Slurm (22.05), by script and, if only a field differs, field.
// docs/guide/slurm.md says the same.
var chosen = map[string]string{
	// A job that can never run, or cannot have been meant, is refused at once; Slurm lets some wait for ever.
	"cores-too-many":    "more than there is",
	"nodes-two":         "more than there is",
	"deadline-too-soon": "it cannot be done in time",
	"dep-unknown-job":   "the job is unknown; Slurm takes it for one that is over",
	"time-negative":     "Slurm takes it for 2982611 days",
	"time-huge":         "Slurm takes it for an invalid number and submits that",
	"signal-high":       "there are 64 signals",
	"nice-word":         "not a number",

	// what does not exist here
	"dep-burst-buffer": "there is no burst buffer",
	"dep-mixed":        "Slurm's manual knows commas or question marks, not both",

	// A condition that can no longer hold is reported at once; Slurm checks when the whole array is over.
	"dep afterok half":          "one element failed",
	"dep aftercorr of no array": "one element failed",

	// Reported elsewhere.
	"mail-bad":            "no mail is sent, so its types are not checked",
	"reservation-unknown": "the server refuses it, not sbatch",

	// Precedence is always by layer; Slurm counts a script's memory as the command line's.
	"mem-line-beats-script":       "the command line wins",
	"mem-env-beats-script Memory": "the environment wins",

	// what is shown
	"empty-value JobName":         "a job has a name",
	"exclusive GPUs":              "what it gets is shown as asked for",
	"tasks-per-gpu-of-tasks GPUs": "Slurm shows the GPUs that follow from tasks only when the job runs",
	"dep-singleton Dependency":    "a condition that holds is still shown",

	// Muster's own fields, and names of a later Slurm.
	"squeue -O jobposition": "ours: the place in the line",
	"sacct GPUHours":        "ours",
	"sacct Restarts":        "of a later Slurm",
	"sacct Planned":         "of a later Slurm; 22.05 calls it Reserved",

	// variables
	"env SLURM_CLUSTER_NAME":    "ours is muster",
	"env SLURM_CONF":            "there is none",
	"env SLURM_WORKING_CLUSTER": "there is none",
	"env SLURM_NODE_ALIASES":    "there are none",
	"env SLURM_PRIO_PROCESS":    "nice levels do not travel",
	"env SLURM_TASK_PID":        "the shell has it as $$",
}

// sameAs is the fake with the oracle's machine.
func sameAs(t *testing.T) *fake {
	f := newFake()
	f.user, f.now = me(t), time.Now()
	f.parts[1].DefaultTime = api.Duration(10 * time.Minute)
	return f
}

// submitFake does what the server does with a submission, as far as the comparison sees it: the partition's
// limit, and the earliest start.
func submitFake(f *fake, id int) {
	j := &f.jobs[id-1]
	if len(j.Submission.Partitions) == 0 {
		j.Submission.Partitions = []string{"gpu"}
	}
	for _, p := range f.parts {
		if p.Name == j.Submission.Partitions[0] && j.Submission.Limit == 0 {
			j.Submission.Limit = p.DefaultTime
		}
	}
	if j.Submission.Begin != nil {
		j.Eligible = j.Submission.Begin
	}
}

var pair = regexp.MustCompile(` +([A-Z][A-Za-z:/]*)=`)

// fields reads scontrol's key=value text; values may contain spaces.
func fields(text string) map[string]string {
	out := map[string]string{}
	for _, line := range strings.Split(text, "\n") {
		line = " " + line
		at := pair.FindAllStringSubmatchIndex(line, -1)
		for i, m := range at {
			end := len(line)
			if i+1 < len(at) {
				end = at[i+1][0]
			}
			out[line[m[2]:m[3]]] = strings.TrimSpace(line[m[1]:end])
		}
	}
	return out
}

// facts are what both sides must agree on about a job, from scontrol show job.
func facts(text string, withMemory bool, soon time.Time) map[string]string {
	f := fields(text)
	out := map[string]string{}
	for _, k := range []string{"JobName", "UserId", "GroupId", "Nice", "Account", "JobState", "Dependency", "Requeue",
		"Restarts", "BatchFlag", "ExitCode", "RunTime", "TimeLimit", "Deadline",
		"Partition", "NumNodes", "NumCPUs", "NumTasks", "CPUs/Task", "Command", "WorkDir", "StdErr", "StdIn", "StdOut",
		"ArrayTaskId", "ArrayTaskThrottle", "Comment"} {
		out[k] = f[k]
	}
	out["NumNodes"], _, _ = strings.Cut(out["NumNodes"], "-") // for a waiting job a range
	for _, k := range []string{"StdOut", "StdErr"} {          // numbers differ where one side refused more
		out[k] = regexp.MustCompile(`[0-9]+([-_.])`).ReplaceAllString(out[k], "N$1")
	}
	out["Dependency"] = regexp.MustCompile(`\([a-z]*\)|_\*|_[0-9]+`).ReplaceAllString(out["Dependency"], "")
	// Devices in total.
	n := 0
	for _, k := range []string{"TresPerJob", "TresPerNode", "TresPerTask"} {
		if g := f[k]; g != "" && n == 0 {
			c := 1
			if i, err := strconv.Atoi(g[strings.LastIndexByte(g, ':')+1:]); err == nil {
				c = i
			}
			if k == "TresPerTask" {
				t, _ := strconv.Atoi(f["NumTasks"])
				c *= t
			}
			n = c
		}
	}
	out["GPUs"] = strconv.Itoa(n)
	if m := regexp.MustCompile(`mem=([0-9.]+[MGT])`).FindStringSubmatch(f["TRES"]); m != nil && withMemory {
		v := strings.TrimSuffix(m[1], "0M")
		if mb, err := ParseMemory(m[1]); err == nil {
			v = fmt.Sprint(mb)
		} else if x, err := strconv.ParseFloat(strings.TrimRight(m[1], "MGT"), 64); err == nil &&
			strings.HasSuffix(m[1], "G") {
			v = fmt.Sprint(int64(x * 1024))
		}
		out["Memory"] = v
	}
	if t, err := time.ParseInLocation("2006-01-02T15:04:05", f["EligibleTime"], time.Local); err == nil &&
		t.After(soon) {
		out["Begin"] = t.Truncate(20 * time.Second).Format(time.DateTime)
	}
	return out
}

// header reads a test script's "# args:" and "# env:" lines.
func header(t *testing.T, file string) (args, env []string) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(text), "\n") {
		if a, ok := strings.CutPrefix(line, "# args: "); ok {
			args = strings.Fields(a)
		}
		if e, ok := strings.CutPrefix(line, "# env: "); ok {
			env = strings.Fields(e)
		}
	}
	return args, env
}

// differences collects the differences; each must be in chosen, and each of chosen must occur.
type differences struct {
	t   *testing.T
	met map[string]bool
}

func (d *differences) add(key, format string, args ...any) {
	d.t.Helper()
	if chosen[key] == "" {
		d.t.Errorf("%s: %s", key, fmt.Sprintf(format, args...))
	}
	d.met[key] = true
}

// TestOracle submits every script of testdata to a real Slurm and to Muster, and compares what is accepted and
// how it is understood.
func TestOracle(t *testing.T) {
	o := startOracle(t)
	files, err := filepath.Glob("testdata/*.sh")
	if err != nil || len(files) < 60 {
		t.Fatalf("%d scripts: %v", len(files), err)
	}
	for i := range files {
		if files[i], err = filepath.Abs(files[i]); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(filepath.Join(o.dir, "work"))
	d := &differences{t, map[string]bool{}}
	t.Run("sinfo", func(t *testing.T) { d.sinfo(t, o) })
	f := sameAs(t)
	for _, words := range [][]string{{"sbatch", "--wrap", "true"}, {"sbatch", "--wrap", "exit 1"},
		{"sbatch", "-H", "--wrap", "true"}} {
		o.run("", nil, words...)
		f.do(t, "", words...)
	}
	// The whole machine is busy, so that the other jobs wait and can be examined.
	o.run("", nil, "sbatch", "--parsable", "--exclusive", "-t", "1-0", "-J", "blocker", "--wrap", "exec sleep 600")
	o.until("the blocker to run", func() bool {
		_, out, _ := o.run("", nil, "squeue", "-h", "-n", "blocker", "-t", "R", "-o", "%i")
		return out != ""
	})
	accepted := 0
	for _, file := range files {
		if d.script(o, f, file) {
			accepted++
		}
	}
	t.Logf("%d scripts, %d accepted by both", len(files), accepted)
	t.Run("squeue", func(t *testing.T) { d.squeue(t, o, f) })
	o.run("", nil, "scancel", "-u", me(t))
	t.Run("jobs", func(t *testing.T) { d.running(t, o) })
	t.Run("sacct", func(t *testing.T) { d.sacct(t) })
	t.Run("dependencies", func(t *testing.T) { d.dependencies(t, o) })
	for key, why := range chosen {
		if !d.met[key] {
			t.Errorf("a difference that is not there: %s (%s)", key, why)
		}
	}
}

// script submits one script to both.
func (d *differences) script(o *oracle, f *fake, file string) bool {
	name := strings.TrimSuffix(filepath.Base(file), ".sh")
	args, env := header(d.t, file)
	words := append([]string{"sbatch"}, args...)
	words = append(words, file)
	base := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}
	f.now = time.Now()
	real, realOut, realErr := o.run("", env, words...)
	ours, oursOut, oursErr := f.doEnv(d.t, "", append(base, env...), words...)
	if (real == 0) != (ours == 0) {
		d.add(name, "Slurm: %d %s%s\n\tMuster: %d %s%s", real, realOut, realErr, ours, oursOut, oursErr)
		return false
	}
	if real != 0 {
		return false
	}
	id := strings.Fields(realOut)
	_, realText, _ := o.run("", nil, "scontrol", "show", "job", id[len(id)-1])
	realText, _, _ = strings.Cut(realText, "\n\n")
	// Slurm knows the CPUs that follow from GPUs
	if _, _, says := o.run("", env, append([]string{words[0], "--test-only"}, words[1:]...)...); true {
		if m := regexp.MustCompile(`using ([0-9]+) processors`).FindStringSubmatch(says); m != nil {
			realText = regexp.MustCompile(`NumCPUs=[0-9-]+`).ReplaceAllString(realText, "NumCPUs="+m[1])
		}
	}
	n := len(f.jobs)
	submitFake(f, n)
	if f.jobs[n-1].Array != 0 {
		for i := range f.jobs {
			if f.jobs[i].Array == f.jobs[n-1].Array {
				submitFake(f, i+1)
			}
		}
		n = f.jobs[n-1].Array
	}
	sub := &f.jobs[n-1].Submission
	_, oursText, _ := f.do(d.t, "", "scontrol", "show", "job", strconv.Itoa(n))
	oursText, _, _ = strings.Cut(oursText, "\n\n")
	a, b := facts(realText, sub.RAM > 0, f.now.Add(time.Minute)), facts(oursText, sub.RAM > 0, f.now.Add(time.Minute))
	keys := make([]string, 0, len(a))
	for k := range a {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		if a[k] != b[k] {
			d.add(name+" "+k, "Slurm: %s; Muster: %s", a[k], b[k])
		}
	}
	return true
}

// sinfo compares whole texts while the machine is idle.
func (d *differences) sinfo(t *testing.T, o *oracle) {
	f := sameAs(t)
	f.nodes[0].GPUs = nil // the GRES is another text
	for _, args := range []string{"", "-l", "-s", "-N", "-Nl", "-R", "-Rl", "-h", "-p debug", "-t idle", "-t down",
		"-t drain", "-o %P|%R|%a|%l|%L|%D|%t|%T|%N|%c|%C|%A|%F|%m|%z|%X|%Y|%Z|%s|%r|%h|%g|%f|%b|%E|%H|%w|%d|%B|%p|%u|%U",
		"-o %.12P|%5t|%N|", "-h -o %P -p gpu", "-O partition,nodes:6,statelong:.10"} {
		words := append([]string{"sinfo"}, strings.Fields(args)...)
		_, want, _ := o.run("", nil, words...)
		code, got, errs := f.do(t, "", words...)
		want, got = dateless(want), dateless(got)
		if want != got || code != 0 {
			d.add("sinfo "+args, "\n%s\n--- Muster %s\n%s", want, errs, got)
		}
	}
	_, want, _ := o.run("", nil, "scontrol", "show", "partition")
	_, got, _ := f.do(t, "", "scontrol", "show", "partition")
	a, b := fields(strings.Split(want, "\n\n")[0]), fields(strings.Split(got, "\n\n")[0])
	for k, v := range b {
		if a[k] != v {
			d.add("partition "+k, "%s; Muster: %s", a[k], v)
		}
	}
}

// dateless drops a first line that is a date.
func dateless(s string) string {
	if first, rest, ok := strings.Cut(s, "\n"); ok && !strings.Contains(first, "NODELIST") {
		if _, err := time.Parse(time.ANSIC, first); err == nil {
			return rest
		}
	}
	return s
}

// squeue compares headers of all formats, and the columns of the jobs that both accepted, by the name of their
// output (which has no number in it).
func (d *differences) squeue(t *testing.T, o *oracle, f *fake) {
	var all []string
	for _, x := range jobFields() {
		if x.letter != 0 {
			all = append(all, "%"+string(rune(x.letter)))
		}
	}
	for _, args := range [][]string{nil, {"-l"}, {"--start"}, {"-o", strings.Join(all, "|")},
		{"-O", "jobid,name:12,state:.10,timelimit,username,reason,arrayjobid,starttime,timeused,timeleft,numcpus,minmemory,nodelist,reasonlist,workdir,tres-per-node,prioritylong,nice,dependency,command"}} {
		words := append([]string{"squeue", "-t", "R"}, args...)
		_, want, _ := o.run("", nil, words...)
		code, got, errs := f.do(t, "", words...)
		want, _, _ = strings.Cut(dateless(want), "\n")
		got, _, _ = strings.Cut(dateless(got), "\n")
		if want != got || code != 0 {
			d.add("squeue "+strings.Join(args, " "), "\n%q\n%q %s", want, got, errs)
		}
	}
	for _, x := range jobFields() { // every name of -O, with its header
		if x.name == "" {
			continue
		}
		code, want, errs := o.run("", nil, "squeue", "-O", x.name+":40")
		_, got, _ := f.do(t, "", "squeue", "-t", "S", "-O", x.name+":40")
		want, _, _ = strings.Cut(want, "\n")
		if code != 0 || want+"\n" != got {
			d.add("squeue -O "+x.name, "%q %s; Muster: %q", want, errs, got)
		}
	}
	const format = "%j|%P|%u|%t|%T|%D|%l|%M|%K|%k|%y|%C|%Z|%a"
	rows := func(text string) []string {
		var out []string
		for _, l := range strings.Split(text, "\n") {
			if n, _, _ := strings.Cut(l, "|"); regexp.MustCompile(
				`^(array|mem-g|time-|gpus|name|nice|partition-list|plain|tasks-).*`).MatchString(n) {
				out = append(out, l)
			}
		}
		slices.Sort(out)
		return out
	}
	_, want, _ := o.run("", nil, "squeue", "-h", "-o", format)
	_, got, _ := f.do(t, "", "squeue", "-h", "-o", format)
	a, b := rows(want), rows(got)
	for _, l := range a {
		n, _, _ := strings.Cut(l, "|")
		if !slices.Contains(b, l) && chosen[strings.TrimSuffix(n, ".sh")] == "" {
			i := slices.IndexFunc(b, func(s string) bool { return strings.HasPrefix(s, n+"|") })
			ours := "nothing"
			if i >= 0 {
				ours = b[i]
			}
			d.add("squeue "+n, "\n%s\n%s", l, ours)
		}
	}
	if len(a) < 30 {
		t.Errorf("only %d rows compared", len(a))
	}
}

// sacct has no oracle without a database; its manual names the fields.
func (d *differences) sacct(t *testing.T) {
	file, err := os.Open("/usr/share/man/man1/sacct.1.gz")
	if err != nil {
		t.Skipf("no manual: %v", err)
	}
	defer file.Close()
	plain, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(plain)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range acctFields() {
		if !regexp.MustCompile(`(?i)\b` + x.name + `\b`).Match(text) {
			d.add("sacct "+x.name, "the manual does not name it")
		}
	}
	if !regexp.MustCompile(`(?i)Jobid\s+Jobname\s+Partition\s+Account\s+AllocCPUS\s+State\s+ExitCode`).Match(text) {
		d.add("sacct default", "the manual does not name the default format")
	}
}

// running runs jobs in the real Slurm and compares their traces: files by their patterns, and the environment.
func (d *differences) running(t *testing.T, o *oracle) {
	work := filepath.Join(o.dir, "work")
	type run struct {
		pattern string
		args    []string
	}
	runs := []run{{"a-%j-%x-%u-%N-%n-%t-%%-%s-%q", nil}, {"b-%8j-%A-%a", nil}, {"c-%A_%a-%3a", []string{"-a", "12"}},
		{`d\%j`, nil}, {"e-%J-%2x", nil}, {"f%", nil}, {"g-%99j", nil},
		{"slurm-%A_%a.out", []string{"-a", "3", "-J", "n m"}}}
	want := map[string]string{}
	for i, r := range runs {
		words := append([]string{"sbatch", "--parsable", "-J", "pat", "-o", r.pattern}, r.args...)
		code, out, errs := o.run("", nil, append(words, "--wrap", "true")...)
		if code != 0 {
			t.Fatalf("%v: %s", words, errs)
		}
		id, _ := strconv.Atoi(strings.TrimSpace(out))
		// the node's name is box, the host has another one
		n := ask.FileNames{Job: id, User: me(t), JobName: "pat", Node: hostName()}
		if len(r.args) > 0 {
			n.Array = id
			n.Index, _ = strconv.Atoi(r.args[1])
			if len(r.args) > 2 {
				n.JobName = r.args[3]
			}
		}
		want[fmt.Sprint(i, " ", r.pattern)] = ask.ExpandPattern(r.pattern, n)
	}
	o.run("#!/bin/sh\nenv\n", nil, "sbatch", "-J", "env", "-o", "env-%a.txt", "-n", "4", "-c", "2", "--gpus-per-task=1",
		"-t", "10", "--mem=1G", "-a", "1-5:2")
	o.until("the jobs to end", func() bool { _, out, _ := o.run("", nil, "squeue", "-h"); return out == "" })
	var have []string
	for key, file := range want {
		if _, err := os.Stat(filepath.Join(work, file)); err != nil {
			entries, _ := os.ReadDir(work)
			for _, e := range entries {
				have = append(have, e.Name())
			}
			d.add("pattern "+strings.SplitN(key, " ", 2)[1], "there is no %s in %v", file, have)
		}
	}
	d.environment(t, filepath.Join(work, "env-3.txt"))
}

// environment compares a job's variables with Env and what sbatch sends.
func (d *differences) environment(t *testing.T, file string) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	real := strings.Split(string(text), "\n")
	f := sameAs(t)
	f.do(t, "#!/bin/sh\nenv\n", "sbatch", "-J", "env", "-o", "env-%a.txt", "-n", "4", "-c", "2", "--gpus-per-task=1",
		"-t", "10", "--mem=1G", "-a", "1-5:2", "-p", "gpu")
	f.start(2, 0, 1, 2, 3)
	ours := append(slices.Clone(f.jobs[1].Submission.Env), Env(f.jobs[1])...)
	for _, e := range real {
		name, value, _ := strings.Cut(e, "=")
		if !strings.HasPrefix(name, "SLURM") {
			continue
		}
		got, ok := lookupEnv(ours, name)
		if !ok {
			d.add("env "+name, "Slurm sets %s, Muster does not", e)
		} else if got != value &&
			!slices.Contains([]string{"SLURM_JOB_ID", "SLURM_JOBID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID",
				"SLURM_SUBMIT_DIR"}, name) {
			d.add("env "+name, "Slurm: %s; Muster: %s", value, got)
		}
	}
}
