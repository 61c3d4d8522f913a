//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/client"
)

// A daemon's own history is what ran on it since its first start, over all
// segments, against the policy that it follows.
func TestTuneDaemon(t *testing.T) {
	t.Parallel()
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
	if r.Jobs != 4 || r.Rows[r.Current].Policy != "las" || r.Placer != "first-fit" || len(r.Rows) != 3 ||
		len(r.Notes) != 1 {
		t.Errorf("%d jobs, in force %s on %s, %d candidates, notes %v", r.Jobs, r.Rows[r.Current].Policy, r.Placer,
			len(r.Rows), r.Notes)
	}
}

// What was chosen is applied to a daemon only if it was weighed against what
// the daemon follows and is sure enough; then it counts there.
func TestTuneApply(t *testing.T) {
	t.Parallel()
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
	if out, code := demo("--current", "sjf-gpu"); code != exitFailed ||
		!strings.Contains(out, "the daemon follows fifo") || !strings.Contains(out, "--current fifo") {
		t.Errorf("weighed against another policy: exit code %d\n%s", code, out)
	}
	if out, code := demo("--current", "fifo", "--resamples", "0"); code != exitFailed ||
		!strings.Contains(out, "not applied") {
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

// Where the replay of the policy in force does not end there is nothing to compare the choice
// to: it is applied only if that is asked for.
func TestTuneApplyAnyway(t *testing.T) {
	t.Parallel()
	d := prepareDaemon(t, "2xH100-80GB")
	d.policy = "gandiva:pack=false,round=1s"
	d.start()
	trace := filepath.Join(d.dir, "three.csv")
	if err := os.WriteFile(trace, []byte("submit_s,run_s,gpus\n0,60,1\n1,60,1\n2,60,1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"tune", "--trace", trace, "--cluster", "1x1xT4", "--current", d.policy, "--place", "best-fit",
		"--policies", "fifo", "--apply"}
	out, code := d.try(args...)
	if code != exitFailed {
		t.Fatalf("exit code %d\n%s", code, out)
	}
	d.want(out, "choose fifo", "there is nothing to compare to", "not applied: there is nothing to compare fifo to",
		"3 jobs had not ended", "--force")
	d.want(d.must("policy", "show"), "gandiva")
	d.want(d.must(append(args, "--force")...), "applied: gandiva:pack=false,round=1s", "-> fifo")
	d.want(d.must("policy", "show"), "fifo, place best-fit")
}

// A policy that is set with a guard has the one before as a shadow: what was submitted
// since is replayed under both, and if the one before would have served it better, it
// comes back; when the time is over and it would not, the guard ends.
func TestGuard(t *testing.T) {
	t.Parallel()
	d := prepareDaemon(t, "1xH100-80GB")
	d.policy = "sjf"
	d.start()
	work := func(name string) { // the first job runs until all others have been submitted
		t.Helper()
		all := filepath.Join(d.dir, name)
		d.must("submit", "--gpus", "1", "--estimate", "1h", "--", "sh", "-c",
			"while [ ! -e "+all+" ]; do sleep 0.2; done")
		d.must("submit", "--gpus", "1", "--estimate", "1h", "--", "sleep", "4")
		short := &api.Submission{Dir: d.dir, Output: "/dev/null", GPUs: 1, Estimate: api.Duration(time.Minute),
			Command: []string{"sleep", "0.05"}}
		for range 24 {
			if _, err := client.Unix(d.socket).Submit(t.Context(), short, ""); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(all, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d.must("policy", "set", "fifo", "--guard", "1h", "--guard-every", "1s")
	d.want(d.must("policy", "show"), "fifo, place best-fit", "guarded until",
		"if sjf, place best-fit would have been better by 5 % of mean-jct, it comes back")
	d.untilSays("0 jobs have been submitted and ended since; it is judged from 20 on", "policy", "show")
	work("all1")
	d.untilSays("the guard (mean-jct over ", "policy", "show")
	out := d.must("policy", "show")
	d.want(out, "less under sjf than under fifo): fifo (place best-fit, backfill of its own) -> sjf")
	if !strings.HasPrefix(out, "sjf, place best-fit") || strings.Contains(out, "guarded until") {
		t.Errorf("it should be back:\n%s", out)
	}
	d.eventually("all have ended", func() bool { return !strings.Contains(d.must("queue"), "root") })
	d.must("policy", "set", "fifo")
	d.must("policy", "set", "sjf", "--guard", "40s", "--guard-every", "1s", "--guard-jobs", "10")
	work("all2")
	d.untilSays("more under fifo than under sjf", "policy", "show")
	d.untilSays("the guard ends: mean-jct over ", "policy", "show")
	if out := d.must("policy", "show"); !strings.HasPrefix(out, "sjf") || strings.Contains(out, "guarded until") {
		t.Errorf("it should stay, and the guard be over:\n%s", out)
	}
}
