package pending

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/order"
	"github.com/muster-gpu/muster/engine/sched"
	"github.com/muster-gpu/muster/engine/shape"
	"github.com/muster-gpu/muster/quota"
)

// byPriority is a policy that considers jobs of a higher priority first.
type byPriority struct{}

func (byPriority) Name() string         { return "by-priority" }
func (byPriority) Traits() sched.Traits { return sched.Traits{} }

func (byPriority) Key(_ sched.View, j sched.JobView) order.Key { return order.Key{-j.Spec().Priority} }

// newLine makes a line of no jobs, of n that there are: of different tiers and priorities, with 1 to 3 GPUs each.
func newLine(t *testing.T, n int, seed uint64) (*Line, []*job.State) {
	jobs, r := newJobs(n), rand.New(rand.NewPCG(seed, 5))
	var st inventory.Store
	table := shape.NewTable(&st, map[string]int32{}, false)
	tree, err := quota.New(nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	l := &Line{World: &sched.World{Store: &st, Shapes: &table, Tree: tree}, Policy: byPriority{},
		Jobs: func() []*job.State { return jobs }, Touch: func(*job.State) {}}
	l.SetQueues(false)
	for _, j := range jobs {
		j.Spec.Tier, j.Spec.Priority = cluster.Tier(r.IntN(3)), int64(r.IntN(4))
		j.Spec.Tasks = []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: 1 + r.IntN(3)}}}
		j.Shape, _ = table.Of(j.Spec)
	}
	return l, jobs
}

// A walk that goes behind every job comes to all of them in the order of the line, which a sort by tier, priority and
// number gives, too. One that does not comes to the first of each group. A job that starts makes way for the next.
func TestWalk(t *testing.T) {
	for seed := range uint64(50) {
		l, jobs := newLine(t, 30, seed)
		r := rand.New(rand.NewPCG(seed, 6))
		for range 60 {
			if j := jobs[r.IntN(len(jobs))]; j.Eligible {
				l.Remove(j)
			} else {
				l.Insert(j)
			}
		}
		if err := l.Check(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		want := ""
		for tier := range cluster.Tier(3) {
			for priority := int64(3); priority >= 0; priority-- {
				for _, j := range jobs {
					if j.Eligible && j.Spec.Tier == tier && j.Spec.Priority == priority {
						want += fmt.Sprint(j.Spec.ID, " ")
					}
				}
			}
		}
		listed := ""
		for _, j := range l.Order() {
			listed += fmt.Sprint(j.Spec.ID, " ")
		}
		walk := func(deeper, start bool) (seen string) {
			var w Walk
			w.Begin(l)
			for li, it, ok := w.Next(); ok; li, it, ok = w.Next() {
				j := jobs[it.ID]
				seen += fmt.Sprint(it.ID, " ")
				at := w.Place(li, j)
				if start {
					l.Remove(j)
					w.Left(&at)
				} else if deeper {
					w.Deeper(&at)
				}
			}
			return seen
		}
		firsts := 0
		l.Firsts(func(*job.State) { firsts++ })
		if got := walk(true, false); got != want || listed != want {
			t.Fatalf("seed %d: walks %s\nlists %s\nwant %s", seed, got, listed, want)
		}
		if got := len(strings.Fields(walk(false, false))); got != firsts {
			t.Fatalf("seed %d: comes to %d jobs of %d groups", seed, got, firsts)
		}
		if got := walk(false, true); got != want || l.Len() != 0 || l.First() != nil {
			t.Fatalf("seed %d: starts %s\nwant %s, %d are left", seed, got, want, l.Len())
		}
	}
}

// A job that comes back into line during a walk is come to if it belongs after where the walk is.
func TestWalkReturns(t *testing.T) {
	l, jobs := newLine(t, 3, 1)
	for i, j := range jobs {
		j.Spec.Tier, j.Spec.Priority = cluster.Standard, int64(10-5*i)
		l.Insert(j)
	}
	var w Walk
	w.Begin(l)
	li, it, _ := w.Next()
	at := w.Place(li, jobs[it.ID])
	l.Remove(jobs[0])
	w.Left(&at)
	jobs[0].Spec.Priority = 7 // it is stopped for another, and comes back
	l.Insert(jobs[0])
	seen := ""
	for li, it, ok := w.Next(); ok; li, it, ok = w.Next() {
		seen += fmt.Sprint(it.ID, " ")
		at := w.Place(li, jobs[it.ID])
		l.Remove(jobs[it.ID])
		w.Left(&at)
	}
	if seen != "0 1 2 " {
		t.Errorf("comes to %s", seen)
	}
}
