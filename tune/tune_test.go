package tune

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/report"
	"github.com/muster-gpu/muster/trace"
)

const week = 7 * day

// history is a run in which job i is submitted at at[i] and waits for wait[i] before it runs for an
// hour on one GPU; a negative wait: it never starts.
func history(at, wait []time.Duration) report.Run {
	r := report.Run{Backfill: "none", Capacity: 8 * cluster.Whole, Queues: []string{"default"}}
	for i := range at {
		sub := cluster.Time(at[i])
		j := &cluster.Job{ID: cluster.JobID(i), User: fmt.Sprintf("u%d", i%2), Submit: sub,
			Tasks: []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: 1}}}}
		rec := report.Record{Submit: sub, FirstStart: sub.Add(wait[i]), Waited: wait[i],
			End: sub.Add(wait[i] + time.Hour), Outcome: report.Completed}
		if wait[i] < 0 {
			rec = report.Record{Submit: sub, FirstStart: cluster.Never, End: cluster.Never, Outcome: report.Unfinished}
		}
		r.Jobs, r.Records = append(r.Jobs, j), append(r.Records, rec)
		r.Ideal, r.Active = append(r.Ideal, time.Hour), append(r.Active, 1)
	}
	return r
}

func objective(t *testing.T, text string) Objective {
	t.Helper()
	o, err := ParseObjective(text)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestObjectives(t *testing.T) {
	for text, want := range map[string]string{
		"mean-jtc":                        "mean-jct",
		"weighted:":                       "NAME=WEIGHT",
		"weighted:mean-jct":               "NAME=WEIGHT",
		"weighted:mean-jct=0":             "above 0",
		"weighted:mean-jct=NaN":           "above 0",
		"weighted:mean-jct=1,mean-jct=2":  "twice",
		"weighted:mean-jct=1,p96-wait=1":  "p95-wait",
		"weighted:mean-jct=1,p95-wait=-1": "p95-wait",
	} {
		if _, err := ParseObjective(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want an error that says %q", text, err, want)
		}
	}
	o := objective(t, "weighted:mean-jct=3,p95-wait=1")
	force := figures{MeanJCT: 100, P95Wait: 0.5}
	// JCT is halved; a wait of 3 s is compared with the floor of 1 s.
	if c := o.cost(&figures{MeanJCT: 50, P95Wait: 3}, &force); c != 0.75*0.5+0.25*3 {
		t.Errorf("cost %v", c)
	}
	if c := o.cost(&force, &force); c != 1 {
		t.Errorf("the current policy costs %v, not 1", c)
	}
	single := objective(t, "fairness")
	if c := single.cost(&figures{Fairness: 2.5}, &force); c != 2.5 {
		t.Errorf("a single metric is its own cost: %v", c)
	}
}

// The percentile over chosen blocks equals that of the values written out and sorted.
func TestPercentileTwin(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 300 {
		s := sample{blocks: make([][]float64, 1+rng.IntN(5))}
		times := make([]int, len(s.blocks))
		for k := range s.blocks {
			for range rng.IntN(30) {
				s.blocks[k] = append(s.blocks[k], float64(rng.IntN(20)))
			}
			times[k] = rng.IntN(3)
		}
		s.finish()
		var all []float64
		for k, b := range s.blocks {
			for range times[k] {
				all = append(all, b...)
			}
		}
		got := s.p95(times)
		if len(all) == 0 {
			if !math.IsNaN(got) {
				t.Fatalf("round %d: %v of nothing", round, got)
			}
			continue
		}
		sort.Float64s(all)
		if want := all[int(math.Ceil(0.95*float64(len(all))))-1]; got != want {
			t.Fatalf("round %d: %v, want %v of %v", round, got, want, all)
		}
	}
}

func TestDivide(t *testing.T) {
	jobs := func(days ...int) (list []*cluster.Job) {
		for _, d := range days {
			list = append(list, &cluster.Job{Submit: cluster.Time(time.Duration(d) * day)})
		}
		return list
	}
	for _, x := range []struct {
		days   []int
		length time.Duration
		want   time.Duration
		n      int
		of     string
	}{
		{[]int{3, 9, 10, 24, 40}, 0, week, 4, "[0 0 1 2 3]"}, // empty weeks in between are no blocks
		{[]int{0, 1, 1, 2, 5}, 0, day, 4, "[0 1 1 2 3]"},
		{[]int{0, 1, 2}, 0, 0, 1, "[0 0 0]"},
		{[]int{0, 1, 2}, 2 * day, 2 * day, 2, "[0 0 1]"},
	} {
		b := Divide(jobs(x.days...), x.length)
		if b.Length != x.want || b.N != x.n || fmt.Sprint(b.of) != x.of {
			t.Errorf("%v: %v %d %v", x.days, b.Length, b.N, b.of)
		}
	}
}

// twoWeeks are two runs of two weeks with a job each: the second run is two hours better in the
// first week and one hour worse in the second.
func twoWeeks() []report.Run {
	at := []time.Duration{0, week}
	return []report.Run{history(at, []time.Duration{3 * time.Hour, time.Hour}),
		history(at, []time.Duration{time.Hour, 2 * time.Hour})}
}

// With two blocks the bootstrap is known: half of all draws have both blocks, a quarter each has
// one of them twice. The second run is better unless the second week is drawn twice.
func TestBootstrapKnown(t *testing.T) {
	opt := Options{Objective: objective(t, "mean-jct"), Block: week, Resamples: 4000, Seed: 7}
	r, err := Choose([]string{"a", "b"}, twoWeeks(), 0, opt)
	if err != nil {
		t.Fatal(err)
	}
	win := &r.Rows[r.Winner]
	if win.Policy != "b" || r.Rows[r.Current].Policy != "a" || r.Blocks != 2 {
		t.Fatalf("winner %s, in force %s, %d blocks", win.Policy, r.Rows[r.Current].Policy, r.Blocks)
	}
	if *win.MeanJCT != 2.5*3600 || *r.Rows[r.Current].MeanJCT != 3*3600 {
		t.Errorf("mean JCT %v and %v", *win.MeanJCT, *r.Rows[r.Current].MeanJCT)
	}
	if math.Abs(*win.Best-0.75) > 0.03 || *win.Best != *win.Better || math.Abs(*r.Rows[r.Current].Best-0.25) > 0.03 {
		t.Errorf("best in %v, better in %v, in force best in %v; want about 3/4, 3/4, 1/4", *win.Best, *win.Better,
			*r.Rows[r.Current].Best)
	}
	// Gains: 1 - 2/4 with the first week alone, 1 - 3/2 with the second alone.
	if *win.Low != -0.5 || *win.High != 0.5 {
		t.Errorf("interval %v .. %v, want -0.5 .. 0.5", *win.Low, *win.High)
	}
	again, _ := Choose([]string{"a", "b"}, twoWeeks(), 0, opt)
	if *again.Rows[0].Best != *r.Rows[0].Best {
		t.Error("the same seed gives another share")
	}
	opt.Seed = 8
	other, _ := Choose([]string{"a", "b"}, twoWeeks(), 0, opt)
	if *other.Rows[0].Best == *r.Rows[0].Best {
		t.Error("another seed gives the same share to the last digit")
	}
}

// A candidate that is better by the same factor in each block has that gain with certainty.
func TestBootstrapSure(t *testing.T) {
	at := []time.Duration{0, week, 2 * week, 3 * week}
	a := history(at, []time.Duration{3 * time.Hour, 3 * time.Hour, 3 * time.Hour, 3 * time.Hour})
	b := history(at, []time.Duration{time.Hour, time.Hour, time.Hour, time.Hour})
	for _, name := range []string{"mean-jct", "p95-wait", "fairness", "weighted:mean-jct=1,fairness=1"} {
		r, err := Choose([]string{"a", "b"}, []report.Run{a, b}, 0,
			Options{Objective: objective(t, name), Resamples: 100, Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		win := r.Rows[r.Winner]
		want := 0.5
		if name == "p95-wait" {
			want = 1 - 1.0/3
		}
		if win.Policy != "b" || *win.Best != 1 || math.Abs(*win.Low-want) > 1e-12 || math.Abs(*win.High-want) > 1e-12 ||
			r.Block != week {
			t.Errorf("%s: %s best in %v, %v .. %v", name, win.Policy, *win.Best, *win.Low, *win.High)
		}
	}
}

// Ties keep the current policy; a candidate that leaves jobs unfinished is not comparable, however
// short its mean.
func TestTiesAndUnfinished(t *testing.T) {
	at := []time.Duration{0, week}
	same := []time.Duration{time.Hour, time.Hour}
	runs := []report.Run{history(at, same), history(at, same), history(at, []time.Duration{0, -1})}
	r, err := Choose([]string{"a", "b", "drops"}, runs, 1,
		Options{Objective: objective(t, "mean-jct"), Block: week, Resamples: 50})
	if err != nil {
		t.Fatal(err)
	}
	if r.Rows[r.Winner].Policy != "b" || r.Winner != r.Current {
		t.Errorf("a tie goes to %s, not to the current policy", r.Rows[r.Winner].Policy)
	}
	last := r.Rows[2]
	if last.Policy != "drops" || !strings.Contains(last.Out, "1 jobs") || last.Best != nil || last.Unended != 1 {
		t.Errorf("%+v", last)
	}
	if _, err := Choose([]string{"a"}, runs[:1], 0, Options{Objective: objective(t, "deadlines")}); err == nil ||
		!strings.Contains(err.Error(), "nothing to judge by") {
		t.Errorf("deadlines of a history without any: %v", err)
	}
	if _, err := Choose([]string{"a"}, runs[:1], 0,
		Options{Objective: objective(t, "mean-jct"), Holdout: true}); err == nil ||
		!strings.Contains(err.Error(), "--holdout") {
		t.Errorf("holdout of one block: %v", err)
	}
}

// A candidate whose replay was cut cannot be chosen, with a reason.
func TestCut(t *testing.T) {
	entries := []trace.Entry{{Run: 2 * time.Hour, Job: cluster.Job{Submit: cluster.Time(time.Hour)}},
		{Run: 3 * time.Hour}}
	if h := Horizon(entries); h != cluster.Time(51*time.Hour+day) {
		t.Errorf("followed until %v, want ten times 5 h after the first hour, and a day", h)
	}
	entries[0].Run = cluster.MaxDuration
	if h := Horizon(entries); h < cluster.Time(cluster.MaxDuration) || h > cluster.Never/2 {
		t.Errorf("followed until %v", h)
	}
	at, wait := []time.Duration{0, week}, []time.Duration{time.Hour, time.Hour}
	runs := []report.Run{history(at, wait), history(at, []time.Duration{0, -1})}
	opt := Options{Objective: objective(t, "mean-jct"), Block: week, Horizon: cluster.Time(4 * week)}
	for _, last := range []time.Duration{3 * week, 4 * week} { // before: it is over, with an unfinished job
		runs[1].Last = cluster.Time(last)
		r, err := Choose([]string{"a", "turns"}, runs, 0, opt)
		if err != nil {
			t.Fatal(err)
		}
		if cut := strings.Contains(r.Rows[1].Out, "1 jobs had not ended after 28d"); r.Winner != 0 ||
			cut != (last == 4*week) {
			t.Errorf("last at %v: %+v", last, r.Rows)
		}
	}
}

// If the replay of the current policy was cut, it is no reference: the best other candidate is
// chosen, there are no gains, and the reason is given. It is an error if all were cut.
func TestCutInForce(t *testing.T) {
	at := []time.Duration{0, week, 2 * week, 3 * week}
	h := time.Hour
	runs := []report.Run{history(at, []time.Duration{0, 0, 0, -1}),
		history(at, []time.Duration{3 * h, 3 * h, 3 * h, 3 * h}), history(at, []time.Duration{h, h, h, h}),
		history(at, []time.Duration{0, 0, -1, 0})}
	opt := Options{Objective: objective(t, "mean-jct"), Block: week, Horizon: cluster.Time(9 * week), Resamples: 100}
	for i := range runs {
		runs[i].Last = cluster.Time(8 * week)
	}
	runs[0].Last = opt.Horizon
	for _, text := range []string{"mean-jct", "weighted:mean-jct=1,p95-wait=1"} {
		opt.Objective = objective(t, text)
		r, err := Choose([]string{"force", "slow", "quick", "loses"}, runs, 0, opt)
		if err != nil {
			t.Fatal(err)
		}
		if win := r.Rows[r.Winner]; win.Policy != "quick" || !strings.Contains(r.Alone, "1 jobs had not ended") ||
			r.Alone != r.Rows[r.Current].Out || len(r.Changes) > 0 || win.Best == nil || *win.Best != 1 {
			t.Errorf("%s: %+v", text, r)
		}
		for _, row := range r.Rows {
			if row.Gain != nil || row.Better != nil || row.Low != nil {
				t.Errorf("%s: %+v is compared with what was cut", text, row)
			}
			if row.Policy == "loses" && !strings.Contains(row.Out, "1 jobs that end under slow do not") {
				t.Errorf("%s: %+v", text, row)
			}
		}
	}
	runs[1], runs[2], runs[3] = runs[0], runs[0], runs[0]
	if _, err := Choose([]string{"force", "b", "c", "d"}, runs, 0, opt); err == nil ||
		!strings.Contains(err.Error(), "no replay ended: force") {
		t.Errorf("all were cut: %v", err)
	}
}

// A rejected or late job misses its deadline, a job that ends exactly then does not.
func TestDeadlinesMissed(t *testing.T) {
	at := []time.Duration{0, 0, 0, 0}
	r := history(at, []time.Duration{0, time.Second, -1, 0})
	for i := range r.Jobs[:3] {
		r.Jobs[i].Deadline = cluster.Time(time.Hour)
	}
	res, err := Choose([]string{"a"}, []report.Run{r}, 0, Options{Objective: objective(t, "deadlines")})
	if err != nil {
		t.Fatal(err)
	}
	if got := *res.Rows[0].Missed; math.Abs(got-2.0/3) > 1e-12 {
		t.Errorf("missed %v, want 2/3", got)
	}
}

func TestHoldout(t *testing.T) {
	at := []time.Duration{0, week, 2 * week, 3 * week}
	h := time.Hour
	runs := []report.Run{
		history(at, []time.Duration{9 * h, 9 * h, 9 * h, 9 * h}),
		history(at, []time.Duration{0, 3 * h, 0, 3 * h}), // best in odd weeks: the first and the third
		history(at, []time.Duration{3 * h, h, 3 * h, h}), // best in even weeks
	}
	r, err := Choose([]string{"force", "odd", "even"}, runs, 0,
		Options{Objective: objective(t, "mean-jct"), Holdout: true})
	if err != nil {
		t.Fatal(err)
	}
	odd := Holdout{Tuned: "odd", Chosen: "odd", Cost: 4 * 3600, Current: 10 * 3600, Best: "even", Least: 2 * 3600,
		Behind: 1}
	even := Holdout{Tuned: "even", Chosen: "even", Cost: 4 * 3600, Current: 10 * 3600, Best: "odd", Least: 3600,
		Behind: 3}
	if len(r.Holdout) != 2 || r.Holdout[0] != odd || r.Holdout[1] != even {
		t.Errorf("%+v", r.Holdout)
	}
}

func TestChanges(t *testing.T) {
	at := []time.Duration{0, 0, 0, 0}
	h := time.Hour
	runs := []report.Run{history(at, []time.Duration{4 * h, h, 2 * h, 3 * h}),
		history(at, []time.Duration{h, 2 * h, h, -1})}
	_, list := changes(&runs[0], score(&runs[0], &Blocks{N: 1, of: make([]int32, 4)}),
		score(&runs[1], &Blocks{N: 1, of: make([]int32, 4)}))
	want := []Change{ // u0: jobs 0 and 2; u1: job 1 only, because job 3 did not end under both
		{Who: "u0", Jobs: 2, WaitThen: 3 * 3600, WaitNow: 3600, JCTThen: 4 * 3600, JCTNow: 2 * 3600},
		{Who: "u1", Jobs: 1, WaitThen: 3600, WaitNow: 2 * 3600, JCTThen: 2 * 3600, JCTNow: 3 * 3600},
	}
	if fmt.Sprint(list) != fmt.Sprint(want) {
		t.Errorf("%+v", list)
	}
}

// The candidates that are tried follow from what the history contains.
func TestCandidates(t *testing.T) {
	spec := &cluster.Spec{Nodes: []cluster.Node{{Name: "n", GPUs: 8, Model: "T4-16GB"}}}
	entries, table := make([]trace.Entry, 10), Table{}
	tried := func() string {
		try, _ := Candidates(Look(entries, spec, table))
		var list []string
		for _, c := range try {
			list = append(list, c.String())
		}
		return " " + strings.Join(list, " ") + " "
	}
	check := func(when string, in, out []string) {
		t.Helper()
		got := tried()
		for _, p := range in {
			if !strings.Contains(got, " "+p+" ") {
				t.Errorf("%s: %s is not tried", when, p)
			}
		}
		for _, p := range out {
			if strings.Contains(got, " "+p+" ") {
				t.Errorf("%s: %s is tried", when, p)
			}
		}
	}
	check("nothing known", []string{"fifo", "fifo+skip", "las", "tiresias-l"},
		[]string{"fifo+easy", "srtf", "edf", "qssf", "drf", "multifactor", "gavel", "afs"})
	for i := range entries {
		entries[i].Job.User = "ada"
		entries[i].Job.Name = "train"
		if i > 0 {
			entries[i].Job.Estimate = time.Hour
		}
	}
	check("estimates, names", []string{"fifo+easy", "srtf", "qssf", "themis"}, []string{"edf", "drf", "chronus"})
	entries[3].Job.Deadline = 1
	entries[3].Job.Queue = "b"
	entries[3].Job.Elastic = cluster.Elastic{Min: 1, Max: 2}
	check("deadline, queue, elastic", []string{"edf", "chronus", "drf", "afs"}, []string{"gavel"})
	check("no table", []string{"gandiva"}, []string{"lucid", "antman", "salus", "muri", "miso"})
	table.Stages = true
	check("stages", []string{"muri"}, []string{"lucid", "antman"})
	table = Table{Speeds: true, Pairs: true, Slices: true}
	entries[5].Job.Tier = cluster.BestEffort
	check("pairs, tiers", []string{"lucid", "muri", "antman"}, []string{"salus", "miso"})
	entries[5].Job.Tasks = []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: 1, Resident: 1000}}}
	spec.Nodes[0].Model = "A100-80GB"
	check("memory, MIG", []string{"salus", "miso"}, []string{"gavel"})
	entries = append(entries, make([]trace.Entry, mostPlanned)...)
	for i := range entries {
		entries[i].Job.Estimate = 1
	}
	check("long", []string{"srtf", "edf", "drf"}, []string{"afs", "chronus", "themis"})
}
