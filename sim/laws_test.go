package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/driver"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/engine/sched"
	"github.com/muster-gpu/muster/internal/shared"
	"github.com/muster-gpu/muster/place"
	"github.com/muster-gpu/muster/policy"
	"github.com/muster-gpu/muster/report"
	"github.com/muster-gpu/muster/trace"
)

// Laws that hold for every policy, or of which a test shows why a policy cannot obey them. U7, work
// conservation, is an invariant of the engine: TestInvariants checks it after every step under
// every policy and backfill mode.

// law replays jobs in two queues, one of which weighs twice as much.
func law(t *testing.T, size string, cfg engine.Config, entries []trace.Entry) []report.Record {
	t.Helper()
	return lawUntil(t, size, cfg, entries, Options{})
}

// lawUntil is law with world options.
func lawUntil(t *testing.T, size string, cfg engine.Config, entries []trace.Entry, opt Options) []report.Record {
	t.Helper()
	spec := shared.Must(cluster.ParseShort(size))
	spec.Queues = []cluster.Queue{{Name: "a", Limit: -1, Lend: -1, Weight: 1000},
		{Name: "b", Limit: -1, Lend: -1, Weight: 2000}}
	e := engineOn(spec, cfg)
	w := NewWorld(spec, entries, opt)
	if err := driver.Run(t.Context(), e, w, nil); err != nil {
		t.Fatal(err)
	}
	return w.Book().Records
}

// engineOn makes an engine for a cluster, with best-fit unless the configuration has a placer.
func engineOn(spec *cluster.Spec, cfg engine.Config) *engine.Engine {
	cfg.Spec = *spec
	if cfg.Placer == nil {
		cfg.Placer = shared.Must(place.New("best-fit"))
	}
	return shared.Must(engine.New(cfg))
}

func mustPolicy(t *testing.T, text string) sched.Policy {
	t.Helper()
	p := shared.Must(policy.New(text))
	return p
}

// queued spreads jobs over users and the queues of law.
func queued(r *rand.Rand, entries []trace.Entry) []trace.Entry {
	for i := range entries {
		j := &entries[i].Job
		j.User, j.Queue = fmt.Sprintf("u%d", r.IntN(3)), []string{"a", "b"}[r.IntN(2)]
	}
	return entries
}

// ends lists the jobs' end times, divided by k, and outcomes.
func ends(t *testing.T, records []report.Record, k int) (list []string) {
	t.Helper()
	for i := range records {
		r := &records[i]
		if r.End%cluster.Time(k) != 0 {
			t.Fatalf("job %d ends at %v, no multiple of %d ns", i, r.End, k)
		}
		list = append(list, fmt.Sprintf("%v %v %d", r.End/cluster.Time(k), r.Outcome, r.Preemptions))
	}
	return list
}

// slower is a policy whose own periods are k times as long.
type slower struct {
	sched.Policy
	k time.Duration
}

func (s slower) Traits() sched.Traits {
	t := s.Policy.Traits()
	t.Rekey, t.Rerun = t.Rekey*s.k, t.Rerun*s.k
	return t
}

type slowerHeads struct{ slower }

func (s slowerHeads) HeadKey(v sched.View, j sched.JobView) engine.Key {
	return s.Policy.(sched.HeadKeyer).HeadKey(v, j)
}

// scaled returns a policy with all of its times multiplied by k.
func scaled(t *testing.T, name string, k int) sched.Policy {
	t.Helper()
	d := time.Duration(k)
	switch name {
	case "las":
		return mustPolicy(t, fmt.Sprintf("las:base=%s", d*time.Minute))
	case "las:dimension=time":
		return mustPolicy(t, fmt.Sprintf("las:base=%s,dimension=time", d*time.Minute))
	case "tiresias-l", "tiresias-l:promote=2":
		return mustPolicy(t,
			fmt.Sprintf("%s%sthresholds=%d/%d", name,
				map[bool]string{true: ",", false: ":"}[strings.Contains(name, ":")], 600*k, 3600*k))
	case "e-las":
		return mustPolicy(t, fmt.Sprintf("e-las:T0=%s,thresholds=%d/%d", d*time.Hour, 600*k, 3600*k))
	case "multifactor": // see TestScaleOfFairShares
		p := mustPolicy(t, fmt.Sprintf("multifactor:fairshare=0,size=500,age=100000,max_age=%s", d*time.Hour))
		return slowerHeads{slower{p, d}}
	case "elasticflow":
		return mustPolicy(t, fmt.Sprintf("elasticflow:slot=%s", d*time.Minute))
	case "chronus":
		return mustPolicy(t, fmt.Sprintf("chronus:lease=%s", d*time.Minute))
	case "hypersched":
		return mustPolicy(t,
			fmt.Sprintf("hypersched:rung=%s,overhead=%s,hold=%s,check=%s", d*time.Minute, d*20*time.Second,
				d*time.Minute, d*time.Minute))
	case "themis":
		return mustPolicy(t, fmt.Sprintf("themis:lease=%s", 15*d*time.Minute))
	case "astraea":
		return mustPolicy(t,
			fmt.Sprintf("astraea:lease=%s,window=%s,starving=%s", 15*d*time.Minute, 4*d*time.Hour, d*time.Hour))
	case "gavel":
		return mustPolicy(t, fmt.Sprintf("gavel:round=%s,reset=%s", d*time.Minute, 5*d*time.Minute))
	case "gandiva":
		return mustPolicy(t, fmt.Sprintf("gandiva:round=%s,probe=%s", d*time.Minute, d*time.Minute))
	case "gandiva-fair":
		return mustPolicy(t, fmt.Sprintf("gandiva-fair:round=%s,reset=%s", d*time.Minute, 5*d*time.Minute))
	case "muri":
		return mustPolicy(t, fmt.Sprintf("muri:round=%s", d*time.Minute))
	case "pollux", "sia":
		return mustPolicy(t, fmt.Sprintf("%s:round=%s,restart=%s", name, d*time.Minute, d*30*time.Second))
	case "optimus":
		return mustPolicy(t, fmt.Sprintf("optimus:round=%s", d*time.Minute))
	}
	p := mustPolicy(t, name)
	if t := p.Traits(); t.Rekey+t.Rerun > 0 {
		return slower{p, d}
	}
	return p
}

// roundless turns a round-based policy into one that plans at each arrival: jobs started before the
// first round are not its choice.
func roundless(pol string) string {
	if pol == "optimus" {
		return pol + ":round=0s"
	}
	return pol
}

func longer(entries []trace.Entry, k int) []trace.Entry {
	for i := range entries {
		e := &entries[i]
		e.Job.Submit *= cluster.Time(k)
		e.Job.Deadline *= cluster.Time(k)
		e.Run *= time.Duration(k)
		e.Job.Estimate *= time.Duration(k)
	}
	return entries
}

// TestScale (U9): if all times are doubled or tripled, including the policy's own, everything takes
// that much longer.
func TestScale(t *testing.T) {
	for _, pol := range append(policy.Names(), "las:dimension=time", "sjf-gpu:preempt=true", "tiresias-l:promote=2") {
		if pol == "tiresias-g" || pol == "gittins" {
			// costs are whole milliseconds, and parts of a level end at whole milliseconds, whatever the scale:
			// its decisions are the same to a millisecond only
			continue
		}
		for seed := range shared.Soak[uint64](1, 10) {
			var want []string
			for k := 1; k <= 3; k++ {
				r := rand.New(rand.NewPCG(seed, 9))
				entries := queued(r, randomEntries(r, 100))
				for i := range entries {
					entries[i].Job.Deadline = entries[i].Job.Submit.Add(entries[i].Run * time.Duration(1+r.IntN(6)))
				}
				cfg := engine.Config{Policy: scaled(t, pol, k)}
				got := ends(t, law(t, "2x8xT4", cfg, longer(entries, k)), k)
				if k == 1 {
					want = got
				} else if !slices.Equal(got, want) {
					t.Fatalf("%s seed %d, times %d:\n%v\nwant\n%v", pol, seed, k, got, want)
				}
			}
		}
	}
}

// TestScaleOfFairShares: usage decays at the end of every five minutes, as in Slurm, whatever the
// half-life; so multifactor with fair shares is not scale-free. u0 works within the first five
// minutes and then waits; u1 works a little more, later. When they compete, u0's usage has decayed,
// so u0 goes first. With all times divided by ten both fall into the same five minutes and u0 goes
// second.
func TestScaleOfFairShares(t *testing.T) {
	first := func(second time.Duration) int {
		by := func(u string) func(e *trace.Entry) { return func(e *trace.Entry) { e.Job.User, e.Job.Queue = u, "a" } }
		entries := []trace.Entry{
			entry(0, 0, 280*second, 1, by("u0")), entry(1, 310*second, 279*second, 1, by("u1")),
			entry(2, 600*second, 100*second, 1, by("u2")),
			entry(3, 610*second, 10*second, 1, by("u1")), entry(4, 611*second, 11*second, 1, by("u0")),
		}
		cfg := engine.Config{Policy: mustPolicy(t, "multifactor:age=0"), HalfLife: 300 * second}
		rec := law(t, "1x1xT4", cfg, entries)
		if rec[3].FirstStart < rec[4].FirstStart {
			return 3
		}
		return 4
	}
	if a, b := first(time.Second), first(time.Second/10); a != 4 || b != 3 {
		t.Errorf("job %d goes first, with all times shortened job %d; want 4 and 3", a, b)
	}
}

// TestPermutation (U8): renumbering jobs, no two of which are alike in what the policy uses,
// changes nothing for any of them.
func TestPermutation(t *testing.T) {
	for _, pol := range policy.Names() {
		switch {
		case pol == "qssf":
			pol = "qssf:alpha=0" // by stated service; the prediction from completed jobs is equal for all
		case slices.Contains(equals, pol):
			continue // see TestPermutationOfEquals
		}
		pol = roundless(pol)
		for seed := range shared.Soak[uint64](4, 10) {
			r := rand.New(rand.NewPCG(seed, 8))
			entries, size := queued(r, randomEntries(r, 60)), "2x4xT4"
			sizes, last := r.Perm(16), cluster.Time(-1)
			for i := range entries { // batches of jobs at one instant
				j := &entries[i].Job
				j.Submit -= j.Submit % cluster.Time(4*time.Minute)
				j.Priority, j.Deadline, j.Tasks[0].Request.GPUs = int64(r.IntN(1<<30)),
					j.Submit+cluster.Time(entries[i].Run)*3, 1
				if pol != "sjf-gpu" {
					continue
				}
				size = "1x16xT4" // sizes tell jobs apart; a batch has one job of each size
				if j.Submit != last {
					sizes, last = r.Perm(16), j.Submit
				}
				j.Tasks[0].Request.GPUs, sizes = 1+sizes[0], append(sizes[1:], sizes[0])
			}
			want := map[time.Duration]string{}
			for n := range 3 {
				mixed := slices.Clone(entries)
				for i := range mixed { // only jobs of one instant are swapped
					j := i + r.IntN(len(mixed)-i)
					if mixed[i].Job.Submit == mixed[j].Job.Submit {
						mixed[i], mixed[j] = mixed[j], mixed[i]
					}
				}
				for i := range mixed {
					mixed[i].Job.ID = cluster.JobID(i)
				}
				for i, s := range ends(t, law(t, size, engine.Config{Policy: mustPolicy(t, pol)}, mixed), 1) {
					if n == 0 {
						want[mixed[i].Run] = s
					} else if want[mixed[i].Run] != s {
						t.Fatalf("%s seed %d: a job of %v ends %s when numbered %d, else %s", pol, seed, mixed[i].Run,
							s, i, want[mixed[i].Run])
					}
				}
			}
		}
	}
}

// equals are the policies under which two jobs that arrive at one instant and differ only in their
// run time are equal: they use what jobs received, what is known of similar jobs, or how fast jobs
// are.
var equals = []string{"las", "tiresias-l", "tiresias-g", "gittins", "e-las", "qssf", "lucid", "gandiva", "muri",
	"gavel", "gandiva-fair", "astraea", "pollux", "sia"}

// TestPermutationOfEquals: under these policies the job numbers decide which of two equal jobs goes
// first, and so the mean JCT: renumbered, they change places. The end of the last job does not
// depend on it. Until a job has completed, qssf and lucid use what jobs state; under pollux and sia
// jobs start at rounds (1m) only.
func TestPermutationOfEquals(t *testing.T) {
	short, long := 10*time.Second, 50*time.Second
	play := func(pol string, a, b time.Duration) (sum, last cluster.Time) {
		for _, r := range law(t, "1x1xT4", engine.Config{Policy: mustPolicy(t, pol)},
			queued(rand.New(rand.NewPCG(1, 1)),
				[]trace.Entry{entry(0, 0, a, 1), entry(1, 0, b, 1)})) {
			sum, last = sum+r.End, max(last, r.End)
		}
		return sum, last
	}
	for _, pol := range equals {
		sum1, last1 := play(pol, short, long)
		sum2, last2 := play(pol, long, short)
		got, want := [4]cluster.Time{sum1, last1, sum2, last2}, [4]cluster.Time{70, 60, 110, 60}
		switch pol {
		case "qssf", "lucid":
			want = [4]cluster.Time{70, 60, 70, 60}
		case "pollux", "sia":
			want = [4]cluster.Time{70 + 170, 170, 110 + 130, 130}
		}
		for i := range want {
			want[i] *= cluster.Time(time.Second)
		}
		if got != want {
			t.Errorf("%s: ends add up to, and the last is at, %v, want %v", pol, got, want)
		}
	}
}

// TestStarvation (U6): a job that needs both GPUs competes with small jobs that arrive so that
// never both GPUs are idle. Policies that promise a start keep the promise; under the others the
// large job waits until no more small jobs arrive. With a starvation bound it waits no longer than
// the bound.
func TestStarvation(t *testing.T) {
	promises := map[string]bool{ // looked up, never iterated; strict arrival order, or a reservation for the first job
		"fifo": true, "yarn-cs": true, "multifactor": true, "antman": true, "miso": true, "optimus:round=0s": true,
		"elasticflow": true,
	}
	turns := map[string]time.Duration{ // latest start
		"gandiva":      time.Minute,     // jobs take turns: this one is next
		"muri":         6 * time.Minute, // it received least: it is next
		"gandiva-fair": 6 * time.Minute, // all jobs of a user have equal time: it gets the first round
		"sia":          time.Minute,     // a job's worth is at least its minimum size: it is next
		"wfp3":         2 * time.Minute, // when ratios are first compared, it has waited longest
	}
	const small, run, bound = 400, 50 * time.Second, 10 * time.Minute
	last := cluster.Time(small * 30 * time.Second)
	for _, pol := range append(policy.Names(), "sjf-gpu:preempt=true") {
		pol = roundless(pol)
		for _, guard := range []time.Duration{0, bound} {
			entries := []trace.Entry{entry(0, 0, run, 1), entry(1, time.Second, 10*time.Minute, 2)}
			for i := range small {
				entries = append(entries, entry(2+i, time.Duration(i+1)*30*time.Second, run, 1))
			}
			for i := range entries {
				entries[i].Job.Queue = "a"
			}
			at := law(t, "1x2xT4", engine.Config{Policy: mustPolicy(t, pol), Starvation: guard}, entries)[1].FirstStart
			switch {
			case promises[pol] && at > cluster.Time(run):
				t.Errorf("%s: the large job starts only at %v", pol, at)
			case guard > 0 && at > cluster.Time(time.Second+bound+run):
				t.Errorf("%s: the large job starts at %v although no job may wait for more than %v", pol, at, bound)
			case turns[pol] > 0 && at > cluster.Time(turns[pol]):
				t.Errorf("%s: the large job starts at %v, not in the first round", pol, at)
			case guard == 0 && !promises[pol] && turns[pol] == 0 && at < last:
				t.Errorf("%s: the large job starts at %v: does the policy promise its start?", pol, at)
			}
		}
	}
}
