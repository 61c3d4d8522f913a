package tuner

import (
	_ "embed"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/search"
)

// goodSearch is a valid search file.
//
//go:embed testdata/good.yaml
var goodSearch string

// Errors in a search file name their line, and what would be right.
func TestSearchFileErrors(t *testing.T) {
	if _, err := parse("f.yaml", "", []byte(goodSearch)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ old, new, want string }{
		{"trials: 20", "trails: 20", `f.yaml:3: unknown field "trails": did you mean "trials"?`},
		{"trials: 20", "trials: many", `f.yaml:3: trials: "many" is not a whole number`},
		{"trials: 20", "trials: 0", "f.yaml:3: trials: 0 is not between 1 and"},
		{"method: hydro", "method: hyperbnd", `f.yaml:2: unknown method "hyperbnd": did you mean "hyperband"?`},
		{"max: 9", "most: 9", `f.yaml:4: unknown field "most"`},
		{"min: 1", "min: 10", "f.yaml:4: budget.min: 10 is not between 1 and budget.max, which is 9"},
		{"eta: 3", "eta: 1", "f.yaml:5: eta: 1 is not between 2 and"},
		{"scale: 8", "scale: 6", "f.yaml:6: scale: 6 is not a power of two"},
		{"hidden: 512", "hidden: 500", "f.yaml:7: widths.hidden: 500 cannot be divided by 8, the scale"},
		{"by: batch", "by: bach", `unknown parameter "bach": did you mean "batch"?`},
		{"two: 8.5GiB", "two: 5GiB",
			"f.yaml:8: fusion: in MiB, two fused trials take 5120, which is not more than one takes (6144)"},
		{"memory: 24GiB", "memory: lots", "f.yaml:8: memory:"},
		{"64: {one", "63: {one", "f.yaml:8: fusion.profiles: 63 is none of the values of batch"},
		{", 64: {one: 8GiB, two: 13GiB}", "", "there is none for batch: 64"},
		{"log-uniform", "log-normal", `f.yaml:10: lr: unknown way to draw "log-normal": did you mean "log-uniform"?`},
		{"[1e-4, 1]", "[0, 1]", "f.yaml:10: lr: log-uniform: parameters.lr: a logarithm needs numbers above 0"},
		{"[1e-4, 1]", "[1]", "f.yaml:10: lr: log-uniform: give the least and the most"},
		{"[sgd, adam]", "sgd", "f.yaml:12: opt: choice: give a list in [ ]"},
		{"  opt:", "  batch:", "f.yaml:12: batch: it is given twice"},
		{"  opt:", "  budget:", "f.yaml:12: budget: a parameter's name"},
		{"metric: loss\n", "", "f.yaml: metric: say which one"},
		{"minimise", "best", `f.yaml:14: unknown goal "best"`},
		{"at_once: 2", "at_once: 0", "f.yaml:15: at_once: 0 is not between 1 and"},
		{`"{lr}"`, `"{ltr}"`, "f.yaml:16: job: command: there is no parameter {ltr}: did you mean {lr}?"},
		{"  gpus: 1", "  gpu: 1", `f.yaml:18: unknown field "gpu": did you mean "gpus"?`},
		{"  gpus: 1", "  gpus: -1", "f.yaml:16: job: gpus: -1 is out of range"},
		{"  gpus: 1", "  array: 0-3", "f.yaml:16: job: array"},
		{"method: hydro", "method: asha", "f.yaml:8: fusion: a knob of hydro, not of asha"},
		{"name: good", "name: a b", `name: "a b"`},
		{"eta: 3", "eta: 3\neta: 4", "f.yaml:6: "},
		{"[sgd, adam]", "[1, .inf]",
			"f.yaml:12: opt: choice: line 12: programs are given values as JSON, which has no .inf"},
		{"{choice: [sgd, adam]}", "{grid: [.nan]}",
			"f.yaml:12: opt: grid: line 12: programs are given values as JSON, which has no .nan"},
		{"[1e-4, 1]", "[1e-4, .inf]", "f.yaml:10: lr: log-uniform: parameters.lr: give the least and the most"},
		{"metric: loss", "metric: " + strings.Repeat("m", 65), "has 65 letters; names of metrics have at most 64"},
		{"  opt:", "  scale:",
			"f.yaml:12: scale: a parameter's name is letters, digits and _, begins with no digit, and is not trial, budget or scale"},
		{"hidden: 512", "trial: 512", "f.yaml:7: widths.trial: a width's name"},
		{"hidden: 512", "opt: 512", "f.yaml:7: widths.opt: there is a parameter of this name"},
		{"hidden: 512", "hidden: 512, hidden: 64", "f.yaml:7: widths.hidden: it is given twice"},
		{"32: {one", "64: {one: 1GiB, two: 2GiB}, 32: {one", "f.yaml:8: fusion.profiles: 64 is given twice"},
		{"32: {one", "48: {one: 1GiB, two: 2GiB}, 32: {one",
			"f.yaml:8: fusion.profiles: 48 is none of the values of batch"},
	} {
		text := strings.Replace(goodSearch, c.old, c.new, 1)
		if text == goodSearch {
			t.Fatalf("%q is not in the file", c.old)
		}
		if _, err := parse("f.yaml", "", []byte(text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.new, err, c.want)
		}
	}
	for _, c := range []struct{ old, new, want string }{ // random reads neither, but reports invalid ones
		{"trials: 3", "trials: 3\neta: 1", "f.yaml:4: eta: 1 is less than 2"},
		{"{max: 9}", "{min: 10, max: 9}", "f.yaml:4: budget.min: 10 is not between 1 and budget.max, which is 9"},
		{"trials: 3", "trials: 3\nstopping: true", "f.yaml:4: skip, stopping: knobs of asha, not of random"},
	} {
		if _, err := parse("f.yaml", "",
			[]byte(strings.Replace(searchOf("method: random\ntrials: 3\nbudget: {max: 9}"), c.old, c.new,
				1))); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.new, err, c.want)
		}
	}
	for _, text := range []string{"", "- a", "a: [", "parameters: 3", "job: 3\nmetric: a"} {
		if _, err := parse("f.yaml", "", []byte(text)); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

// A group has trials of one batch size; how many fit follows from its memory.
func TestSearchFileFusion(t *testing.T) {
	f, err := parse("f.yaml", "", []byte(goodSearch))
	if err != nil {
		t.Fatal(err)
	}
	if m := f.Method.Fusion; len(m) != 2 || m[0] != 7 || m[1] != 3 {
		t.Errorf("%v", m)
	}
	for trial := range 20 {
		if g := f.Method.Group(trial); f.Config(trial, 1)["batch"] != f.Params[1].Values[g] {
			t.Errorf("trial %d: group %d, %v", trial, g, f.Config(trial, 1))
		}
	}
	if c := f.Config(3, 8); c["hidden"] != int64(64) || f.Config(3, 1)["hidden"] != int64(512) {
		t.Errorf("%v", c)
	}
	if got := fill([]string{"--lr={lr}", "${lr}", "{print}", "{a}{b}"},
		map[string]string{"lr": "0.1", "a": "1", "b": "2"}); strings.Join(got, " ") != "--lr=0.1 ${lr} {print} 12" {
		t.Errorf("%q", got)
	}
	same, err := parse("g.yaml", "", []byte(strings.Replace(goodSearch, "at_once: 2", "at_once: 5", 1)))
	if err != nil || same.Spec != f.Spec {
		t.Errorf("%v: another search, since more run at once", err)
	}
	other, err := parse("g.yaml", "", []byte(strings.Replace(goodSearch, "[1e-4, 1]", "[1e-3, 1]", 1)))
	if err != nil || other.Spec == f.Spec {
		t.Errorf("%v: the same search, though other values are tried", err)
	}
}

// A command gets given values to the last digit; JSON has no dates. A scale of 0 is the plain tuner: neither
// narrower models nor fused groups.
func TestSearchFileValues(t *testing.T) {
	text := strings.Replace(
		searchOf("method: hydro\nscale: 0\nfusion: {memory: 9GiB, one: 1GiB, two: 2GiB}\nwidths: {hidden: 512}\ntrials: 1\nbudget: {max: 9}"), "{x: {uniform: [0, 1]}}",
		"{x: {uniform: [0.9999991, 0.9999994]}, a: {choice: [0.9999999]}, b: {choice: [2026-01-02]}, c: {choice: [null]}, d: {choice: [true]}, e: {choice: [12345678]}}", 1)
	f, err := parse("f.yaml", "", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	c := f.Config(0, 1)
	if got := ConfigText(c); !strings.HasPrefix(got,
		"a=0.9999999 b=2026-01-02 c=null d=true e=12345678 hidden=512 x=0.999999") {
		t.Error(got)
	}
	if x, _ := c["x"].(float64); x < 0.9999991 || x > 0.9999994 {
		t.Errorf("x is %v", x)
	}
	if json, err := json.Marshal(c); err != nil || !strings.Contains(string(json), `"b":"2026-01-02"`) {
		t.Errorf("%s, %v", json, err)
	}
	if f.Method.Scale != 1 || f.Method.Fusion != nil || f.Method.Group != nil {
		t.Errorf("%+v", f.Method)
	}
	bad := *f
	bad.Params = []search.Parameter{{Name: "x", High: math.Inf(1)}}
	if _, err := bad.fingerprint(); err == nil {
		t.Error("what cannot be written has a fingerprint")
	}
}

// FuzzSearchFile: no file makes the reader panic, and what it accepts can be planned.
func FuzzSearchFile(f *testing.F) {
	f.Add(goodSearch)
	f.Add("method: hyperband\nbudget: {max: 81}\nparameters: {a: {uniform: [0, 1]}}\nmetric: loss\njob: {command: [x]}\n")
	f.Add("method: asha\nstopping: true\ntrials: 3\nbudget: {min: 2, max: 5}\nparameters: {a: {grid: [1, x, true]}}\nmetric: m\ngoal: maximise\njob: {command: [\"{a}\"]}\n")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := parse("f.yaml", "", []byte(text))
		if err != nil || s.Method.Trials > 1000 || s.Method.Max > 1e6 {
			return
		}
		plan, err := search.New(s.Method)
		if err != nil {
			return
		}
		for _, b := range plan.Brackets() {
			for k, r := range b.Rungs {
				s.Processes(r.Trials, k)
			}
		}
		s.Shortfall()
	})
}

// A run's job continues from the last run that came to its budget; a full-size run, from where it was overtaken;
// a group, from wherever each of its trials was.
func TestSearchSubmissions(t *testing.T) {
	f, err := parse("f.yaml", "", []byte(goodSearch))
	if err != nil {
		t.Fatal(err)
	}
	s, err := search.New(f.Method)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Unix(1, 0)
	tn := &Tuner{f: f, s: s, spec: f.Spec, jobs: map[int]*api.Job{}, last: map[[2]int]int{},
		saved: map[int]int{2: 11, 3: 12}, full: map[int]int{}}
	group := tn.submission(&search.Decision{Trials: []int{2, 3}, Rung: 1, From: 1, Budget: 3, Marks: []int64{3}})
	if x := group.Trial.Fused; len(x) != 2 || x[0].From != 11 || x[1].From != 12 || x[1].Number != 3 ||
		group.CheckpointOf != 0 || group.Trial.Scale != 8 || group.Kind != "trial" {
		t.Errorf("%+v", group.Trial)
	}
	if lr := valueText(f.Config(2, 8)["lr"]); strings.Join(group.Command, " ") != "train "+lr+
		" --hidden=64 ${lr} {print}" {
		t.Errorf("%q", group.Command)
	}
	full := search.Decision{Trials: []int{3}, Rung: 2, Budget: 9, Marks: []int64{9}, Target: true}
	if x := tn.submission(&full); x.CheckpointOf != 0 || x.Trial.Scale != 1 || len(x.Trial.Fused) != 0 ||
		!strings.Contains(strings.Join(x.Command, " "), "--hidden=512") {
		t.Errorf("%+v", x)
	}
	job := &api.Job{ID: 20, State: api.StateCancelled, Started: &began, Submitted: began,
		Submission: api.Submission{Trial: &api.Trial{Number: 3, Rung: 2, Target: true, Marks: []int64{9}}}}
	if _, err := tn.hear([]*api.Job{job}); err != nil {
		t.Fatal(err)
	}
	if x := tn.submission(&full); x.CheckpointOf != 20 || tn.full[3] != 1 {
		t.Errorf("it was overtaken: %+v", x)
	}
}
