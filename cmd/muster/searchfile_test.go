package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/muster-gpu/muster/search/play"
)

func searchOf(method string) string {
	return "name: good\n" + method +
		"\nparameters: {x: {uniform: [0, 1]}}\nmetric: loss\nat_once: 9\njob: {command: [train, \"{x}\"]}\n"
}

// The plan says brackets, rungs, budgets and groups; the methods are listed.
func TestSearchPlan(t *testing.T) {
	file := filepath.Join(t.TempDir(), "band.yaml")
	text := "method: hyperband\nbudget: {max: 81}\nparameters: {a: {uniform: [0, 1]}}\nmetric: loss\njob: {command: [x]}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out := ok(t, "search", "plan", file)
	for _, want := range []string{"band: hyperband, 143 trials", "0        0     81      1        81",
		"1        0     34      3        102", "4        0     5       81       405", "trial 4: a="} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
	if out = ok(t, "search", "plan", "../../search/tuner/testdata/good.yaml"); !strings.Contains(out,
		"1/8 of the width") || !strings.Contains(out, "; ") {
		t.Errorf("%s", out)
	}
	few := searchOf("method: asha\ntrials: 64\nbudget: {min: 1, max: 81}")
	if err := os.WriteFile(file, []byte(few), 0o600); err != nil {
		t.Fatal(err)
	}
	if out = ok(t, "search", "plan", file); !strings.Contains(out,
		"no trial is promoted beyond step 27, though budget.max is 81: 64 trials are too few") {
		t.Errorf("%s", out)
	}
	for _, name := range []string{"random", "successive-halving", "hyperband", "asha", "hydro"} {
		if out = ok(t, "search", "methods"); !strings.Contains(out, name) {
			t.Errorf("%s is missing in\n%s", name, out)
		}
	}
}

// A search in the simulator: all methods in one table, beside a workload or alone;
// the same twice, on one core too.
func TestSimSearch(t *testing.T) {
	type table struct{ Searches []play.Row }
	playAll := func(args ...string) (rows []play.Row) {
		t.Helper()
		var v table
		if err := json.Unmarshal(
			[]byte(ok(t, append([]string{"sim", "--search", "../../examples/search/simulated.yaml", "--json", "-"},
				args...)...)), &v); err != nil {
			t.Fatal(err)
		}
		return v.Searches
	}
	args := []string{"--cluster", "4x8xA100-80GB", "--policies", "fifo,las", "--methods",
		"random,successive-halving,hyperband,asha,asha:stopping,hydro,hydro:fused,hydro:narrow"}
	rows := playAll(args...)
	if len(rows) != 16 {
		t.Fatalf("%d rows", len(rows))
	}
	by := map[string]play.Row{}
	for _, r := range rows[:8] {
		by[r.Method] = r
		if r.Partial || r.Loss < r.Optimum || r.GPUHours <= 0 || r.Makespan <= 0 || r.Hash == "" {
			t.Errorf("%+v", r)
		}
	}
	if r, h := by["random"], by["successive-halving"]; r.Steps != 256*81 || h.Steps != 918 ||
		h.GPUHours*10 > r.GPUHours {
		t.Errorf("random %+v, halving %+v", r, h)
	}
	if f, h := by["hydro:scale=1"], by["successive-halving"]; f.Steps != h.Steps || f.GPUHours*2 > h.GPUHours {
		t.Errorf("fused %+v, halving %+v", f, h)
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	again := playAll(args...)
	for i := range rows {
		if rows[i] != again[i] {
			t.Errorf("%+v, again %+v", rows[i], again[i])
		}
	}
	beside := playAll("--demo", "--limit", "50", "--methods", "asha", "--at-once", "2,8", "--policies", "fifo")
	if len(beside) != 2 || beside[0].Others <= 0 || beside[1].Makespan >= beside[0].Makespan {
		t.Errorf("%+v", beside)
	}
	big := filepath.Join(t.TempDir(), "big.yaml")
	if err := os.WriteFile(big,
		[]byte(strings.Replace(searchOf("method: random\ntrials: 2\nbudget: {max: 9}"), "job: {", "job: {gpus: 16, ",
			1)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ args, want string }{
		{"sim --search ../../examples/search/simulated.yaml", "say on which --cluster"},
		{"sim --demo --methods asha", "need --search"},
		{"sim --search ../../examples/search/simulated.yaml --cluster 1x1xT4 --methods ashe", `did you mean "asha"?`},
		{"sim --search ../../examples/search/asha.yaml --cluster 1x1xT4 --methods hydro",
			"says nothing of scale and fusion"},
		{"sim --search ../../examples/search/asha.yaml --cluster 1x1xT4 --at-once none", "--at-once none"},
		{"sim --search none.yaml --cluster 1x1xT4", "none.yaml"},
		{"sim --search ../../examples/search/asha.yaml --cluster 1x1xT4 --csv x.csv", "--csv, --html"},
		{"sim --search " + big + " --cluster 1x1xT4",
			"no trial ran to a report: the cluster cannot run what the job of " + big + " asks for"},
	} {
		_, _, err := muster(t, t.Context(), strings.Fields(c.args)...)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("muster %s: %v, want ... %s", c.args, err, c.want)
		}
	}
}
