package traffic

import (
	"cmp"
	"iter"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/network"
	"github.com/muster-gpu/muster/network/flow"
)

// muster plays on the flow model what each of the others would do, takes the best of it for each group of jobs, and
// improves the classes by exchanging them. So by what it maximises it is at least as good as each of them in any mix.
// Where many jobs share links, it does not play to the end what is much slower at a glance.
//
// It maximises the speed of GPUs, of which that alone on the network is 1: what is missing is the part of the time for
// which jobs hold GPUs because of each other's traffic. Crux maximises computing, which counts a job for more the less
// it transmits. Among jobs that run for ever that is what a cluster is for; but jobs end, and what each computes until
// then is the same however it is treated.
type muster struct {
	orders []*Crux
	others []Policy
	known  flow.Cache
}

func newMuster() *muster {
	// the factors of Crux' priorities compare two jobs; among three and more an extreme one does harm, so they are
	// bounded here, too, and plain intensity (bound 1) is tried
	published, bounded := NewCrux(Published), NewCrux(2)
	bounded.factors = published.factors
	return &muster{orders: []*Crux{published, bounded, NewCrux(1)},
		others: []Policy{none{}, ecmp{}, sincronia{}, &cassini{all: true}}}
}

func (m *muster) Name() string { return "muster" }

func (m *muster) shifts() {}

func (m *muster) Treat(f Fabric, jobs []Job) []cluster.Treatment {
	paths := choosePaths(f, jobs)
	on := loads(jobs, paths)
	s := newSearch(m, f, jobs, paths, on)
	answers := m.answers(f, jobs, paths, on)
	if len(s.crowds()) > 0 {
		answers = s.lookAt(answers)
	}
	for a := range answers {
		if !s.loses(upTo(len(jobs))) {
			return s.best
		}
		s.merge(a)
	}
	if f.Classes > 1 {
		s.improve()
	}
	return s.best
}

// answer is what one of the others would do.
type answer struct {
	treatments []cluster.Treatment
	on         [][]network.Bytes // what jobs put on links by them; nil: not known yet
	even       bool              // all jobs are to have their turn
}

// answers are what the others would do, what they would do if the paths were those that Crux chooses, and at the end,
// where rates are uneven, how all jobs would have their turn. Where rates are equal, jobs that are apart stay so, and
// need not wait for that.
func (m *muster) answers(f Fabric, jobs []Job, paths []cluster.Treatment,
	on [][]network.Bytes) iter.Seq[answer] {
	list := []func(ts []cluster.Treatment){func(ts []cluster.Treatment) {
		for i := range ts {
			ts[i].Class = min(jobs[i].Now.Class, f.Classes)
		}
	}}
	for _, c := range m.orders {
		list = append(list, func(ts []cluster.Treatment) { c.classes(f, jobs, on, ts) })
	}
	list = append(list, func(ts []cluster.Treatment) { orderCoflows(f, on, ts) })
	shifted := func(wait bool) func(ts []cluster.Treatment) {
		return func(ts []cluster.Treatment) {
			for _, group := range network.Components(on) {
				if len(group) <= mostShifted {
					interleave(f, jobs, on, upToSlots(jobs, group, SlotsLate), ts, wait) // they try again each minute
				}
			}
		}
	}
	list = append(list, shifted(false))
	for _, p := range m.others {
		list = append(list, func(ts []cluster.Treatment) { copy(ts, p.Treat(f, jobs)) })
	}
	turns := len(list)
	if f.Uneven() != (cluster.Uneven{}) {
		list = append(list, func(ts []cluster.Treatment) {
			m.orders[0].classes(f, jobs, on, ts) // by which one that is late is in the way of no more than the next
			shifted(true)(ts)
		})
	}
	return func(yield func(answer) bool) {
		for k, treat := range list {
			ts := slices.Clone(paths)
			if treat(ts); !yield(answer{treatments: ts, even: k == turns}) {
				return
			}
		}
	}
}

// mostShifted bounds the groups in which shifts are tried on other paths: with many jobs there is no common circle.
const mostShifted = 16

// search is the search for one decision.
type search struct {
	m     *muster
	f     Fabric
	jobs  []Job
	alone []time.Duration // an iteration on the paths that Crux chooses
	best  []cluster.Treatment
	on    [][]network.Bytes // under the best
	speed []float64         // of each job under the best, times its GPUs
	first []float64         // ... at a glance
	sure  []bool            // ... its speed is not at a glance only
	looks [][]float64       // each job's speed at a glance under each of the answers, if there are crowds
}

func newSearch(m *muster, f Fabric, jobs []Job, ts []cluster.Treatment, on [][]network.Bytes) *search {
	s := &search{m: m, f: f, jobs: jobs, best: slices.Clone(ts), on: on}
	for i := range jobs {
		s.alone = append(s.alone, max(1, loneOf(&jobs[i], network.Alone(f, on[i])).iteration()))
	}
	s.first, s.sure = s.glance(upTo(len(ts)), ts, on), make([]bool, len(ts))
	s.speed = slices.Clone(s.first)
	crowds := s.crowds()
	s.play(slices.DeleteFunc(upTo(len(ts)), func(i int) bool { return crowds[i] }))
	return s
}

// crowds are the jobs in crowds of which some are slower than alone at a glance.
func (s *search) crowds() (in map[int]bool) {
	in = map[int]bool{} // looked up only
	for _, group := range network.Components(s.on) {
		if len(group) > flow.Many && s.loses(group) {
			for _, i := range group {
				in[i] = true
			}
		}
	}
	return in
}

// lookAt plays all answers at a glance.
func (s *search) lookAt(answers iter.Seq[answer]) iter.Seq[answer] {
	var list []answer
	for a := range answers {
		if slices.EqualFunc(a.treatments, s.best, same) {
			continue
		}
		a.on = s.loads(a.treatments)
		s.looks = append(s.looks, s.glance(upTo(len(s.jobs)), a.treatments, a.on))
		list = append(list, a)
	}
	return slices.Values(list)
}

func same(a, b cluster.Treatment) bool { return a.Equal(&b) }

// loads are what jobs put on links under treatments.
func (s *search) loads(ts []cluster.Treatment) [][]network.Bytes {
	on := make([][]network.Bytes, len(ts))
	for i := range ts {
		if a, b := &ts[i], &s.best[i]; a.Spread == b.Spread && slices.Equal(a.Path, b.Path) {
			on[i] = s.on[i]
		} else {
			on[i] = s.jobs[i].On(a)
		}
	}
	return on
}

// play has the speeds of some jobs be those of whole plays of the best treatments.
func (s *search) play(at []int) {
	at = slices.DeleteFunc(slices.Clone(at), func(i int) bool { return s.sure[i] })
	if len(at) == 0 {
		return
	}
	for k, v := range s.speeds(at, pick(s.best, at), pick(s.on, at)) {
		s.speed[at[k]], s.sure[at[k]] = v, true
	}
}

// loses reports whether some of the jobs are slower than alone.
func (s *search) loses(at []int) bool {
	return slices.ContainsFunc(at, func(i int) bool { return s.speed[i] < float64(s.jobs[i].GPUs)*(1-1e-9) })
}

// speeds are those of some jobs, which share links with no others, under treatments by which they put so much on links,
// times their GPUs. None is counted as faster than alone on the paths that Crux chooses: what a job gained by several
// paths would pay for others that wait.
func (s *search) speeds(at []int, ts []cluster.Treatment, on [][]network.Bytes) []float64 {
	return s.played(s.m.known.Steady, at, ts, on)
}

// glance is about what speeds are, found sooner.
func (s *search) glance(at []int, ts []cluster.Treatment, on [][]network.Bytes) []float64 {
	return s.played(s.m.known.Glance, at, ts, on)
}

func (s *search) played(play func(network.Links, []flow.Job) []time.Duration, at []int, ts []cluster.Treatment,
	on [][]network.Bytes) []float64 {
	list, speed := make([]flow.Job, len(at)), make([]float64, len(at))
	for k, i := range at {
		list[k] = s.jobs[i].Along(on[k], &ts[k])
	}
	for k, t := range play(s.f, list) {
		i := at[k]
		speed[k] = float64(s.jobs[i].GPUs) * float64(s.alone[i]) / float64(max(t, s.alone[i]))
	}
	return speed
}

// merge takes over other treatments for each group of jobs, apart from all others under both, that is faster by them;
// or, if they are to be even, whose slowest job is faster by them, and all together as fast.
func (s *search) merge(a answer) {
	other, on := a.treatments, a.on
	if on == nil {
		on = s.loads(other)
	}
	both := make([][]network.Bytes, len(on))
	for i := range on {
		both[i] = slices.Concat(s.on[i], on[i])
	}
	groups := network.Components(both)
	grouped := make([]bool, len(on))
	for _, group := range groups {
		for _, i := range group {
			grouped[i] = true
		}
	}
	for i := range on {
		if !grouped[i] {
			groups = append(groups, []int{i})
		}
	}
	for _, group := range groups {
		if !s.loses(group) {
			continue
		}
		ts, way := pick(other, group), pick(on, group)
		first := s.glance(group, ts, way)
		speed, sure := s.faster(group, ts, way, first, a.even)
		if speed == nil {
			continue
		}
		for k, i := range group {
			s.best[i], s.on[i], s.speed[i], s.first[i], s.sure[i] = ts[k], on[i], speed[k], first[k], sure
		}
	}
}

// faster are the speeds of a group under other treatments that are better than the best so far, and whether they are
// more than a glance; nil: they are not better.
func (s *search) faster(group []int, ts []cluster.Treatment, on [][]network.Bytes, first []float64,
	even bool) (speed []float64, sure bool) {
	look, before := sum(first), sum(pick(s.first, group))
	if len(group) > flow.Many {
		least := max(before, s.most(group)) * promising
		if look < least || slices.EqualFunc(ts, pick(s.best, group), same) {
			return nil, false
		}
		if before < least {
			return first, false
		}
	} else if look < before*hopeful {
		return nil, false
	}
	s.play(group)
	speed = s.speeds(group, ts, on)
	now := pick(s.speed, group)
	better := sum(speed) > sum(now)
	if even && !better {
		better = sum(speed) >= sum(now)*(1-worthwhile) && s.slowest(group, speed) > s.slowest(group, now)
	}
	if !better {
		return nil, false
	}
	return speed, true
}

// most is the highest speed of a group at a glance under any of the answers.
func (s *search) most(group []int) (speed float64) {
	for _, look := range s.looks {
		speed = max(speed, sum(pick(look, group)))
	}
	return speed
}

// slowest is the speed of the slowest job of a group, of which that alone is 1.
func (s *search) slowest(group []int, speed []float64) float64 {
	least := 1.0
	for k, i := range group {
		least = min(least, speed[k]/float64(s.jobs[i].GPUs))
	}
	return least
}

func sum(list []float64) (total float64) {
	for _, v := range list {
		total += v
	}
	return total
}

// The search for classes in a group ends after so many plays of a job, in a large group sooner: there a play takes
// longer for each job. A change must gain so much of the speed of a job.
const (
	mostPlays  = 1024
	largeGroup = 8
	worthwhile = .01
)

// To be played in full, what another policy would do must have this part of the speed of the best at a glance, and a
// change of classes of that of the present ones. In 120 mixes of 12 to 28 jobs that were drawn, answers were as fast as
// without glances, and none of the other policies was faster than one of them.
const (
	hopeful = .85
	likely  = 1.0
)

// Of more than flow.Many jobs that share links, all answers are played at a glance first, and in full only those that
// have this part of the speed of the best of them, if there are several; and a change of classes only if it is better
// than the present ones by that much at a glance.
const (
	promising    = .95
	likelyOfMany = 1.002
)

// improve moves jobs to other classes, one at a time and in pairs that share a link, while their group gets faster:
// first those that lose most.
func (s *search) improve() {
	for _, group := range network.Components(s.on) {
		if s.loses(group) {
			s.exchange(group)
		}
	}
}

func (s *search) exchange(group []int) {
	ts, on, speed, first := pick(s.best, group), pick(s.on, group), pick(s.speed, group), pick(s.first, group)
	total, least, played, looks := sum(speed), 0.0, s.sure[group[0]], likely
	if len(group) > flow.Many {
		looks = likelyOfMany
	}
	for _, i := range group {
		least += worthwhile * float64(s.jobs[i].GPUs) / float64(len(group))
	}
	tries := mostPlays / len(group)
	if len(group) > largeGroup {
		tries = tries * largeGroup / len(group)
	}
	try := func(move func(ts []cluster.Treatment)) bool {
		if tries--; tries < 0 {
			return false
		}
		other := slices.Clone(ts)
		move(other)
		look := s.glance(group, other, on)
		if sum(look) < sum(first)*looks {
			return false
		}
		if !played {
			s.play(group)
			speed, played = pick(s.speed, group), true
			total = sum(speed)
		}
		got := s.speeds(group, other, on)
		if sum(got) < total+least {
			return false
		}
		ts, speed, first, total = other, got, look, sum(got)
		return true
	}
	order := upTo(len(group))
	for better := true; better && tries > 0; {
		better = false
		lost := func(k int) float64 { return float64(s.jobs[group[k]].GPUs) - speed[k] }
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(lost(b), lost(a)) })
		for _, a := range order {
			for b := range group {
				switch {
				case a == b:
					better = try(func(ts []cluster.Treatment) { ts[a].Class = 1 + ts[a].Class%s.f.Classes }) || better
				case ts[a].Class != ts[b].Class && meet(on[a], on[b]):
					better = try(func(ts []cluster.Treatment) {
						ts[a].Class, ts[b].Class = ts[b].Class, ts[a].Class
					}) || better
				}
			}
		}
	}
	for k, i := range group {
		s.best[i], s.speed[i] = ts[k], speed[k]
	}
}
