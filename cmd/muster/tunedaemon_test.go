//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/muster-gpu/muster/api"
)

// A daemon's own history is what ran on it since its first start, over all
// segments, against the policy that it follows.
func TestTuneDaemon(t *testing.T) {
	d := startDaemon(t, "2xH100-80GB")
	for range 3 {
		d.must("run", "--gpus", "1", "--", "true")
	}
	d.must("policy", "set", "las", "--place", "first-fit") // begins a segment
	d.must("run", "--gpus", "2", "--", "true")
	d.must("submit", "--gpus", "1", "--", "sleep", "1000")
	d.untilSays("running", "queue")
	var r tuned
	out := d.must("tune", "--json", "--policies", "fifo,tiresias-l")
	out = out[max(0, strings.Index(out, "{\n")):] // what is said to people comes before
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if r.Jobs != 4 || r.Rows[r.Current].Policy != "las" || r.Placer != "first-fit" || len(r.Rows) != 3 || len(r.Notes) != 1 {
		t.Errorf("%d jobs, in force %s on %s, %d candidates, notes %v", r.Jobs, r.Rows[r.Current].Policy, r.Placer, len(r.Rows), r.Notes)
	}
}

// What was chosen is applied to a daemon only if it was weighed against what
// the daemon follows and is sure enough; then it counts there.
func TestTuneApply(t *testing.T) {
	d := prepareDaemon(t, "2xH100-80GB")
	d.policy = "fifo"
	d.start()
	follows := func() string {
		t.Helper()
		var p api.Policy
		if err := json.Unmarshal([]byte(d.must("policy", "show", "--json")), &p); err != nil {
			t.Fatal(err)
		}
		return p.Text()
	}
	before := follows()
	demo := func(args ...string) (string, int) {
		return d.try(append([]string{"tune", "--demo", "--apply", "--policies", "fifo,las"}, args...)...)
	}
	if out, code := demo("--current", "sjf-gpu"); code != exitFailed || !strings.Contains(out, "the daemon follows fifo") || !strings.Contains(out, "--current fifo") {
		t.Errorf("weighed against another policy: exit code %d\n%s", code, out)
	}
	if out, code := demo("--current", "fifo", "--resamples", "0"); code != exitFailed || !strings.Contains(out, "not applied") {
		t.Errorf("nothing is sure without resamples: exit code %d\n%s", code, out)
	}
	if now := follows(); now != before {
		t.Fatalf("%s, though nothing was applied", now)
	}
	place := strings.Fields(strings.SplitAfter(before, "place ")[1])[0]
	out, code := demo("--current", "fifo", "--place", strings.TrimSuffix(place, ","))
	if code != exitOK {
		t.Fatalf("exit code %d\n%s", code, out)
	}
	d.want(out, "what it does to the daemon's jobs", "no job would be preempted", "applied: fifo", "-> las")
	if now := follows(); now == before || !strings.HasPrefix(now, "las, place "+strings.TrimSuffix(place, ",")) {
		t.Errorf("the daemon follows %s after %s", now, fmt.Sprint(before))
	}
}
