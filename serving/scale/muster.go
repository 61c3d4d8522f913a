package scale

import (
	"cmp"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/knobs"
)

var musterKind = kind{knobs.Kind{Name: "muster",
	About: "the cheapest replicas for the rate that is forecast, with what each sustains as learnt from latencies",
	Knobs: []knobs.Knob{{Name: "risk", Default: "0.05", About: "part of the forecasts that any rate may exceed"},
		{Name: "window", Default: "0s",
			About: "replicas leave when none of this time needed them; 0: twice as long as one takes to start"},
		{Name: "spare", Default: "0.3",
			About: "part of the rate for which parts of GPUs are larger than it needs, where the policy chooses them"},
		{Name: "idle", Default: "5m",
			About: "without requests for so long nothing runs, where the service allows it"}}},
	newMuster}

// muster is Muster's own policy. It forecasts the rate for the time when a replica that is started now answers, and
// covers that with the cheapest mix of variants. What a replica sustains within the goal begins as its profile
// says, and is corrected by what is seen: a period that misses the goal lowers it, one that meets it easily at
// full load raises it, but not beyond where the goal was missed lately. What is not needed any more stays for twice the
// time that starting it again would take: then keeping it has cost as much as being without it would.
//
// While more requests miss the goal than it allows, the rates of all of the last while are covered; after that, a part
// of them may be exceeded (risk). A service of which nothing is known begins with two replicas, and with one where
// these may have any part of a GPU: beside other services there may be no room for more.
type muster struct {
	risk    float64
	window  time.Duration // 0: twice the time that a replica takes to start
	idle    time.Duration
	spare   float64
	rate    forecast
	lengths tokens  // of requests, as a moving mean
	factor  float64 // sustained over what the profile says
	missed  float64 // factor with which the goal was missed lately; it fades
	late    float64 // requests that missed the goal, and all, lately: moving sums
	all     float64
	behind  cluster.Time // when more had come than replicas sustain: requests were late for that
	waited  int          // requests at the end of the last period
	grows   float64      // by how many a second these grew in the last period
	owed    float64      // requests that missed the goal within the last hour or so
	came    float64      // requests of that time
	ready   []Want       // likewise
	recent  peak
	last    cluster.Time // with a request
	room    room
	says    string
	sized   []Want       // where replicas may have any size: what was wanted last
	sizedAt cluster.Time // when that changed
}

// startupUnknown is how long replicas are taken to need until they answer if their service does not say.
const startupUnknown = time.Minute

// trickle is a rate (requests per second) that needs a replica, and no more than one: less counts as nothing (cover).
const trickle = 1e-6

func newMuster(k *knobs.Set) (Policy, error) {
	m := &muster{factor: 1, missed: mostFactor, room: room{}}
	var err error
	if m.risk, err = k.Number("risk", 0, 1); err != nil {
		return nil, err
	}
	if m.spare, err = k.Number("spare", 0, 10); err != nil {
		return nil, err
	}
	if m.window, err = k.Duration("window"); err != nil {
		return nil, err
	}
	m.idle, err = k.Duration("idle")
	return m, err
}

// Decide counts by variant what size returns.
func (m *muster) Decide(v *View) []int {
	return byVariant(v.Service, m.size(v))
}

func (m *muster) size(v *View) []Want {
	v = m.lengths.steady(v)
	v.sizing = true
	m.room.see(v)
	m.says = m.room.says(v.Service)
	if len(v.options(true)) == 0 { // nothing is known of its requests yet
		return Wants(v.Service, only(v, 0, max(1, v.Replicas())))
	}
	if v.Period > 0 {
		m.learn(v)
	}
	m.rate.see(v)
	found := m.last == 0 && v.Replicas() > 0 // what it finds running stays for a while
	if v.Arrived > 0 || v.Waiting > 0 || v.stated() > 0 || found {
		m.last = v.Now
	}
	m.recent.window = m.window
	if m.window == 0 {
		m.recent.window = max(2*cmp.Or(v.startup(), startupUnknown), 2*v.Period)
	}
	margin := m.rate.margin(v, m.risk, missable(v)/2)
	if m.owes(v) {
		margin = m.rate.margin(v, 0, 0)
	}
	need := m.rate.expected(v, margin) + m.backlog(v)
	now, _, _ := v.of(v.there())
	// what was needed keeps replicas, and starts none
	need = max(need, min(m.recent.highest(v.Now, need), now*m.factor))
	switch {
	case v.Now.Sub(m.last) >= m.idle: // what is forecast only fades away
		need = 0
	case need == 0:
		need = trickle
	}
	want := m.choose(v, need)
	if !v.resizable() && !m.rate.begun &&
		v.Replicas() == 0 && v.stated() == 0 && (v.Service.Replicas.Min > 0 || v.Waiting > 0) {
		another(v, want)
	}
	if len(want) == 0 {
		return None(m, v.Service)
	}
	return want
}

// Says is for which variants there were no GPUs, in words; "": there were some for all.
func (m *muster) Says() string { return m.says }

// another adds a second replica, if the budget pays for it: that one is too few shows only when others that are asked
// for then answer late. If the first period does not need it, it is gone before it answers.
func another(v *View, want []Want) {
	if len(want) != 1 || want[0].Replicas != 1 || v.Service.Replicas.Max == 1 {
		return
	}
	each := v.Service.Variants[want[0].Variant].PerHourOf(want[0].Share)
	if v.Service.Budget.Affords(2 * each) {
		want[0].Replicas++
	}
}

// owes reports whether more requests missed the goal lately than it allows, those included that wait for longer.
func (m *muster) owes(v *View) bool {
	waiting := float64(v.Waiting)
	late := max(0, waiting-v.Rate()*max(v.Service.Goal.Latency, v.Service.Goal.TTFT).Seconds())
	return m.owed+late > missable(v)*(m.came+waiting)
}

// backlog is the rate that replicas need beyond that of requests, so that what waits when those that are asked for now
// answer is gone as soon again.
func (m *muster) backlog(v *View) float64 {
	startup := max(v.startup(), v.Period)
	if startup == 0 {
		return 0
	}
	return float64(v.Waiting)/startup.Seconds() + m.grows
}

const (
	leastFactor, mostFactor = 0.2, 2
	fades                   = 0.5 // part by which the factor may be higher after an hour than when the goal was missed
	known                   = 0.9 // part of what replicas are believed to sustain that has to have been seen for more
	forgets                 = 0.2 // part of the moving sums that a period replaces
)

// missable is the part of all requests that may miss the goal.
func missable(v *View) float64 { return 0.01 * (100 - v.Service.Goal.Percentile) }

// learn corrects what replicas sustain by latencies and load. Where more came than they sustain, lateness says nothing
// until that is answered.
func (m *muster) learn(v *View) {
	capacity := 0.0
	answers := v.answering()
	for _, w := range answers {
		for _, was := range m.ready {
			if was.Kind == w.Kind { // replicas that answered all the time
				n := min(w.Replicas, was.Replicas)
				capacity += float64(n) * v.sustained(&v.Service.Variants[w.Variant], w.Share) * m.factor
			}
		}
	}
	load := v.Rate() + float64(m.waited)/v.Period.Seconds()
	keeps := max(0, 1-v.Period.Hours())
	m.owed, m.came = m.owed*keeps+v.Missed, m.came*keeps+float64(v.Arrived)
	m.grows = max(0, float64(v.Waiting-m.waited)/v.Period.Seconds())
	m.waited, m.ready = v.Waiting, answers
	m.missed = min(mostFactor, m.missed*(1+fades*v.Period.Hours()))
	if load >= capacity {
		m.behind = v.Now
	}
	if v.Latency == 0 || v.Now.Sub(m.behind) <= v.Period+v.Latency {
		m.late, m.all = 0, 0
		return
	}
	m.late += v.Missed - forgets*m.late
	m.all += float64(v.Arrived) - forgets*m.all
	switch {
	case m.late > missable(v)*m.all:
		m.missed = m.factor
		m.factor = max(leastFactor, m.factor*max(0.9, load/capacity))
		m.late, m.all = 0, 0
	case v.Easy && load > known*capacity:
		m.factor = max(m.factor, min(0.97*m.missed, m.factor*1.03))
	}
}

// choose covers a rate: what runs stays if it is enough and hardly dearer than the cheapest.
func (m *muster) choose(v *View, rate float64) []Want {
	if v.resizable() {
		return m.resize(v, rate)
	}
	list, n, full := v.covering(rate, m.factor)
	want, now := wants(list, n), v.there()
	if !full || v.Replicas() < v.Service.Replicas.Min || v.inaccurate(now) {
		return want
	}
	covered, cost, _ := v.of(now)
	if _, least, _ := v.of(want); covered >= rate/m.factor && cost <= least*hardly {
		return now
	}
	return want
}

const hardly = 1.05 // cost over the least at which what runs stays as it is
