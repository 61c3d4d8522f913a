// Package check recomputes from the jobs what the inventory and other rooms keep up to date step by step.
// It is slow, and for tests.
package check

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
)

// Books is the inventory of a cluster and the jobs that hold something of it, by number; nil where there is none.
type Books struct {
	Spec  *cluster.Spec
	Store *inventory.Store
	Jobs  []*job.State
}

// Check says what the inventory has otherwise than the jobs.
func (b *Books) Check() error {
	return errors.Join(b.guests(), b.tenants(), b.Free(), b.physical(), b.memory(), b.asleep())
}

// guests checks that guests and their hosts know of each other, and that they are
// on the same devices.
func (b *Books) guests() error {
	for _, j := range b.Jobs {
		if j == nil {
			continue
		}
		for _, id := range j.Guests {
			if g := b.Jobs[id]; int(g.GuestOf) != int(j.Spec.ID)+1 || j.Hosted() || !j.Booked() || !g.Booked() {
				return fmt.Errorf("job %d (%s) has guest %d (%s), a guest of %d", j.Spec.ID, j.State, id, g.State,
					g.GuestOf-1)
			}
		}
		for i := range j.Allocs {
			if j.Allocs[i].Beside != j.Hosted() && j.Booked() {
				return fmt.Errorf("job %d is a guest: %v, and holds %+v", j.Spec.ID, j.Hosted(), j.Allocs[i])
			}
		}
		if !j.Hosted() {
			continue
		}
		h := b.Jobs[j.GuestOf-1]
		if !slices.Contains(h.Guests, j.Spec.ID) {
			return fmt.Errorf("job %d is a guest of %d, which does not know of it", j.Spec.ID, h.Spec.ID)
		}
		for i := range j.Allocs {
			mask := uint64(0)
			for k := range h.Allocs {
				if h.Allocs[k].Node == j.Allocs[i].Node {
					mask |= h.Allocs[k].GPUs
				}
			}
			if mask != j.Allocs[i].GPUs {
				return fmt.Errorf("job %d, a guest of %d, holds %+v, that %+v", j.Spec.ID, h.Spec.ID, j.Allocs,
					h.Allocs)
			}
		}
	}
	return nil
}

// Free recomputes what is free on each node.
func (b *Books) Free() error {
	ts := b.Store.Tallies()
	for _, j := range b.Jobs {
		if j == nil {
			continue
		}
		allocs := j.InBooks()
		for i := range allocs {
			if err := ts[allocs[i].Node].Add(&allocs[i], false); err != nil {
				return fmt.Errorf("books: node %d, job %d: %w", allocs[i].Node, j.Spec.ID, err)
			}
		}
	}
	return b.Store.Compare(ts)
}

// physical checks that no two jobs are on one device at the same time,
// those that are leaving included.
func (b *Books) physical() error {
	ts := b.Store.Tallies()
	stops := make([][]cluster.JobID, len(ts))
	for _, j := range b.Jobs {
		if j == nil || !j.Holding() {
			continue
		}
		for _, a := range append(slices.Clone(j.Allocs), j.Leaving...) {
			if err := ts[a.Node].Add(&a, j.Packed); err != nil {
				return fmt.Errorf("physically: node %d, job %d: %w", a.Node, j.Spec.ID, err)
			}
		}
		for _, a := range j.GoingAllocs() {
			if !slices.Contains(stops[a.Node], j.Spec.ID) {
				stops[a.Node] = append(stops[a.Node], j.Spec.ID)
			}
		}
	}
	if err := b.Store.Misfit(ts); err != nil {
		return fmt.Errorf("physically: %w", err)
	}
	for id := range ts {
		n := &b.Store.Nodes()[id]
		have := slices.Clone(n.Stopping())
		slices.Sort(have)
		if !slices.Equal(have, stops[id]) {
			return fmt.Errorf("node %d: jobs %v are leaving, recomputed %v", id, have, stops[id])
		}
	}
	return nil
}

// tenants recomputes which jobs have shares of which devices.
func (b *Books) tenants() error {
	want := make([][]inventory.Tenant, len(b.Store.Nodes()))
	for _, j := range b.Jobs {
		if j == nil {
			continue
		}
		allocs := j.InBooks()
		for i := range allocs {
			a := &allocs[i]
			if (a.Tenant != 0) != (a.Share != 0 && a.Slots == 0) || a.Tenant != 0 && a.Tenant != j.Tenant() {
				return fmt.Errorf("job %d has a share of %d: %+v", j.Spec.ID, a.Tenant-1, *a)
			}
			if a.Tenant != 0 {
				want[a.Node] = append(want[a.Node],
					inventory.Tenant{Device: int8(bits.TrailingZeros64(a.GPUs)), Job: a.Tenant})
			}
		}
	}
	for id := range want {
		n := &b.Store.Nodes()[id]
		have := slices.Clone(n.Tenants())
		for _, list := range [][]inventory.Tenant{have, want[id]} {
			slices.SortFunc(list, func(a, b inventory.Tenant) int {
				return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(a.Job, b.Job))
			})
		}
		if !slices.Equal(have, want[id]) {
			return fmt.Errorf("node %d: shares are %v, recomputed %v", id, have, want[id])
		}
	}
	return nil
}

// memory recounts on which nodes memory of suspended jobs is.
func (b *Books) memory() error {
	n := make([]int32, len(b.Store.Nodes()))
	for _, j := range b.Jobs {
		if j == nil || j.Frozen == nil {
			continue
		}
		if j.State == job.Done {
			return fmt.Errorf("job %d is over and has memory somewhere", j.Spec.ID)
		}
		for i := range j.Frozen {
			a := &j.Frozen[i]
			n[a.Node]++
			for m := a.GPUs; m != 0; m &= m - 1 {
				dev := bits.TrailingZeros64(m)
				d := &b.Store.Nodes()[a.Node].Devices()[dev]
				shared := b.Spec.Sharing == cluster.MPS && d.Tenants() > 0 && d.Slots() == 0
				if cut := d.Slots() != 0 && !b.Store.Nodes()[a.Node].Stays(dev) &&
					(a.Slots != 0 || b.Spec.MIG == cluster.DynamicMIG); shared || cut {
					return fmt.Errorf("job %d has memory on device %d of node %d, where others have parts", j.Spec.ID,
						dev, a.Node)
				}
			}
		}
	}
	for id := range n {
		if n[id] != b.Store.Nodes()[id].Frozen() {
			return fmt.Errorf("node %d: memory of %d allocations of suspended jobs, counted %d", id, n[id],
				b.Store.Nodes()[id].Frozen())
		}
	}
	return nil
}

// asleep checks how many nodes are asleep.
func (b *Books) asleep() error {
	n := 0
	for i := range b.Store.Nodes() {
		if w := b.Store.Nodes()[i].Spec().Asleep; w < 0 || w > 0 && b.Store.Nodes()[i].Spec().State == cluster.Down {
			return fmt.Errorf("node %s is %s, and asleep for %v", b.Store.Nodes()[i].Spec().Name,
				b.Store.Nodes()[i].Spec().State, w)
		} else if w > 0 {
			n++
		}
	}
	if n != b.Store.Asleep() {
		return fmt.Errorf("%d nodes are asleep, not %d", n, b.Store.Asleep())
	}
	return nil
}
