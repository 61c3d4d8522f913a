//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/internal/shared"
)

// worker is a job that counts to a number, a step of 50 ms at a time, reports
// its progress, and goes on from its checkpoint. Of a gang the first counts.
const worker = `cd "$MUSTER_CHECKPOINT_DIR"
[ "$MUSTER_RANK" = 0 ] || { trap 'exit 0' USR1; while [ ! -e done ]; do sleep 0.2; done; exit 0; }
n=$(cat step 2>/dev/null || echo 0)
trap 'echo $n > new; mv new step; exit 0' USR1
while [ $n -lt %d ]; do
  sleep 0.05; echo $((n+1)) >> steps; n=$((n+1))
  echo "{\"step\": $n, \"steps\": %d}" >> "$MUSTER_PROGRESS"
done
touch done; echo '{"finished": true}' >> "$MUSTER_PROGRESS"`

// worksUntil is that job, which does not end before the file is there.
func worksUntil(file string, steps int) string {
	return strings.Replace(fmt.Sprintf(worker, steps, steps), "touch done;",
		"until [ -e "+file+" ]; do sleep 0.2; done; touch done;", 1)
}

// TestPoliciesLive runs policies of the literature on real processes: jobs are
// preempted, resized and resumed as the policy says, none loses a step, and the
// engine of the simulator, given what happened, takes every decision again.
func TestPoliciesLive(t *testing.T) {
	t.Parallel()
	for i, c := range []struct {
		policy string
		jobs   []string // in order, a moment apart; the number is of steps
		want   string   // of the first job
	}{
		{"tiresias-l:thresholds=2", []string{"100 --gpus 4", "10 --gpus 4", "10 --gpus 2"}, "preempted"},
		{"tiresias-g:thresholds=2", []string{"100 --gpus 4", "10 --gpus 4"}, "preempted"},
		{"gittins:base=1s", []string{"100 --gpus 4", "10 --gpus 4"}, "preempted"},
		{"e-las:thresholds=2,T0=1s", []string{"100 --gpus 4", "10 --gpus 4"}, "preempted"},
		{"qssf", []string{"20 --gpus 4", "10 --gpus 2", "5 --gpus 2"}, "left alone"},
		{"lucid", []string{"20 --gpus 4", "10 --gpus 2", "5 --gpus 2"}, "left alone"},
		// once: then it waits with the others
		{"lucid:profile=new,limit=1s", []string{"100 --gpus 4", "10 --gpus 2", "5 --gpus 2"}, "preempted"},
		{"sched2", []string{"20 --gpus 4 --estimate 5s", "10 --gpus 2", "5 --gpus 2 --estimate 1s"}, "left alone"},
		{"antman", []string{"20 --gpus 4", "10 --gpus 2", "5 --gpus 2 --tier best-effort"}, "left alone"},
		{"salus", []string{"20 --gpus 4 --gpu-mem 20GiB --gpu-mem-resident 2GiB",
			"10 --gpus 4 --gpu-mem 20GiB --gpu-mem-resident 2GiB", "5 --gpus 2"}, "left alone"},
		{"miso", []string{"20 --gpus 4", "10 --gpus 2", "5 --gpus 1"}, "left alone"}, // no GPU can be divided here
		{"themis:lease=1s", []string{"100 --gpus 4 --estimate 5s", "10 --gpus 4 --estimate 500ms"}, "preempted"},
		{"astraea:lease=1s", []string{"100 --gpus 4", "10 --gpus 4"}, "preempted"},
		{"gavel:round=1s", []string{"100 --gpus 4", "20 --gpus 4"}, "preempted"},
		{"gandiva-fair:round=1s,reset=1s", []string{"100 --gpus 4", "20 --gpus 4"}, "preempted"},
		{"allox", []string{"20 --gpus 4", "10 --gpus 2", "5 --gpus 2"}, "left alone"},
		{"srsf", []string{"100 --gpus 4 --estimate 60s", "10 --gpus 4 --estimate 1s"}, "preempted"},
		{"gandiva:round=1s,pack=false", []string{"100 --gpus 4", "20 --gpus 4"}, "preempted"},
		{"gandiva:round=1s,pack=false,overhead=0.5", []string{"100 --gpus 4", "20 --gpus 4"}, "preempted"},
		// together from the second second on
		{"gandiva:round=1s,probe=3s", []string{"150 --gpus 4", "150 --gpus 4"}, "left alone"},
		{"muri:round=1s,group=1", []string{"100 --gpus 4", "20 --gpus 4"}, "preempted"},
		{"afs", []string{"100 --gpus 1 --min-tasks 1 --max-tasks 4", "20 --gpus 1 --min-tasks 1 --max-tasks 4"},
			"resized"},
		{"optimus:round=1s",
			[]string{"100 --gpus 1 --min-tasks 1 --max-tasks 4", "20 --gpus 1 --min-tasks 1 --max-tasks 4"}, "resized"},
		{"lyra", []string{"100 --gpus 1 --min-tasks 1 --max-tasks 4", "10 --gpus 3",
			"20 --gpus 1 --min-tasks 1 --max-tasks 2"}, "resized"},
		{"pollux:round=1s,restart=0s",
			[]string{"100 --gpus 1 --min-tasks 1 --max-tasks 4", "20 --gpus 1 --min-tasks 1 --max-tasks 4"}, "resized"},
		{"sia:round=1s,restart=0s",
			[]string{"100 --gpus 1 --min-tasks 1 --max-tasks 4", "20 --gpus 1 --min-tasks 1 --max-tasks 4"}, "resized"},
		{"elasticflow:slot=1s", []string{"100 --gpus 1 --min-tasks 1 --max-tasks 4 --estimate 8s --deadline now+600",
			"20 --gpus 1 --min-tasks 1 --max-tasks 4 --estimate 2s --deadline now+600"}, "resized"},
		{"chronus:lease=1s,first=most", []string{"100 --gpus 4", "10 --gpus 4 --estimate 1s --deadline now+60"},
			"preempted"},
		{"hypersched:rung=0s,overhead=0s,hold=0s,check=1s",
			[]string{"100 --gpus 1 --min-tasks 1 --max-tasks 4 --priority 1 --deadline now+60",
				"20 --gpus 1 --min-tasks 1 --max-tasks 2 --priority 2 --deadline now+60"}, "resized"},
	} {
		if shared.Soak(i%3 > 0, false) {
			continue // the engine that runs it is the simulator's, whose tests have all
		}
		t.Run(c.policy, func(t *testing.T) {
			t.Parallel()
			playLive(t, c.policy, c.jobs, c.want)
		})
	}
}

func playLive(t *testing.T, policy string, jobs []string, want string) {
	t.Helper()
	d, _ := configured(t, "4xH100-80GB",
		"policy: '"+policy+"'\nqueues: [{name: a}, {name: b}, {name: default}]\npartitions: [{name: main, default: true}, {name: new}]\n")
	var ids []string
	for i, line := range jobs {
		steps, args, _ := strings.Cut(line, " ")
		n, err := strconv.Atoi(steps)
		if err != nil {
			t.Fatal(err)
		}
		id := strconv.Itoa(i + 1)
		ids = append(ids, id)
		d.must(append(append([]string{"submit", "-o", "/dev/null"}, strings.Fields(args)...), "--", "sh", "-c",
			fmt.Sprintf(worker, n, n))...)
		if i == 0 { // it has its trap
			d.appears(filepath.Join(d.dir, "state", "jobs", "1", "checkpoint", "steps"), 1)
			d.untilJob("1", "runs", func(j *api.Job) bool { return j.State == api.StateRunning || j.Ended != nil })
		}
	}
	d.must(append([]string{"wait"}, ids...)...)
	for i, line := range jobs {
		d.want(d.must("show", ids[i]), `"state": "completed"`)
		steps, _, _ := strings.Cut(line, " ")
		counted(t, filepath.Join(d.dir, "state", "jobs", ids[i], "checkpoint", "steps"), steps)
		if strings.HasPrefix(policy, "elasticflow") {
			kept(t, d.must("show", ids[i]))
		}
	}
	first := d.must("show", "1")
	file := filepath.Join(d.dir, "journal")
	d.must("journal", "export", "-o", file)
	if undisturbed := strings.Contains(first, `"preemptions": 0`); undisturbed == (want == "preempted") ||
		strings.Contains(d.read("journal"), `"resized"`) != (want == "resized") {
		t.Errorf("the first job is not %s: %s", want, first)
	}
	d.replays()
}

// kept checks that a job's deadline was accepted and that it ended before.
func kept(t *testing.T, show string) {
	t.Helper()
	var job struct {
		Answer string `json:"deadline_answer"`
		Ended  time.Time
		Spec   struct{ Deadline time.Time } `json:"submission"`
	}
	if err := json.Unmarshal([]byte(show), &job); err != nil {
		t.Fatalf("%v: %s", err, show)
	}
	if job.Answer != "accepted" || job.Ended.IsZero() || job.Spec.Deadline.IsZero() ||
		job.Ended.After(job.Spec.Deadline) {
		t.Errorf("answered %q, due at %v, ended at %v", job.Answer, job.Spec.Deadline, job.Ended)
	}
}

// counted checks that a worker took every step, and none twice but the one that
// it was in when it was asked for its checkpoint.
func counted(t *testing.T, file, last string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Fields(string(text))
	before := 0
	for _, l := range lines {
		n, err := strconv.Atoi(l)
		if err != nil || n != before+1 && n != before {
			t.Errorf("after step %d comes %q", before, l)
		}
		before = n
	}
	if strconv.Itoa(before) != last {
		t.Errorf("the last step is %d, want %s", before, last)
	}
}

// Under policy miso jobs that ask for a GPU get instances of one, the best first; who
// finds none waits, and gets the first that is free.
func TestDividedLive(t *testing.T) {
	t.Parallel()
	d, _ := configured(t, "1xA100-80GB/0:3g.40gb@4,2g.20gb@0", "policy: miso\n")
	script := func(name, memory string) string {
		text := "#!/bin/sh\n#MUSTER --gpus=1 --gpu-memory=" + memory +
			"\nenv | grep CUDA_VISIBLE\ntrap 'exit 0' TERM\nwhile [ ! -e go ]; do sleep 0.2; done\n"
		if err := os.WriteFile(filepath.Join(d.dir, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
		return filepath.Join(d.dir, name)
	}
	for range 3 {
		d.must("submit", script("small.sh", "16G"))
	}
	d.untilSays("CUDA_VISIBLE_DEVICES=MIG-simulated-0-3g.40gb-4", "logs", "1")
	d.untilSays("CUDA_VISIBLE_DEVICES=MIG-simulated-0-2g.20gb-0", "logs", "2")
	d.untilSays("policy miso gives it nothing for now", "why", "3")
	if out, code := d.try("submit", script("large.sh", "60G")); code == 0 ||
		!strings.Contains(out, "even the empty cluster") {
		t.Errorf("more memory than any instance has: %d\n%s", code, out)
	}
	if err := os.WriteFile(filepath.Join(d.dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d.must("wait", "1", "2", "3")
	d.want(d.must("logs", "3"), "CUDA_VISIBLE_DEVICES=MIG-simulated-0-")
}

// Two jobs on the same GPUs, as processes: the second starts beside the first, holds
// them when that ends, and a daemon that dies meanwhile finds both.
func TestPackedLive(t *testing.T) {
	t.Parallel()
	d, _ := configured(t, "4xH100-80GB", "policy: 'lucid:pack=always'\nperformance: {pairs: {'*/*': 0.96}}\n")
	d.must("submit", "--gpus", "4", "-o", "/dev/null", "--estimate", "1h", "--", "sh", "-c",
		"while [ ! -e "+d.dir+"/first ]; do sleep 0.1; done")
	d.untilSays(`"state": "running"`, "show", "1")
	d.must("submit", "--gpus", "4", "-o", "/dev/null", "--estimate", "1h", "--", "sh", "-c",
		"while [ ! -e "+d.dir+"/second ]; do sleep 0.1; done")
	d.untilSays(`"state": "running"`, "show", "2")
	d.want(d.must("why", "2"), "beside job 1")
	d.want(d.must("why", "1"), "beside job 2")
	d.must("submit", "--gpus", "1", "-o", "/dev/null", "--estimate", "1h", "--", "true")
	d.want(d.must("why", "3"), "waiting", "needs 1 GPU")
	d.kill()
	d.start()
	d.want(d.must("why", "2"), "beside job 1")
	if err := os.WriteFile(filepath.Join(d.dir, "first"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d.must("wait", "1")
	d.want(d.must("show", "3"), `"state": "pending"`) // the GPUs are the second one's now
	if out := d.must("why", "2"); strings.Contains(out, "beside") {
		t.Errorf("it is alone: %s", out)
	}
	if err := os.WriteFile(filepath.Join(d.dir, "second"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d.must("wait", "2", "3")
	for _, id := range []string{"1", "2", "3"} {
		d.want(d.must("show", id), `"state": "completed"`, `"preemptions": 0`)
	}
	d.replays()
}

// Four jobs that use different resources, as processes: none waits, those that run
// are stopped where that is needed and go on beside others from their checkpoints.
func TestInterleavedLive(t *testing.T) {
	t.Parallel()
	d, _ := configured(t, "4xH100-80GB",
		"policy: 'muri:round=1s'\nperformance: {stages: {load: [10, 1], compute: [1, 10]}}\n")
	const steps = 120
	for i, model := range []string{"load", "compute", "load", "compute"} {
		d.must("submit", "--gpus", "2", "--model", model, "-o", "/dev/null", "--", "sh", "-c",
			worksUntil(filepath.Join(d.dir, "seen"), steps))
		if i < 2 {
			d.untilSays(`"state": "running"`, "show", strconv.Itoa(i+1))
		}
	}
	d.untilSays("beside job", "why", "3")
	d.untilSays("beside job", "why", "4")
	d.write("seen", "")
	d.must("wait", "1", "2", "3", "4")
	for i := range 4 {
		id := strconv.Itoa(i + 1)
		d.want(d.must("show", id), `"state": "completed"`)
		counted(t, filepath.Join(d.dir, "state", "jobs", id, "checkpoint", "steps"), strconv.Itoa(steps))
	}
	d.replays()
}

// Two jobs that share GPUs by gavel's program, as processes: the second joins the first
// at a round, neither is stopped, and both take every step once.
func TestSpaceSharingLive(t *testing.T) {
	t.Parallel()
	d, _ := configured(t, "4xH100-80GB",
		"policy: 'gavel:space_sharing=true,round=1s'\nperformance: {pairs: {'*/*': 0.9}}\n")
	const steps = 80
	for i := range 2 {
		d.must("submit", "--gpus", "4", "-o", "/dev/null", "--", "sh", "-c",
			worksUntil(filepath.Join(d.dir, "seen"), steps))
		if i == 0 {
			d.untilSays(`"state": "running"`, "show", "1")
		}
	}
	d.untilSays("beside job 1", "why", "2")
	d.write("seen", "")
	d.must("wait", "1", "2")
	for _, id := range []string{"1", "2"} {
		d.want(d.must("show", id), `"state": "completed"`)
		counted(t, filepath.Join(d.dir, "state", "jobs", id, "checkpoint", "steps"), strconv.Itoa(steps))
	}
	d.replays()
}

// A deadline is answered with the submission, and an accepted one is kept.
func TestDeadlineAnswered(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"elasticflow:slot=1s", "chronus:lease=1s"} {
		t.Run(policy, func(t *testing.T) { answersLive(t, policy) })
	}
}

func answersLive(t *testing.T, policy string) {
	t.Parallel()
	d, _ := configured(t, "2xH100-80GB", "policy: '"+policy+"'\n")
	run := "while [ ! -e " + filepath.Join(d.dir, "go") + " ]; do sleep 0.2; done"
	d.want(d.must("submit", "--gpus", "2", "--estimate", "2s", "--deadline", "now+60", "-o", "/dev/null", "--", "sh",
		"-c", run),
		"its deadline is accepted")
	d.want(d.must("submit", "--gpus", "2", "--estimate", "2h", "--deadline", "now+60", "-o", "/dev/null", "--", "true"),
		"its deadline cannot be promised")
	d.want(d.must("why", "1"), "its deadline is accepted")
	d.write("go", "")
	d.must("wait", "1", "2")
	d.want(d.must("show", "1"), `"deadline_answer": "accepted"`, `"state": "completed"`)
	if out, code := d.try("submit", "--deadline", "soon", "--", "true"); code != exitUsage ||
		!strings.Contains(out, "--deadline") {
		t.Errorf("exit code %d: %s", code, out)
	}
	d.replays()
}

// Where muster serve makes instances, policy miso has a GPU divided again when another
// job comes, and whole again when it goes: the first leaves at a checkpoint each time,
// and starts again in its part.
func TestDividedAnewLive(t *testing.T) {
	t.Parallel()
	d, _ := configured(t, "1xH100-80GB", "policy: miso\nsharing: {mig: dynamic}\n")
	for _, flag := range []string{"go1", "go2"} {
		d.must("submit", "--gpus", "1", "--", "sh", "-c",
			"trap 'exit 0' USR1 TERM; env | grep CUDA_VISIBLE; while [ ! -e "+flag+" ]; do sleep 0.2; done")
		if flag == "go1" {
			d.untilSays("MIG-simulated-0-7g.80gb-0", "logs", "1")
		}
	}
	d.untilSays("MIG-simulated-0-4g.40gb-0", "logs", "2")
	d.untilSays("MIG-simulated-0-3g.40gb-4", "logs", "1")
	d.untilSays("4g.40gb@0: job 2, 3g.40gb@4: job 1", "nodes")
	finish := func(flag string) {
		if err := os.WriteFile(filepath.Join(d.dir, flag), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	finish("go2")
	d.must("wait", "2")
	d.untilSays("7g.80gb@0: job 1", "nodes")
	finish("go1")
	d.must("wait", "1")
	d.want(d.must("show", "1"), `"preemptions": 2`, `"state": "completed"`)
	d.must("journal", "export", "-o", filepath.Join(d.dir, "journal"))
	d.replays()
}

// The learned policy and placer on real processes: what the network chose is said, the policy is changed to it and back
// while jobs run, and a replay takes every decision again.
func TestLearnedLive(t *testing.T) {
	t.Parallel()
	d, _ := configured(t, "4xH100-80GB", "policy: sched2\nplace: meta-rl\n")
	d.must("submit", "--gpus", "4", "--estimate", "1h", "-o", "/dev/null", "--", "sh", "-c",
		"while [ ! -e "+d.dir+"/go ]; do sleep 0.1; done")
	d.untilSays("the network chose it among 1 things", "why", "1")
	d.must("submit", "--gpus", "2", "-o", "/dev/null", "--", "true")
	d.want(d.must("why", "2"), "policy sched2 gives it nothing for now")
	d.must("policy", "set", "fifo", "--place", "best-fit")
	d.must("policy", "set", "sched2", "--place", "meta-rl", "--guard", "1h")
	d.want(d.must("policy", "show"), "sched2, place meta-rl", "if fifo, place best-fit would have been better")
	if out, code := d.try("policy", "set", "sched2:weights=/nowhere"); code == 0 || !strings.Contains(out, "/nowhere") {
		t.Errorf("weights that are not there: %d\n%s", code, out)
	}
	if err := os.WriteFile(filepath.Join(d.dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d.must("wait", "1", "2")
	d.want(d.must("show", "1"), `"state": "completed"`, `"preemptions": 0`)
	d.must("journal", "export", "-o", filepath.Join(d.dir, "journal"))
	d.replays()
}
