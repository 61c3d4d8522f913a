//go:build linux

package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/show"
)

// What users of Slurm and of other schedulers type first is understood, or answered with what to type instead.
func TestFirstCommands(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "2xA100-80GB")
	d.want(d.must("submit", "--", "true"), "without a GPU (--gpus 1 asks for one)")
	if out := d.must("submit", "--gpus", "1", "--", "sleep", "1000"); strings.Contains(out, "without a GPU") {
		t.Errorf("a job with a GPU: %s", out)
	}
	out := d.must("submit", "--name", "typed", "--gpus", "a100:2", "--time", "1-02:00", "--qos", "best-effort", "--",
		"true")
	d.want(out, "waiting")
	var list []api.Job
	if err := json.Unmarshal([]byte(d.must("queue", "--name", "typed", "--json")), &list); err != nil ||
		len(list) != 1 {
		t.Fatalf("%v %v", err, list)
	}
	if s := list[0].Submission; s.GPUs != 2 || len(s.GPUTypes) != 1 || s.GPUTypes[0] != "a100" ||
		time.Duration(s.Limit) != 26*time.Hour || s.Tier != "best-effort" {
		t.Errorf("understood as %+v", s)
	}
	for args, want := range map[string]string{
		"submit --time 90 -- true":                     "90m for minutes",
		"submit --gpus a100:2 --gpu-type h100 -- true": "give one of them",
		"submit --gpus a100:x -- true":                 "a100:2",
		"submit --gres gpu:2 -- true":                  "--gpus 2",
		"run --nodes 4 -- true":                        "--tasks N",
		"submit --gpus 0.0001 -- true":                 "a fraction such as 0.5",
		"logs":                                         "see muster logs --help",
		"show 1 2":                                     "see muster show --help",
		"submit --partition nowhere --gpus 1 -- true":  "nowhere",
		"logs nobody":                                  "no job is called nobody",
		"wait nobody":                                  "no job is called nobody",
		"attach nobody":                                "no job is called nobody",
		"submit --deadline yesterday-or-so --gpus 1 -- true": "--deadline",
		"submit --cpus NaN -- true":                          "--cpus",
		"submit --gpus 1 --time 1:2:3:4 -- true":             "1:2:3:4",
	} {
		words := strings.Fields(args)
		out, code := d.try(words...)
		if !strings.Contains(out, want) || code == exitOK {
			t.Errorf("%s: exit code %d\n%s\nwant %q", args, code, out, want)
		}
		if usual := words[0] == "submit" && !strings.Contains(args, "nowhere") ||
			len(words) == 1; usual && code != exitUsage {
			t.Errorf("%s: exit code %d, want %d", args, code, exitUsage)
		}
	}
	d.must("submit", "--name", "talks", "--", "echo", "by name")
	d.must("wait", "talks")
	d.want(d.must("logs", "talks"), "by name")
	d.want(d.must("history", "talks"), "completed")
	d.must("submit", "--name", "held", "--hold", "--", "true")
	d.must("update", "held", "--priority", "-5")
	d.want(d.must("show", "held"), `"priority": -5`)
	d.want(d.must("version"), "muster ", "go1", "service ")
	d.want(d.must("__complete", "submit", "--tier", ""), "critical", "best-effort")
	d.want(d.must("__complete", "drain", ""), list0Node(d))
}

// list0Node is the name of the machine.
func list0Node(d *daemon) string {
	var nodes []api.Node
	if err := json.Unmarshal([]byte(d.must("nodes", "--json")), &nodes); err != nil || len(nodes) != 1 {
		d.t.Fatalf("%v %v", err, nodes)
	}
	return nodes[0].Name
}

// Waiting elements of an array that wait for the same take one line of muster queue.
func TestQueueFolds(t *testing.T) {
	jobs := func(elements ...int) (list []api.Job) {
		for _, i := range elements {
			list = append(list, api.Job{ID: 12 + i, Array: 12, Index: i, State: api.StatePending,
				Reason: "no GPU is free"})
		}
		return list
	}
	list := jobs(0, 1, 2, 3, 5)
	list[0].State = api.StateRunning
	list[2].Reason = "held"
	list = append(list, api.Job{ID: 40, State: api.StatePending, Reason: "no GPU is free"},
		api.Job{ID: 41, State: api.StatePending, Reason: "no GPU is free"})
	var got []string
	for _, r := range show.Fold(list) {
		got = append(got, r.ID())
	}
	if want := "12 12_[1,3,5] 14 40 41"; strings.Join(got, " ") != want {
		t.Errorf("%s, want %s", strings.Join(got, " "), want)
	}
	r := show.Row{Job: &api.Job{Array: 8}, Elements: []int{9, 3, 4, 5, 7}}
	if got := r.ID(); got != "8_[3-5,7,9]" {
		t.Error(got)
	}
}

// A table is never wider than its terminal: cells are shortened, and where eight letters a column do not fit,
// columns go.
func TestTableFits(t *testing.T) {
	for _, terminal := range []int{60, 24} {
		tab := table{heads: []string{"JOB", "QUEUE", "NAME", "WHERE OR WHY"}, rows: [][]string{
			{"1", "research", strings.Repeat("ä", 60), strings.Repeat("b", 90)}, {"2", "serving", "short", "no GPU"}}}
		tab.fit(terminal, "QUEUE", "NAME")
		for _, r := range tab.lines() {
			if n := len([]rune(strings.Join(r, "  "))); n > terminal {
				t.Errorf("%d columns: %q", n, r)
			}
		}
		last := tab.rows[1]
		if last[len(last)-2] != "short" || last[len(last)-1] != "no GPU" ||
			!strings.HasSuffix(tab.rows[0][len(last)-2], "…") || (len(last) == 3) != (terminal == 24) {
			t.Errorf("%q", tab.lines())
		}
	}
}

// Every flag that describes a job counts beside a file that describes it, too.
func TestOverlayHasAllFlags(t *testing.T) {
	c := &cobra.Command{Use: "submit"}
	(&jobFlags{}).add(c)
	known := overlays(&api.Submission{}, &api.Submission{})
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if known[f.Name] == nil && f.Name != "env" { // the environment is added to the file's
			t.Errorf("--%s is forgotten beside a file", f.Name)
		}
	})
}

// The number of an array stands for its elements, not for the first of them, also where they run.
func TestArrayVerbs(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "2xA100-80GB")
	d.must("submit", "--gpus", "1", "--array", "0-2", "-o", "/dev/null", "--", "sleep", "1000")
	for _, element := range []string{"1", "2"} {
		d.untilSays(`"state": "running"`, "show", element)
	}
	if out := d.must("suspend", "1"); strings.Count(out, "suspended") != 2 {
		t.Errorf("two of three elements run:\n%s", out)
	}
	if out, code := d.try("requeue", "1"); code != exitFailed ||
		!strings.Contains(out, "no element of array 1 is running") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	if out := d.must("resume", "1"); strings.Count(out, "running") != 2 {
		t.Errorf("both go on:\n%s", out)
	}
}
