package policy

import (
	"cmp"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/sched"
)

var gandiva = Info{
	Name: "gandiva",
	About: "if there are more jobs than GPUs they take turns in short rounds, least run time first; jobs of the same size are packed on the same GPUs " +
		"by trial, and stay together if that increases throughput",
	Source: "Gandiva (OSDI'18); pairs as in Gavel's version of it",
	Needs:  "cheap stops (suspend, or checkpoints); progress reports, or speeds of pairs, to judge pairs by",
	Trials: []Trial{{Given: Short}},
	Knobs: []Knob{
		{"round", "1m", "jobs take turns at multiples of this"},
		{"overhead", "0", "part of a turn that may go to stopping and starting: a turn lasts as many rounds as that takes; 0: one, whatever it costs"},
		{"pack", "true", "false: jobs share no GPUs"},
		{"probe", "1m", "how long two jobs run together before they are judged"},
		{"tries", "4", "number of partners, up to 16, with which packing may fail before a job is left alone; 0: any number"},
	},
	New: newGandiva,
}

type gandivaRules struct {
	round, probe time.Duration
	pack         bool
	tries        int64 // 0: unlimited
	overhead     int64 // ppm; 0: unlimited
}

func newGandiva(k *Knobs) sched.Policy {
	part := k.float("overhead", 0, 1)
	if part > 0 && part < leastOverhead {
		k.fail("overhead=%q: want a part of a turn of at least %g, or 0 for any", k.text("overhead"), leastOverhead)
	}
	g := &gandivaRules{round: k.turns(), probe: k.duration("probe", 0), pack: k.bool("pack"),
		tries: k.int("tries", 0, mostBad), overhead: int64(part * 1_000_000)}
	return &planner{name: k.label(),
		traits: sched.Traits{Preempts: true, Backfill: sched.Skip, Round: g.round, Anywhere: true}, plan: g.plan}
}

// leastOverhead is the least overhead that can be set.
const leastOverhead = 0.001

// due reports whether a job has had its turn: it has run so long that stopping and starting it
// takes no more than the permitted share of the turn, by stated or measured times.
func (g *gandivaRules) due(v sched.View, j sched.JobView) bool {
	return g.overhead == 0 || v.Now().Sub(j.Started())/1000*time.Duration(g.overhead/1000) >= j.SwitchTakes()
}

// turn is a job during a plan.
type turn struct {
	gpus   int
	rounds time.Duration // number of rounds that it has run
	submit cluster.Time
	tier   cluster.Tier
	stays  bool
	packs  bool
	runs   bool
	mate   int  // 1 + the job with which it shares or is to share GPUs; 0: none
	passed bool // its place in this plan is decided
	yields bool // its memory is on devices where another job has its turn: it skips its own
}

// mostBad bounds the bad partners remembered for each job, mostTried the jobs of the same size
// among which a partner is sought, mostFit the suitable ones of which the best is taken.
const mostBad, mostTried, mostFit = 16, 64, 8

// turnsRoom is memory reused from plan to plan.
type turnsRoom struct {
	turns []turn
	order turnOrder
	lines []partners
}

func (g *gandivaRules) plan(v sched.View, jobs []sched.JobView) sched.Plan {
	p := sched.Plan{Next: v.Now().Add(g.round), Targets: v.Targets(len(jobs))}
	room, free, asked, waits := sched.Memory[turnsRoom](v), totalGPUs(v), 0, false
	turns, shared := room.turns[:0], g.pack && v.Shared()
	for i, j := range jobs {
		t := g.turn(v, j, &p.Targets[i], shared)
		asked, waits = asked+t.gpus, waits || !t.runs
		turns = append(turns, t)
	}
	room.turns = turns
	crowded := asked > free
	if !crowded && !waits {
		p.Next = cluster.Never // until a job comes
	}
	for i := range jobs {
		g.judge(v, jobs, turns, p.Targets, i, crowded)
	}
	order := room.order.of(turns)
	lines := room.lines[:0]
	if crowded {
		lines = partnersOf(lines, turns, order)
		room.lines = lines
	}
	homes, most := v.Homes(), time.Duration(0)
	if homes != nil {
		most = mostRounds(turns)
	}
	for rank, i := range order {
		t, to := &turns[i], &p.Targets[i]
		to.Rank = int64(rank)
		if t.passed {
			continue // it goes with its mate
		}
		t.passed = true
		if t.yields = !homes.Free(jobs[i]) && (homes.Stuck(jobs[i]) || most-t.rounds <= g.patience(jobs[i])); t.yields {
			to.Idle = true
			continue
		}
		if to.Idle = t.gpus > free && !t.stays; !to.Idle {
			homes.Give(jobs[i])
			free -= t.gpus
			if t.mate == 0 && t.packs && crowded {
				g.pair(v, jobs, turns, p.Targets, lineOf(lines, t.gpus), i)
			}
		}
		if t.mate > 0 {
			turns[t.mate-1].passed, p.Targets[t.mate-1].Idle = true, to.Idle
		}
		for _, k := range []int{i, t.mate - 1} {
			if k >= 0 && p.Targets[k].Beside > 0 {
				p.Targets[k].Idle = true // unless it joins the other's GPUs
			}
		}
	}
	for _, i := range order { // jobs that skipped their turn may use GPUs that no other job uses
		if t := &turns[i]; t.yields && t.gpus <= free {
			p.Targets[i].Idle = false
			free -= t.gpus
		}
	}
	return p
}

// patience is how many rounds a suspended job may fall behind jobs whose devices are free while
// another job has the devices with its memory: it skips its turn until moving that job costs no
// more than a tenth of what it is behind.
func (g *gandivaRules) patience(j sched.JobView) time.Duration {
	return 1 + 10*j.MoveTakes()/g.round
}

// mostRounds is the largest number of rounds of the running jobs that take turns.
func mostRounds(turns []turn) (most time.Duration) {
	for i := range turns {
		if t := &turns[i]; t.runs && !t.stays {
			most = max(most, t.rounds)
		}
	}
	return most
}

// turn describes a job, and puts what it remembers into its target.
func (g *gandivaRules) turn(v sched.View, j sched.JobView, to *sched.Target, shared bool) turn {
	_, least, _ := j.Tasks()
	spec := j.Spec()
	t := turn{gpus: j.GPUs(least), rounds: (j.Ran() + g.round/2) / g.round, submit: spec.Submit, tier: spec.Tier,
		runs: j.Running()}
	if old := j.Target(); old != nil && len(old.Memo) > 0 {
		to.Memo = old.Memo
	}
	if m := to.Memo; !t.runs && (m == nil || m[0] != int64(j.Done())) { // work done when its turn began
		to.Memo = append([]int64{int64(j.Done())}, m[min(1, len(m)):]...)
	}
	// The first number is the work done, the rest bad partners.
	t.packs = shared && (g.tries == 0 || len(to.Memo) <= int(g.tries)) && packs(j)
	t.stays = stays(j) || g.begins(v, j, to.Memo) || t.runs && !g.due(v, j)
	return t
}

// begins reports whether a job has made no progress in its turn yet: starting may take longer than
// a round. It gets ten rounds for that.
func (g *gandivaRules) begins(v sched.View, j sched.JobView, memo []int64) bool {
	return j.Running() && len(memo) > 0 && v.Now().Sub(j.Started()) < 10*g.round &&
		j.Done()-time.Duration(memo[0]) < g.round/2
}

// judge decides whether a guest stays: the two must get more done together than one alone, or have
// been together too briefly to tell, and there must be more jobs than GPUs.
func (g *gandivaRules) judge(v sched.View, jobs []sched.JobView, turns []turn, targets []sched.Target, i int,
	crowded bool) {
	id, ok := jobs[i].Host()
	if !ok {
		return
	}
	host := find(jobs, id)
	switch {
	case host < 0:
	case g.tried(v, jobs[host], jobs[i]) &&
		together(v, jobs[host:host+1], jobs[i:i+1]) <= g.byTurns(jobs[host], jobs[i]):
		targets[i].Alone = true
		targets[i].Memo, targets[host].Memo = bad(targets[i].Memo, id), bad(targets[host].Memo, jobs[i].Spec().ID)
	case !crowded:
		targets[i].Alone = true
	default:
		turns[i].mate, turns[host].mate = host+1, i+1
	}
}

// byTurns is the throughput of two jobs that take turns, in ppm of one that never stops: stopping
// and starting are not part of a turn.
func (g *gandivaRules) byTurns(a, b sched.JobView) int64 {
	return (g.ofTurn(a) + g.ofTurn(b)) / 2
}

// ofTurn is the share of its time on devices in which a job that takes turns computes, in ppm.
func (g *gandivaRules) ofTurn(j sched.JobView) int64 {
	takes, turn := j.SwitchTakes(), g.round
	if g.overhead > 0 {
		turn = max(turn, takes/time.Duration(g.overhead)*1_000_000)
	}
	return 1_000_000 * turn.Milliseconds() / (turn + takes).Milliseconds()
}

// tried reports whether two jobs have been together for long enough to judge; longer, if neither
// reports its speed.
func (g *gandivaRules) tried(v sched.View, host, guest sched.JobView) bool {
	reported := func(j sched.JobView) bool {
		now, _, _ := j.Tasks()
		return j.Rate() != v.Speed(j, host.GPU(), now)
	}
	since := v.Now().Sub(guest.Started())
	return host.Computes() && guest.Computes() && since >= g.probe &&
		(since >= 5*g.probe || reported(host) || reported(guest))
}

// partners are the jobs of one size that may be packed with another, in the order of turns. When a
// job looks for a partner, all jobs before it have been decided.
type partners struct {
	gpus       int
	jobs, room []int // room is the whole memory of jobs, which is cut at the front
}

func partnersOf(lines []partners, turns []turn, order []int) []partners {
	for _, k := range order {
		t := &turns[k]
		if !t.packs || t.stays || t.mate > 0 {
			continue
		}
		l := lineOf(lines, t.gpus)
		if l == nil {
			if len(lines) < cap(lines) { // reuse the last plan's memory
				lines = lines[:len(lines)+1]
			} else {
				lines = append(lines, partners{})
			}
			l = &lines[len(lines)-1]
			*l = partners{gpus: t.gpus, jobs: l.room[:0]}
		}
		l.jobs = append(l.jobs, k)
		l.room = l.jobs
	}
	return lines
}

// rest cuts off the leading jobs that are taken and returns the others.
func (l *partners) rest(turns []turn) []int {
	if l == nil {
		return nil
	}
	for len(l.jobs) > 0 && turns[l.jobs[0]].taken() {
		l.jobs = l.jobs[1:]
	}
	return l.jobs
}

// taken reports whether a job can no longer become a partner in this plan.
func (t *turn) taken() bool { return t.passed || t.mate > 0 }

// lineOf is the line of a size; nil: none.
func lineOf(lines []partners, gpus int) *partners {
	if i := slices.IndexFunc(lines, func(l partners) bool { return l.gpus == gpus }); i >= 0 {
		return &lines[i]
	}
	return nil
}

// pair finds a partner for a job that gets a turn, among the next few jobs of the same size in
// order: it may share GPUs, does not run itself unless this job waits, and is not a known bad
// partner. The one with the highest expected throughput is taken.
func (g *gandivaRules) pair(v sched.View, jobs []sched.JobView, turns []turn, targets []sched.Target, line *partners,
	i int) {
	rest := line.rest(turns)
	var free [mostTried]int // the candidates seen
	tried, fit, at := 0, 0, 0
	best, most := -1, int64(-1)
	for ; at < len(rest) && tried < mostTried && fit < mostFit; at++ {
		k := rest[at]
		if turns[k].taken() {
			continue
		}
		free[tried] = k
		tried++
		host, guest := hostOf(turns, i, k)
		if turns[guest].runs || jobs[guest].Loses() || jobs[guest].LosesMemoryOn(jobs[host]) {
			continue
		}
		if gain := g.gain(v, jobs[host:host+1], jobs[guest:guest+1], targets[host].Memo,
			targets[guest].Memo); gain >= 0 {
			fit++
			if gain > most {
				best, most = k, gain
			}
		}
	}
	if line != nil {
		line.jobs = rest[at-tried:] // taken jobs are dropped
		copy(line.jobs, free[:tried])
	}
	if best >= 0 {
		turns[i].mate, turns[best].mate = best+1, i+1
		host, guest := hostOf(turns, i, best)
		targets[guest].Beside = 1 + int32(jobs[host].Spec().ID)
	}
}

// hostOf tells which of two jobs hosts the other: the running one, else the one that gets the turn.
func hostOf(turns []turn, i, k int) (host, guest int) {
	if turns[k].runs {
		return k, i
	}
	return i, k
}

// gain is how much more two jobs are expected to get done together than by turns, in ppm of one
// alone; -1: less, or they may not be packed.
func (g *gandivaRules) gain(v sched.View, host, guest []sched.JobView, ofHost, ofGuest []int64) int64 {
	a, b := host[0], guest[0]
	memory := a.Spec().Tasks[0].Request.Memory + b.Spec().Tasks[0].Request.Memory
	gpu := a.GPU()
	switch {
	case wentBadly(ofHost, b.Spec().ID) || wentBadly(ofGuest, a.Spec().ID):
		return -1
	case gpu == "": // it starts with this plan, its nodes are not known yet
		gpu = v.Kinds()[0].GPU
	case !b.Accepts(gpu) || memory > a.DeviceMemory():
		return -1
	}
	return max(-1, v.SpeedBeside(a, gpu, guest)+v.SpeedBeside(b, gpu, host)-g.byTurns(a, b))
}

// together is the throughput of two jobs on the same GPUs, in ppm of one alone: as reported, or
// else as expected.
func together(v sched.View, host, guest []sched.JobView) int64 {
	part := func(a, b []sched.JobView) int64 {
		j, gpu := a[0], host[0].GPU()
		now, _, _ := j.Tasks()
		alone := v.Speed(j, gpu, now)
		if r := j.Rate(); r > 0 && r != alone {
			return r * 1_000_000 / max(1, alone)
		}
		return v.SpeedBeside(j, gpu, b)
	}
	return part(host, guest) + part(guest, host)
}

// turnOrder is memory for the order of turns.
type turnOrder struct {
	keys  []uint64
	order []int
}

// of orders the jobs: those that stay first, then by tier, then by the number of rounds run, then
// by submission and number.
func (o *turnOrder) of(turns []turn) []int {
	o.order, o.keys = o.order[:0], o.keys[:0]
	sorted := true
	for i := range turns {
		o.order, sorted = append(o.order, i), sorted && turns[i].submit >= turns[max(0, i-1)].submit
	}
	if !sorted {
		slices.SortStableFunc(o.order, func(a, b int) int { return cmp.Compare(turns[a].submit, turns[b].submit) })
	}
	for at, i := range o.order { // sorting numbers is faster than sorting with a comparison
		t := &turns[i]
		key := uint64(t.tier)<<60 | min(uint64(t.rounds), 1<<28-1)<<32 | uint64(at)
		if !t.stays {
			key |= 1 << 63
		}
		o.keys = append(o.keys, key)
	}
	slices.Sort(o.keys)
	if !sorted {
		bySubmit := slices.Clone(o.order)
		for rank, key := range o.keys {
			o.order[rank] = bySubmit[uint32(key)]
		}
		return o.order
	}
	for rank, key := range o.keys {
		o.order[rank] = int(uint32(key))
	}
	return o.order
}

// wentBadly reports whether a job remembers another as a bad partner.
func wentBadly(memo []int64, id cluster.JobID) bool {
	return slices.Contains(memo[min(1, len(memo)):], int64(id)) // the first number is the work done
}

// bad adds a bad partner to a memo.
func bad(memo []int64, id cluster.JobID) []int64 {
	switch {
	case len(memo) == 0:
		memo = []int64{0}
	case wentBadly(memo, id):
		return memo
	}
	list := make([]int64, 0, 1+mostBad)
	list = append(append(list, memo[0]), memo[max(1, len(memo)-mostBad+1):]...)
	return append(list, int64(id))
}
