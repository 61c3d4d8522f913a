package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Checkpoints as often as loses least: where nodes fail every ten hours, long jobs are
// all done sooner than with checkpoints much more or much less often.
func TestCheckpointEvery(t *testing.T) {
	var jobs strings.Builder
	jobs.WriteString("submit_s,run_s,gpus\n")
	for i := range 40 {
		fmt.Fprintf(&jobs, "0,%d,4\n", 80000+1000*i)
	}
	file := filepath.Join(t.TempDir(), "jobs.csv")
	if err := os.WriteFile(file, []byte(jobs.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	all := func(every string) float64 {
		t.Helper()
		out := ok(t, "sim", "--trace", file, "--cluster", "4x4xT4", "--policies", "fifo", "--node-mtbf", "10h",
			"--checkpoint-cost", "2m", "--checkpoint-every", every, "--json", "-")
		var report struct {
			Runs []struct {
				Makespan float64 `json:"makespan"`
			} `json:"runs"`
		}
		if err := json.Unmarshal([]byte(out), &report); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return report.Runs[0].Makespan
	}
	best, often, seldom := all("auto"), all("6m"), all("6h")
	if best >= often || best >= seldom {
		t.Errorf("auto: %g, every 6 minutes: %g, every 6 hours: %g", best, often, seldom)
	}
	// Daly's interval for one node that fails every ten hours is 47m40s: 2/47.7 + 23.8/600.
	if _, said, err := muster(t, t.Context(), "sim", "--trace", file, "--cluster", "4x4xT4", "--policies", "fifo",
		"--node-mtbf", "10h", "--checkpoint-cost", "2m", "--checkpoint-every", "auto"); err != nil ||
		!strings.Contains(said,
			"checkpoints: 40 jobs write them as often as loses least; in the mean 8.2 % of their time") {
		t.Errorf("%v: %s", err, said)
	}
	// Preemptions count where they leave no time to save: a grace of two minutes does, but not if a
	// checkpoint takes three. Twice an hour is more than failures once in ten: 1/M = 0.1 + 2.
	said := func(flags ...string) string {
		t.Helper()
		_, said, err := muster(t, t.Context(),
			append([]string{"sim", "--trace", file, "--cluster", "4x4xT4", "--policies", "fifo", "--node-mtbf", "10h",
				"--checkpoint-every", "auto", "--until", "1h"}, flags...)...)
		if err != nil {
			t.Fatal(err)
		}
		return said
	}
	for _, c := range []struct{ flags, want string }{
		{"--checkpoint-cost 2m --preemption-every 30m", " 8.2 %"}, // Daly's interval is 47m40s as before
		{"--checkpoint-cost 2m --preemption-every 30m --preempt kill", " 37.7 %"},
		{"--checkpoint-cost 2m --checkpoint-max 10m", " 20.8 %"}, // 2/10 + 5/600
		{"--checkpoint-cost 2m --checkpoint-min 2h", " 11.7 %"},  // 2/120 + 60/600
	} {
		if text := said(strings.Fields(c.flags)...); !strings.Contains(text, "in the mean"+c.want) {
			t.Errorf("%s: %s", c.flags, text)
		}
	}
	for flags, want := range map[string]string{
		"--checkpoint-min 2h --checkpoint-max 1h":                       "at least 2h apart and at most 1h old",
		"--checkpoint-every 1h --checkpoint-min 2h":                     "for --checkpoint-every auto only",
		"--checkpoint-every auto --checkpoint-cost 1m":                  "--node-mtbf, --gpu-mtbf or --preemption-every",
		"--checkpoint-every auto --checkpoint-cost 1m --checkpoint-min": "flag needs an argument",
	} {
		if _, _, err := muster(t, t.Context(),
			append([]string{"sim", "--trace", file, "--cluster", "4x4xT4"}, strings.Fields(flags)...)...); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", flags, err, want)
		}
	}
	for _, flags := range []string{"--node-mtbf 10h", "--checkpoint-cost 2m"} {
		args := append([]string{"sim", "--trace", file, "--cluster", "4x4xT4", "--checkpoint-every", "auto"},
			strings.Fields(flags)...)
		if _, _, err := muster(t, t.Context(), args...); err == nil ||
			!strings.Contains(err.Error(),
				"needs --checkpoint-cost, and --node-mtbf, --gpu-mtbf or --preemption-every") {
			t.Errorf("%s: %v", flags, err)
		}
	}
}
