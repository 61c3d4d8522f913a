//go:build linux

package main

import (
	"encoding/json"
	"strings"
	"testing"
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
