package main

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-gpu/muster/policy"
	"github.com/muster-gpu/muster/tune"
)

func tunes(t *testing.T, args ...string) tuned {
	t.Helper()
	var r tuned
	if err := json.Unmarshal([]byte(ok(t, append([]string{"tune", "--json"}, args...)...)), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestTuneDemo: the choice on the demo is the least of all, its figures are
// those of muster sim, everything is said, and said twice the same.
func TestTuneDemo(t *testing.T) {
	t.Parallel()
	args := []string{"--demo", "--policies", "fifo+skip,las,las:base=5m,tiresias-l,fifo", "--current", "fifo",
		"--holdout"}
	r := tunes(t, args...)
	if len(r.Rows) != 5 || r.Rows[r.Current].Policy != "fifo" || *r.Rows[r.Current].Gain != 0 {
		t.Fatalf("%+v", r.Result)
	}
	for _, x := range r.Rows {
		if *x.Cost < *r.Rows[r.Winner].Cost {
			t.Errorf("%s is better than the winner", x.Policy)
		}
	}
	if win := r.Rows[r.Winner]; *win.Gain <= 0.5 || *win.Better < 0.99 || *win.Low > *win.Gain ||
		*win.High < *win.Gain {
		t.Errorf("the demo's fifo blocks the line for days, yet: %+v", win)
	}
	if len(r.Changes) < 5 || len(r.Holdout) != 2 || r.Holdout[0].Behind < 0 || r.Blocks < 7 {
		t.Errorf("changes %v, holdout %+v, %d blocks", r.Changes, r.Holdout, r.Blocks)
	}
	var s struct {
		Runs []struct {
			Policy string
			JCT    struct{ Mean float64 }
		}
	}
	out := ok(t, "sim", "--demo", "--policies", "fifo,las", "--estimates", "stated", "--checkpoint-cost", "30s",
		"--restart-cost", "1m", "--json", "-")
	if err := json.Unmarshal([]byte(out), &s); err != nil || len(s.Runs) != 2 {
		t.Fatalf("%v: %s", err, out)
	}
	for _, want := range s.Runs {
		for _, x := range r.Rows {
			if x.Policy == want.Policy && math.Abs(*x.MeanJCT-want.JCT.Mean) > 1e-6*want.JCT.Mean {
				t.Errorf("%s: mean JCT %v, muster sim says %v", x.Policy, *x.MeanJCT, want.JCT.Mean)
			}
		}
	}
	text := append([]string{"tune"}, args...)
	a, b := ok(t, text...), ok(t, text...)
	if a != b {
		t.Errorf("two runs say different things:\n%s\n%s", a, b)
	}
	for _, part := range []string{"fifo (in force)", "choose ", "resamples of", "what it would have changed",
		"holdout: tuned on the odd days", "assumed:"} {
		if !strings.Contains(a, part) {
			t.Errorf("%q is not in:\n%s", part, a)
		}
	}
}

// TestTuneBadInput: the mistake is named, with what would be right.
func TestTuneBadInput(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "short.jsonl")
	ok(t, "trace", "synth", "preset=philly-like,jobs=3,gpus=8,load=0.5,seed=7", empty)
	for _, x := range []struct{ args, want string }{
		{"", "--trace FILE, --from-journal FILE"}, // no daemon is there
		{"--demo --from-journal x", "--from-journal excludes"},
		{"--from-journal " + empty, "journal"},
		{"--demo --objective mean", "mean-jct"},
		{"--demo --objective weighted:mean-jct=x", "want a number above 0"},
		{"--demo --current fifoo", "fifo"},
		{"--demo --current fifo+eazy", "easy"},
		{"--demo --policies las:bass=1h", "base"},
		{"--demo --resamples -1", "0 (no bootstrap)"},
		{"--demo --block 5m", "an hour at least"},
		{"--demo --block soon", "--block"},
		{"--demo --place nowhere --policies fifo", "placer"},
		{"--trace " + empty + " --load 0.5 --objective deadlines", "no job"},
	} {
		_, errw, err := muster(t, context.Background(), append([]string{"tune"}, strings.Fields(x.args)...)...)
		if err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("muster tune %s: %v %s; want an error that says %q", x.args, err, errw, x.want)
		}
	}
	if _, err := os.Stat(empty); err != nil {
		t.Error(err)
	}
}

// TestTuneJournal: what ran under fifo, read back from its journal, runs the
// same under fifo, and fifo is known as the policy in force.
func TestTuneJournal(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "j.journal")
	world := []string{"--estimates", "stated", "--checkpoint-cost", "30s", "--restart-cost", "1m"}
	out := ok(t, append([]string{"sim", "--demo", "--policies", "fifo", "--backfill", "skip", "--place", "first-fit",
		"--journal", file, "--json", "-"}, world...)...)
	var s struct {
		Runs []struct {
			Completed, Failed, Cancelled int
			JCT                          struct{ Mean float64 }
		}
	}
	if err := json.Unmarshal([]byte(out), &s); err != nil || len(s.Runs) != 1 {
		t.Fatalf("%v: %s", err, out)
	}
	r := tunes(t, "--from-journal", file, "--policies", "las")
	force, was := r.Rows[r.Current], s.Runs[0]
	if force.Policy != "fifo+skip" || r.Placer != "first-fit" || r.Jobs != was.Completed+was.Failed+was.Cancelled {
		t.Errorf("in force %s on %s, %d jobs of %+v", force.Policy, r.Placer, r.Jobs, was)
	}
	if math.Abs(*force.MeanJCT-was.JCT.Mean) > 1e-6*was.JCT.Mean {
		t.Errorf("mean JCT %v, it was %v", *force.MeanJCT, was.JCT.Mean)
	}
	if r = tunes(t, "--from-journal", file, "--policies", "las", "--current", "drf", "--cluster",
		"8x8"); r.Rows[r.Current].Policy != "drf" || r.Cluster != "8x8" {
		t.Errorf("in force %s, cluster %s", r.Rows[r.Current].Policy, r.Cluster)
	}
}

// TestTuneEnds: a replay in which a job never ends, because it starts again at each
// failure, is cut; where all are, nothing can be chosen.
func TestTuneEnds(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "jobs.jsonl")
	ok(t, "trace", "synth", "preset=philly-like,jobs=8,gpus=8,load=0.5,seed=7", file)
	_, _, err := muster(t, context.Background(), "tune", "--trace", file, "--cluster", "1x8xT4", "--policies",
		"fifo,las", "--node-mtbf", "1m", "--repair", "1s")
	if err == nil || !strings.Contains(err.Error(), "no replay ended: multifactor: ") ||
		!strings.Contains(err.Error(), "had not ended after") {
		t.Errorf("nothing is said of jobs that do not end: %v", err)
	}
}

// TestTuneList: every candidate is a policy that there is, written as the
// policy writes itself; and every policy is a candidate or is said to be left out.
func TestTuneList(t *testing.T) {
	try, left := tune.Candidates(tune.Facts{})
	all := ""
	for _, c := range try {
		as := c
		if err := as.Check(); err != nil || as != c {
			t.Errorf("%s: %v, written %s", c, err, as)
		}
		all += " " + c.Policy
	}
	for _, l := range left {
		c := tune.Parse(l.Policy)
		if err := c.Check(); err != nil {
			t.Errorf("%s: %v", l.Policy, err)
		}
		all += " " + c.Policy
	}
	for _, name := range policy.Names() {
		if !strings.Contains(all+" ", " "+name+" ") {
			t.Errorf("%s is neither tried nor left out", name)
		}
	}
}

// TestTuneAgainstTheDaemon: without --current the measure is what a daemon runs by default, as it runs it,
// and how choosing did on days that it did not know is said without being asked.
func TestTuneAgainstTheDaemon(t *testing.T) {
	t.Parallel()
	args := []string{"--demo", "--policies", "fifo,fifo+easy,las,tiresias-l"}
	r := tunes(t, args...)
	force := r.Rows[r.Current]
	if force.Policy != daemonPolicy || force.Backfill != "easy" {
		t.Errorf("measured against %s with backfill %s", force.Policy, force.Backfill)
	}
	l := r.LeftOut
	if l == nil || l.Blocks != r.Blocks || l.Better+l.Worse > l.Blocks || l.Better == 0 || l.Behind < 0 ||
		len(r.Holdout) != 0 {
		t.Fatalf("%+v", l)
	}
	out, notes, err := muster(t, context.Background(), append([]string{"tune"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	out += notes
	for _, part := range []string{"gains are over multifactor, which muster serve runs by default",
		"held back: each of the 10 days in turn, under what the others choose: ",
		"than multifactor over them all, better in ", "in hindsight the best one for all"} {
		if !strings.Contains(out, part) {
			t.Errorf("%q is missing in\n%s", part, out)
		}
	}
	if out = ok(t, append([]string{"tune", "--block", "52w"}, args...)...); !strings.Contains(out,
		"held back: nothing could be") {
		t.Errorf("one block, of which nothing can be held back:\n%s", out)
	}
}

// TestSimAlike: what muster sim compares by itself has one backfill; where backfills differ that is said.
func TestSimAlike(t *testing.T) {
	t.Parallel()
	const warning = "not alike: where there is no backfill nothing passes a blocked job"
	if out := ok(t, "sim", "--demo"); !strings.Contains(out, "backfill: easy\n") ||
		!strings.Contains(out, daemonPolicy) || strings.Contains(out, "not alike") {
		t.Errorf("%s", out)
	}
	if out := ok(t, "sim", "--demo", "--policies", "fifo,las"); !strings.Contains(out, warning) {
		t.Errorf("fifo without backfill, las with it, and no word:\n%s", out)
	}
	if out := ok(t, "sim", "--demo", "--policies", "fifo+skip,las"); !strings.Contains(out, "backfill: skip\n") ||
		strings.Contains(out, "not alike") {
		t.Errorf("%s", out)
	}
	for args, want := range map[string]string{"--policies fifo+easy --backfill skip": "one of them",
		"--policies fifo+eazy": "easy"} {
		_, _, err := muster(t, context.Background(), append([]string{"sim", "--demo"}, strings.Fields(args)...)...)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", args, err)
		}
	}
}
