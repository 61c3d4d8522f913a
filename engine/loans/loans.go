// Package loans knows how many nodes are given back to their lenders (cluster.Loan) at an instant, and which are: that
// depends on the time alone, so a replay sees the same. Which jobs leave for that is the engine's decision.
package loans

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/sched"
)

// Book is the loans of a cluster.
type Book struct {
	world *sched.World
	spec  *cluster.Spec
	nodes map[string]int32 // numbers of nodes by name; looked up only
	next  cluster.Time     // when nodes are given back or taken next
}

// New makes the book of a cluster's loans, of whose nodes it has the numbers by name, and marks those that are lent.
// The error says which loan cannot be.
func New(w *sched.World, spec *cluster.Spec, nodes map[string]int32) (Book, error) {
	b := Book{world: w, spec: spec, nodes: nodes}
	lent := map[int32]string{} // looked up only
	for i := range spec.Loans {
		l := &spec.Loans[i]
		list := b.nodesOf(l)
		if list == nil {
			var names []string
			for k := range spec.Partitions {
				names = append(names, spec.Partitions[k].Name)
			}
			return b, fmt.Errorf("loans: %w", cluster.Unknown("partition", l.Partition, names))
		}
		if err := l.Check(len(list)); err != nil {
			return b, fmt.Errorf("loans: %w", err)
		}
		for _, id := range list {
			if other := lent[id]; other != "" {
				return b, fmt.Errorf("loans: %s: node %s is in %s, too, of which another loan is", l.Partition,
					b.name(id), other)
			}
			lent[id] = l.Partition
			w.Store.SetLent(id)
		}
	}
	return b, nil
}

func (b *Book) node(id int32) *inventory.Node { return &b.world.Store.Nodes()[id] }
func (b *Book) name(id int32) string          { return b.node(id).Spec().Name }

// nodesOf lists the nodes of a loan by number.
func (b *Book) nodesOf(l *cluster.Loan) (list []int32) {
	for i := range b.spec.Partitions {
		if p := &b.spec.Partitions[i]; p.Name == l.Partition {
			for _, name := range p.Nodes {
				list = append(list, b.nodes[name])
			}
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// givenBack lists those of a loan's nodes that are given back, by number.
func (b *Book) givenBack(l *cluster.Loan) []int32 {
	return slices.DeleteFunc(b.nodesOf(l), func(id int32) bool { return !b.node(id).GivenBack() })
}

// GivenBack lists the nodes that are given back to their lenders, by number.
func (b *Book) GivenBack() (names []string) {
	if len(b.spec.Loans) == 0 {
		return nil
	}
	for i := range b.world.Store.Nodes() {
		if b.node(int32(i)).GivenBack() {
			names = append(names, b.name(int32(i)))
		}
	}
	return names
}

// Change is what is to become of a loan's nodes.
type Change struct {
	Back int     // so many more are given back
	Take []int32 // these are taken again
	loan *cluster.Loan
}

// Due lists the changes whose time has come.
func (b *Book) Due() (list []Change) {
	if len(b.spec.Loans) == 0 || b.world.Now < b.next {
		return nil
	}
	now, next := b.spec.Unix(b.world.Now), int64(0)
	for i := range b.spec.Loans {
		l := &b.spec.Loans[i]
		if at := l.Next(now); i == 0 || at < next {
			next = at
		}
		given := b.givenBack(l)
		switch n := l.Wanted(now) - len(given); {
		case n > 0:
			list = append(list, Change{Back: n, loan: l})
		case n < 0:
			list = append(list, Change{Take: given[len(given)+n:], loan: l})
		}
	}
	b.next = b.spec.Instant(next)
	return list
}

// Candidates lists the nodes of a change's loan that are not given back, by number: those that take jobs (up), or the
// others.
func (b *Book) Candidates(c *Change, up bool) []int32 {
	return slices.DeleteFunc(b.nodesOf(c.loan), func(id int32) bool {
		return b.node(id).GivenBack() || (b.node(id).Spec().State == cluster.Up) != up
	})
}

// Wake is when nodes are given back or taken next.
func (b *Book) Wake() cluster.Time {
	if len(b.spec.Loans) == 0 {
		return cluster.Never
	}
	return b.next
}

// Text says until when nodes are given back on which a job could run; "": none are.
func (b *Book) Text(j *job.State) string {
	mask, list := b.world.Shapes.PartMask(j.Partitions()), []string(nil)
	for i := range b.spec.Loans {
		l := &b.spec.Loans[i]
		given := b.givenBack(l)
		all := len(given)
		given = slices.DeleteFunc(given, func(id int32) bool {
			return b.world.Store.Classes()[b.node(id).Class()].Partitions()&mask == 0
		})
		if len(given) == 0 {
			continue
		}
		var names []string
		for _, id := range given {
			names = append(names, b.name(id))
		}
		says := l.Says(b.spec.Unix(b.world.Now), all)
		list = append(list, strings.TrimSpace("given back: "+strings.Join(names, ",")+" "+says))
	}
	return strings.Join(list, "; ")
}

// Check checks that as many nodes are given back as are wanted, without jobs.
func (b *Book) Check(jobs []*job.State) error {
	given, now := 0, b.spec.Unix(b.world.Now)
	for i := range b.spec.Loans {
		l := &b.spec.Loans[i]
		n := len(b.givenBack(l))
		if given += n; n != l.Wanted(now) {
			return fmt.Errorf("loan of %s: %d nodes are given back, want %d", l.Partition, n, l.Wanted(now))
		}
	}
	for i := range b.world.Store.Nodes() {
		n := b.node(int32(i))
		if !n.GivenBack() {
			continue
		}
		if given--; n.Spec().State == cluster.Up || n.TakesJobs() || n.Frozen() > 0 {
			return fmt.Errorf("node %s is given back, and is %s, in the index %v, with %d suspended", n.Spec().Name,
				n.Spec().State, n.TakesJobs(), n.Frozen())
		}
		for _, j := range jobs {
			if j != nil && j.Booked() && inventory.OnNode(j.Allocs, int32(i)) {
				return fmt.Errorf("job %d is on node %s, which is given back", j.Spec.ID, n.Spec().Name)
			}
		}
	}
	if given != 0 {
		return fmt.Errorf("%d nodes are given back of no loan", given)
	}
	return nil
}
