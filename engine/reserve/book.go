// Package reserve keeps room for later: for starts that waiting jobs are promised, on nodes that are held for a job,
// and in advance reservations. It limits what jobs that start now may take, and finds the earliest start of a job in
// the projected future. It stops no job.
package reserve

import (
	"math/bits"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/order"
	"github.com/muster-gpu/muster/engine/placement"
	"github.com/muster-gpu/muster/engine/sched"
	"github.com/muster-gpu/muster/engine/shape"
)

// Around is what reservations depend on besides the inventory.
type Around interface {
	Jobs() []*job.State      // by number; nil where there is none
	Running() *order.List    // jobs that hold devices and were not told to stop
	Ends() *order.List       // the same by their expected ends
	Moving() []cluster.JobID // jobs that leave for devices that are booked for them
}

// Book has what is reserved. Backfill: a blocked job is promised the earliest placement that the expected ends of
// running jobs allow; others may run around it as long as what they leave suffices.
type Book struct {
	World  *sched.World
	Find   *placement.Finder
	Around Around
	Placer placement.Placer
	// HoldAfter bounds how long others pass a blocked job whose start is not in sight; 0: for ever.
	HoldAfter time.Duration

	windows []Window
	advance []Advance
	keepOff placement.KeepOff
	ends    []ending // memory of timelines
	idle    []int32  // memory of spareIdle
}

// Window is room for one job: from an instant on, or held from now on until the job fits.
type Window struct {
	Job    cluster.JobID
	At     cluster.Time // of a hold: the earliest instant at which the job can fit
	Until  cluster.Time
	Hold   bool
	Allocs []inventory.Alloc // as it was planned: valid until the next search for a place

	nodes  []portion
	any    inventory.ClassSet
	within *shape.NodeSet // nil: all nodes of these classes
	masks  []uint64       // devices that stand for it while a timeline is walked
}

// portion is what a reservation takes of a node, and what it leaves to others from its start on.
type portion struct {
	node     int32
	gpus     int32 // left beside the reservation
	cpu      cluster.Milli
	ram      cluster.MiB
	tookGPUs int32 // by the reservation itself
	tookCPU  cluster.Milli
	tookRAM  cluster.MiB
}

// limit keeps a job to what is left of the node.
func (p *portion) limit(h *placement.Slack) { h.Limit(p.node, p.gpus, p.cpu, p.ram) }

// OutOfSight reports whether an instant stands for an end that is not known.
func OutOfSight(now, at cluster.Time) bool { return at >= now.Add(cluster.MaxDuration/2) }

// Clear drops all windows.
func (b *Book) Clear() { b.windows = b.windows[:0] }

// Windows lists the windows in the order in which they were made. They must not be changed.
func (b *Book) Windows() []Window { return b.windows }

// Aside makes a book without windows of it, until what it returns is called.
func (b *Book) Aside() (restore func()) {
	windows := b.windows
	b.windows = nil
	return func() { b.windows = windows }
}

// Add adds a window.
func (b *Book) Add(w Window) { b.windows = append(b.windows, w) }

// Promise adds a window that uses up what was left beside those that begin during it.
func (b *Book) Promise(w Window) {
	for i := range b.windows {
		if o := &b.windows[i]; w.At < o.At && o.At < w.Until {
			o.share(&w)
		}
	}
	b.Add(w)
}

// share takes what another window holds from what is left beside w.
func (w *Window) share(o *Window) {
	for i := range w.nodes {
		for k := range o.nodes {
			if p, t := &w.nodes[i], &o.nodes[k]; p.node == t.node {
				p.gpus, p.cpu, p.ram = p.gpus-t.tookGPUs, p.cpu-t.tookCPU, p.ram-t.tookRAM
			}
		}
	}
}

// Each calls f for each node of the window with the GPUs that it takes there.
func (w *Window) Each(f func(node int32, gpus int)) {
	for i := range w.nodes {
		f(w.nodes[i].node, int(w.nodes[i].tookGPUs))
	}
}

// Limits is what a job that starts now must leave alone; nil: nothing. It is valid until the limits of another job are
// asked for at the same depth.
func (b *Book) Limits(j *job.State, depth placement.Depth) *placement.Slack {
	if len(b.windows) == 0 && len(b.advance) == 0 {
		return nil
	}
	return b.limits(j, b.World.Now, false, depth)
}

// limits is Limits for a run from an instant on; booked: reservations which have begun by then are in the inventory.
func (b *Book) limits(j *job.State, from cluster.Time, booked bool, depth placement.Depth) *placement.Slack {
	h := b.Find.Slack(depth)
	h.Reset(len(b.World.Store.Nodes()))
	end := from.Add(b.run(j))
	met := false
	for i := range b.windows {
		w := &b.windows[i]
		if w.At >= end || w.Until <= from || w.Job == j.Spec.ID || booked && w.At <= from {
			continue
		}
		met = true
		for k := range w.nodes {
			w.nodes[k].limit(h)
		}
	}
	if met = b.limitAdvance(h, j, from, end) || met; !met {
		return nil
	}
	return h
}

// run is how long a job that starts is expected to hold its devices.
func (b *Book) run(j *job.State) time.Duration { return j.ExpectedRun(b.World.LimitOf(j)) }

// Take takes what a job that starts holds from what is left beside the windows that its run meets, or (sign -1) gives
// it back.
func (b *Book) Take(j *job.State, allocs []inventory.Alloc, sign int64) {
	if len(b.windows) == 0 {
		return
	}
	end := b.World.Now.Add(b.run(j))
	for i := range b.windows {
		w := &b.windows[i]
		if w.At >= end {
			continue
		}
		for k := range w.nodes {
			p := &w.nodes[k]
			for a := range allocs {
				if al := &allocs[a]; al.Node == p.node {
					p.gpus -= int32(sign) * int32(bits.OnesCount64(al.GPUs))
					p.cpu -= sign * al.CPU
					p.ram -= sign * al.RAM
				}
			}
		}
	}
}

// Meets reports whether a window is on nodes for which the shape competes.
func (b *Book) Meets(s *shape.Shape) bool {
	return slices.ContainsFunc(b.windows, func(w Window) bool { return b.MeetsOne(s, &w) })
}

// OpenEnded reports whether all windows that the shape meets are for starts that are not in sight: they hold nothing.
func (b *Book) OpenEnded(s *shape.Shape) bool {
	for i := range b.windows {
		if w := &b.windows[i]; b.MeetsOne(s, w) && !OutOfSight(b.World.Now, w.At) {
			return false
		}
	}
	return true
}

// MeetsOne reports whether the shape competes for a node for which the job of a window competes, too.
func (b *Book) MeetsOne(s *shape.Shape, w *Window) bool {
	if s.Any.Minus(&w.any) == s.Any {
		return false
	}
	set := s.Most.Within
	if set == nil {
		set = w.within
	}
	if set == nil {
		return true
	}
	for _, id := range set.Nodes {
		class := b.World.Store.Nodes()[id].Class()
		if s.Any.Has(class) && w.any.Has(class) && s.Reaches(id) && (w.within == nil || w.within.In.Has(id)) {
			return true
		}
	}
	return false
}

// windowOf turns a tentative placement into a window.
func (b *Book) windowOf(j *job.State, s *shape.Shape, at cluster.Time, allocs []inventory.Alloc) Window {
	w := Window{Job: j.Spec.ID, At: at, Until: at.Add(max(1, b.run(j))), Allocs: allocs,
		any: s.Any, within: s.Most.Within}
	for i := range allocs {
		a := &allocs[i]
		k := slices.IndexFunc(w.nodes, func(p portion) bool { return p.node == a.Node })
		if k < 0 {
			k = len(w.nodes)
			w.nodes = append(w.nodes, portion{node: a.Node})
		}
		p := &w.nodes[k]
		p.tookGPUs += int32(bits.OnesCount64(a.GPUs))
		p.tookCPU += a.CPU
		p.tookRAM += a.RAM
	}
	for i := range w.nodes { // what is left beside it
		p := &w.nodes[i]
		n := &b.World.Store.Nodes()[p.node]
		p.gpus, p.cpu, p.ram = int32(n.FreeGPUs()), n.CPU(), n.RAM()
	}
	return w
}

// anywhere is a search that leaves nothing alone.
func (b *Book) anywhere() placement.Request {
	return placement.Request{In: b.World.Store, Placer: b.Placer}
}
