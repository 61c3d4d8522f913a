package preempt

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/order"
)

// ranking keeps the jobs that hold devices in the order of victims from one pass to the next, where passes
// would otherwise list many of them only to look at a few: levels of thousands of jobs. What a job would
// lose is part of that order. For most jobs it stays as it is until something happens to them (they save
// their work before they leave); these are kept in order. The others are ordered whenever they are looked at.
// Its dumb twin is the tail of an engine that never ranks.
type ranking struct {
	on      bool
	steady  order.List // jobs whose loss does not change with time: see steadyItem
	growing order.List // the others, by first key element
	ranks   []rank     // by job number
	rebuild bool       // it is made again when what is going on is over: no job changes its place
	touched []int32    // ranked jobs whose records have changed since they were ranked
	listed  int        // jobs that passes listed in large levels since the ranking was last worth nothing
	unasked int        // changes of the ranking since it was last asked
}

// rank is where a job is in the ranking.
type rank struct {
	list  rankList
	again bool  // it is among touched
	loss  int64 // what stopping the job wasted when it was last ranked
}

type rankList uint8

const (
	unranked rankList = iota
	rankedSteady
	rankedGrowing
)

// of is where a job is. It is valid until another is asked for.
func (r *ranking) of(j *job.State) *rank {
	if n := int(j.Spec.ID) + 1 - len(r.ranks); n > 0 {
		r.ranks = append(r.ranks, make([]rank, n)...)
	}
	return &r.ranks[j.Spec.ID]
}

// Mode says whether jobs are ranked.
type Mode uint8

// The modes.
const (
	RankIfWorth Mode = iota
	RankAlways       // tests
	RankNever        // tests
)

const (
	// LargeLevel is from how many jobs on listing a level counts as work that a ranking spares: with some
	// hundreds (Philly's list on 48 nodes of 8 GPUs, las) keeping it up to date costs more.
	LargeLevel = 256
	// worthListed is how many times as many jobs as hold devices are listed before they are ranked, and how
	// many changes of a ranking that is not asked end it: either costs about as much as making one.
	worthListed = 4
)

// steadyItem is the place of a job among the steady: backwards it is the order of victims (worse).
func (r *ranking) steadyItem(j *job.State) order.Item {
	return order.Item{Key: order.Key{j.Key.Key[0], int64(j.Tier()), -r.of(j).loss}, Submit: j.Started,
		ID: int32(j.Spec.ID)}
}

// victimAt is the victim at a place among the steady.
func (f *Finder) victimAt(it *order.Item) victim {
	return victim{j: f.job(it.ID), key0: it.Key[0], tier: cluster.Tier(it.Key[1]), lost: -it.Key[2]}
}

// worse orders victims by their keys, as steadyItem does.
func worse(a, b *victim) int {
	switch {
	case a.key0 != b.key0:
		return cmp.Compare(b.key0, a.key0)
	case a.tier != b.tier:
		return cmp.Compare(b.tier, a.tier)
	case a.lost != b.lost:
		return cmp.Compare(a.lost, b.lost)
	case a.j.Started != b.j.Started:
		return cmp.Compare(b.j.Started, a.j.Started)
	}
	return cmp.Compare(b.j.Spec.ID, a.j.Spec.ID)
}

// lossOf is what stopping a job wastes now; steady: that stays so until its record changes.
func (f *Finder) lossOf(j *job.State) (lost int64, steady bool) {
	how := f.world.Oracle.HowToStop(j)
	lost = j.LostAt(f.world.Now, how)
	switch {
	case j.State == job.Placed:
		return lost, true
	case f.rules.Suspends[j.Spec.Tier]:
		return lost, false // whether its memory may stay depends on more than its record
	case !job.Computes(j.State, j.Resizing, j.Rate):
		return lost, true
	case how != job.Checkpoint || j.IgnoresCheckpoint:
		return lost, false
	}
	c := &j.Spec.Checkpoint // no more than saving costs, which it has reached: for good, unless it saves by itself
	return lost, (c.Cost == 0 || c.Interval == 0) && j.UnsavedAt(f.world.Now) >= c.Cost
}

// Rank takes a listed job into the ranking.
func (f *Finder) Rank(j *job.State) {
	r := &f.ranking
	if !r.on || r.rebuild {
		return
	}
	r.unasked++
	loss, steady := f.lossOf(j)
	at := r.of(j)
	if at.loss = loss; steady {
		at.list = rankedSteady
		r.steady.Insert(r.steadyItem(j))
		return
	}
	at.list = rankedGrowing
	r.growing.Insert(order.Item{Key: order.Key{j.Key.Key[0]}, ID: int32(j.Spec.ID)})
}

// Unrank takes a job out of the ranking, before its key, its tier or its start changes.
func (f *Finder) Unrank(j *job.State) {
	r, was := &f.ranking, true
	if !r.on || r.rebuild {
		return
	}
	at := r.of(j)
	switch at.list {
	case unranked:
		return
	case rankedSteady:
		was = r.steady.Remove(r.steadyItem(j))
	case rankedGrowing:
		was = r.growing.Remove(order.Item{Key: order.Key{j.Key.Key[0]}, ID: int32(j.Spec.ID)})
	}
	if !was {
		panic("preempt: a job is not where it is ranked")
	}
	at.list = unranked
}

// Touched notes that the record of a ranked job changes: what it would lose may be something else.
func (f *Finder) Touched(j *job.State) {
	r := &f.ranking
	if !r.on || r.rebuild {
		return
	}
	if at := r.of(j); at.list != unranked && !at.again {
		at.again = true
		r.touched = append(r.touched, int32(j.Spec.ID))
	}
}

// rankAgain has the ranking be as the jobs are now.
func (f *Finder) rankAgain() {
	r := &f.ranking
	for _, id := range r.touched {
		j := f.job(id)
		at := r.of(j)
		if at.again = false; at.list == unranked {
			continue
		}
		loss, steady := f.lossOf(j)
		if steady == (at.list == rankedSteady) && (!steady || loss == at.loss) {
			continue
		}
		f.Unrank(j)
		f.Rank(j)
		f.tail.drop()
	}
	r.touched = r.touched[:0]
}

// Restart drops the ranking: the keys of many jobs may have changed.
func (f *Finder) Restart() {
	f.dissolve()
	f.tail.drop()
}

// Begin begins a pass.
func (f *Finder) Begin() {
	f.tail.drop()
	f.rankIfWorthIt()
}

// Ranked reports whether jobs are ranked, and calls add for each of them, in no order.
func (f *Finder) Ranked(add func(it order.Item) bool) bool {
	if f.ranking.on {
		f.ranking.steady.Walk(add)
		f.ranking.growing.Walk(add)
	}
	return f.ranking.on
}

// Ranks reports whether jobs are ranked, and how many of them change what they lose as time goes by.
func (f *Finder) Ranks() (on bool, growing int) { return f.ranking.on, f.ranking.growing.Len() }

// Rerank has the places of so many jobs change. Where they are half of all, all are ranked again, which takes less time
// than to have each change its place.
func (f *Finder) Rerank(n int, change func()) {
	r := &f.ranking
	r.rebuild = r.on && n >= LargeLevel && n >= f.booked()/2
	change()
	if r.rebuild {
		r.rebuild = false
		r.unasked += n
		f.rankBooked()
	}
}

// rankIfWorthIt begins a ranking where listing has cost more, and ends one that is not asked.
func (f *Finder) rankIfWorthIt() {
	r := &f.ranking
	worth := worthListed*f.booked() + LargeLevel
	switch {
	case r.on && f.Mode == RankIfWorth && r.unasked > worth:
		f.dissolve()
	case !r.on && f.Mode != RankNever && f.world.Traits.Preempts && (f.Mode == RankAlways || r.listed > worth):
		f.rankAll()
	}
}

// rankAll begins a ranking.
func (f *Finder) rankAll() {
	r := &f.ranking
	f.places.Around.Running() // there is no other list of the jobs yet
	r.on, r.listed, r.unasked = true, 0, 0
	f.rankBooked()
}

// rankBooked ranks all jobs that hold devices.
func (f *Finder) rankBooked() {
	r := &f.ranking
	buf := slices.Grow(f.scratch.booked[:0], f.booked())
	f.scratch.booked = f.around.ListBooked(buf, func(j *job.State) order.Item { return j.Key })
	steady, growing := slices.Grow(f.scratch.steady[:0], len(f.scratch.booked)), f.scratch.growing[:0]
	for i := range f.scratch.booked {
		it := &f.scratch.booked[i]
		j := f.job(it.ID)
		loss, isSteady := f.lossOf(j)
		at := r.of(j)
		if at.loss = loss; isSteady {
			at.list = rankedSteady
			steady = append(steady, r.steadyItem(j))
		} else {
			at.list = rankedGrowing
			growing = append(order.Double(growing), order.Item{Key: order.Key{it.Key[0]}, ID: it.ID})
		}
	}
	r.steady.Fill(steady)
	r.growing.Fill(growing)
	f.scratch.steady, f.scratch.growing = steady, growing
	f.tail.drop()
}

// dissolve ends the ranking: passes list levels again.
func (f *Finder) dissolve() {
	r := &f.ranking
	if !r.on {
		return
	}
	f.places.Around.Running() // there is no other list of the jobs then
	clear(r.ranks)
	r.on, r.touched, r.listed, r.steady, r.growing = false, r.touched[:0], 0, order.List{}, order.List{}
	f.tail.drop()
}

// Check compares the ranking with the jobs that hold devices, of which there are so many.
func (f *Finder) Check(booked int) error {
	r := &f.ranking
	if !r.on {
		booked = 0
	}
	steady, err := r.steady.Items()
	if err != nil {
		return fmt.Errorf("ranking: %w", err)
	}
	growing, err := r.growing.Items()
	if err != nil {
		return fmt.Errorf("ranking, those that grow: %w", err)
	}
	if len(steady)+len(growing) != booked {
		return fmt.Errorf("ranking: %d and %d of %d jobs", len(steady), len(growing), booked)
	}
	for i := range steady {
		j := f.job(steady[i].ID)
		loss, stays := f.lossOf(j)
		at := r.of(j)
		if at.list != rankedSteady || steady[i] != r.steadyItem(j) || !at.again && (loss != at.loss || !stays) {
			return fmt.Errorf("ranking: job %d (%s) is at %+v, its loss is %d (it stays so: %v)", j.Spec.ID, j.State,
				steady[i], loss, stays)
		}
	}
	for i := range growing {
		if j := f.job(growing[i].ID); r.of(j).list != rankedGrowing || growing[i].Key[0] != j.Key.Key[0] {
			return fmt.Errorf("ranking: job %d (%s) is at %+v among those that grow", j.Spec.ID, j.State, growing[i])
		}
	}
	return nil
}
