package play

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/search/tuner"
	"github.com/muster-gpu/muster/sim"
	"github.com/muster-gpu/muster/trace"
)

const text = `name: small
method: asha
trials: 9
budget: {min: 1, max: 9}
parameters: {x: {uniform: [0, 1]}}
metric: loss
at_once: 3
simulate: {step: 10s, begin: 1h}
job: {command: [train, "{x}"]}
`

func file(t *testing.T, old, new string) *tuner.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "small.yaml")
	if err := os.WriteFile(path, []byte(strings.Replace(text, old, new, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := tuner.Read(path, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func trial(gpus int) cluster.Job {
	return cluster.Job{Name: "trial", User: User,
		Tasks: []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: gpus}}}}
}

var oneNode = &cluster.Spec{Nodes: []cluster.Node{{Name: "n", Model: "A30-24GB", GPUs: 4, CPU: 64, RAM: 1 << 20}}}

// There is a play for each setup, method and number of runs at once, in this order, each with a search of its own.
func TestPlays(t *testing.T) {
	f := file(t, "", "")
	o := Options{Methods: []string{"", "random"}, AtOnce: []int{1, 4}, Job: trial(1), Seed: 5}
	all, err := Plays(f, o, []sim.Setup{{Policy: "fifo"}, {Policy: "las"}})
	if err != nil || len(all) != 8 {
		t.Fatalf("%d plays, %v", len(all), err)
	}
	searches := map[any]bool{}
	for i, p := range all {
		s := p.World.Search
		searches[s.Search] = true
		if p.Policy != []string{"fifo", "las"}[i/4] ||
			!strings.HasPrefix(p.Method, []string{"asha", "random"}[i/2%2]) || p.AtOnce != []int{1, 4}[i%2] ||
			s.AtOnce != p.AtOnce || s.After != time.Hour ||
			s.Curves.Step != 10*time.Second || s.Curves.Seed != 5 {
			t.Errorf("play %d is %s, %s, %d at once: %+v", i, p.Policy, p.Method, p.AtOnce, s)
		}
	}
	if len(searches) != 8 {
		t.Errorf("%d searches for 8 plays", len(searches))
	}
	if all, err = Plays(f, Options{Methods: []string{""}}, []sim.Setup{{}}); err != nil || all[0].AtOnce != 3 {
		t.Errorf("as the file says: %+v, %v", all, err)
	}
}

// What cannot be played is said by the file's field, or the method's name.
func TestPlaysErrors(t *testing.T) {
	for _, c := range []struct{ old, new, method, want string }{
		{"step: 10s", "step: soon", "", `simulate.step: "soon" is not a time`},
		{"step: 10s", "step: 0s", "", `simulate.step: "0s" is not a time`},
		{"begin: 1h", "begin: -1h", "", `simulate.begin: "-1h" is not a time`},
		{"step: 10s", "scaled: 0", "", "scaled is above 0"},
		{"step: 10s", "noise: .nan", "", "noise are 0 or more"},
		{"", "", "guess", `"guess"`},
	} {
		f := file(t, c.old, c.new)
		if _, err := Plays(f, Options{Methods: []string{c.method}}, []sim.Setup{{}}); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: %v, want %s", c.new, c.method, err, c.want)
		}
	}
}

// A row says what was tried and found, and how long the other jobs took beside it.
func TestRowOf(t *testing.T) {
	f := file(t, "", "")
	all, err := Plays(f, Options{Methods: []string{""}, AtOnce: []int{4}, Job: trial(1), Seed: 1},
		[]sim.Setup{{Policy: "fifo", Placer: "pack"}})
	if err != nil {
		t.Fatal(err)
	}
	other := trial(1)
	other.User = "ann"
	wl := &trace.Workload{Jobs: []trace.Entry{{Job: other, Run: 20 * time.Minute}}}
	out := sim.Run(t.Context(), oneNode, sim.Prepare(wl, oneNode, sim.Estimates{}, sim.PerNode), all[0].Setup)
	r, err := RowOf(f, &all[0], &out)
	if err != nil {
		t.Fatal(err)
	}
	if r.Trials != 9 || r.Runs < 9 || r.Steps < 9 || r.AtOnce != 4 || r.Policy != "fifo" ||
		r.Placer != "pack" || r.Partial {
		t.Errorf("%+v", r)
	}
	if hours := float64(r.Steps) * 10 / 3600; math.Abs(r.GPUHours-hours) > hours/100 {
		t.Errorf("%d steps of 10 s took %v GPU-hours, not %v", r.Steps, r.GPUHours, hours)
	}
	if r.Loss < r.Optimum || r.Makespan <= 0 || r.Others != 1200 {
		t.Errorf("%+v", r)
	}
}

// Each method's own rules count: a random search trains every trial to the end.
func TestPlaysMethod(t *testing.T) {
	f := file(t, "", "")
	for method, want := range map[string]bool{"asha": false, "random": true} {
		all, err := Plays(f, Options{Methods: []string{method}, Job: trial(1)},
			[]sim.Setup{{Policy: "fifo", Placer: "pack"}})
		if err != nil {
			t.Fatal(err)
		}
		out := sim.Run(t.Context(), oneNode, nil, all[0].Setup)
		r, err := RowOf(f, &all[0], &out)
		if err != nil || r.Steps == 9*9 != want {
			t.Errorf("%s computes %d steps of 9 trials, %v", method, r.Steps, err)
		}
	}
}

// Where no trial came to a report the error says why.
func TestRowOfErrors(t *testing.T) {
	f := file(t, "", "")
	all, err := Plays(f, Options{Methods: []string{""}, Job: trial(8)}, []sim.Setup{{Policy: "fifo", Placer: "pack"}})
	if err != nil {
		t.Fatal(err)
	}
	out := sim.Run(context.Background(), oneNode, nil, all[0].Setup)
	if _, err = RowOf(f, &all[0], &out); err == nil ||
		!strings.Contains(err.Error(), "the cluster cannot run what the job") {
		t.Errorf("with jobs of 8 GPUs on 4: %v", err)
	}
	out.Err = errors.New("it broke")
	if _, err = RowOf(f, &all[0], &out); err == nil || err.Error() != "fifo: it broke" {
		t.Errorf("%v", err)
	}
}
