package reserve

import (
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/order"
	"github.com/muster-gpu/muster/engine/placement"
)

// Advance is an advance reservation: maintenance, a class, a promised gang. Others may use its devices as long as they
// are expected to be gone in time; a job that is still there when it begins is preempted, unless it is critical.
type Advance struct {
	spec  cluster.Reservation
	start cluster.Time // of the present or next occurrence
	end   cluster.Time
	nodes []portion // what others may still use of each of its nodes
	begun bool
	users map[string]bool // looked up only
}

// AdvanceRecord is where an advance reservation is in its repetitions.
type AdvanceRecord struct {
	Name  string       `json:"name"`
	Start cluster.Time `json:"start"`
	End   cluster.Time `json:"end"`
	Begun bool         `json:"begun,omitempty"`
}

// AddAdvance adds an advance reservation. node is the number of a node by its name.
func (b *Book) AddAdvance(r cluster.Reservation, node map[string]int32) error {
	a := Advance{spec: r, start: r.Start, end: r.End, users: map[string]bool{}}
	if r.End <= r.Start {
		return fmt.Errorf("reservation %q ends at %v, not after its start at %v", r.Name, r.End, r.Start)
	}
	if r.Every > 0 && r.Start.Add(r.Every) < r.End {
		return fmt.Errorf("reservation %q lasts longer than its period of %s", r.Name,
			cluster.FormatDuration(r.Every))
	}
	for _, u := range r.Users {
		a.users[u] = true
	}
	if err := b.chooseNodes(&a, node); err != nil {
		return err
	}
	b.advance = append(b.advance, a)
	return nil
}

// chooseNodes chooses the reservation's devices: the nodes that it names, or the last nodes of the cluster with so many
// GPUs (placers fill from the first).
func (b *Book) chooseNodes(a *Advance, node map[string]int32) error {
	nodes := b.World.Store.Nodes()
	for _, name := range a.spec.Nodes {
		id, ok := node[name]
		if !ok {
			return fmt.Errorf("reservation %q: no node is named %q", a.spec.Name, name)
		}
		a.nodes = append(a.nodes, portion{node: id, tookGPUs: int32(nodes[id].Spec().GPUs)})
	}
	left := a.spec.GPUs
	for id := len(nodes) - 1; id >= 0 && left > 0; id-- {
		n := &nodes[id]
		if n.Spec().GPUs == 0 || n.Spec().State == cluster.Down {
			continue
		}
		take := min(left, n.Spec().GPUs)
		left -= take
		p := portion{node: int32(id), tookGPUs: int32(take), gpus: int32(n.Spec().GPUs - take), cpu: math.MaxInt64,
			ram: math.MaxInt64}
		if p.gpus == 0 {
			p.cpu, p.ram = 0, 0
		}
		a.nodes = append(a.nodes, p)
	}
	if left > 0 {
		return fmt.Errorf("reservation %q asks for %d GPUs, %d more than the cluster has", a.spec.Name, a.spec.GPUs,
			left)
	}
	return nil
}

// HasAdvance reports whether there are advance reservations.
func (b *Book) HasAdvance() bool { return len(b.advance) > 0 }

// Advance lists the advance reservations. They must not be changed.
func (b *Book) Advance() []Advance { return b.advance }

// Records lists where the advance reservations are in their repetitions.
func (b *Book) Records() (list []AdvanceRecord) {
	for i := range b.advance {
		a := &b.advance[i]
		list = append(list, AdvanceRecord{a.spec.Name, a.start, a.end, a.begun})
	}
	return list
}

// Restore takes over records of the advance reservations that there still are.
func (b *Book) Restore(list []AdvanceRecord) {
	for i := range list {
		for k := range b.advance {
			if a := &b.advance[k]; a.spec.Name == list[i].Name && a.spec.Start <= list[i].Start {
				a.start, a.end, a.begun = list[i].Start, list[i].End, list[i].Begun
			}
		}
	}
}

// Name is the reservation's name.
func (a *Advance) Name() string { return a.spec.Name }

// Start is when its present or next occurrence begins.
func (a *Advance) Start() cluster.Time { return a.start }

// End is when that ends.
func (a *Advance) End() cluster.Time { return a.end }

// Nodes is the number of its nodes.
func (a *Advance) Nodes() int { return len(a.nodes) }

// Node is one of them.
func (a *Advance) Node(k int) int32 { return a.nodes[k].node }

// Inside reports whether a job runs in the reservation: the job names it, and may.
func (a *Advance) Inside(j *job.State) bool {
	return j.Spec.Reservation != "" && j.Spec.Reservation == a.spec.Name
}

// limitAdvance adds the limits of the advance reservations that a run from..end meets.
func (b *Book) limitAdvance(h *placement.Slack, j *job.State, from, end cluster.Time) bool {
	met := false
	for i := range b.advance {
		a := &b.advance[i]
		if a.end == cluster.Never {
			continue
		}
		if a.Inside(j) {
			b.keepInside(h, a, from)
			met = true
			continue
		}
		if a.start >= end || a.end <= from {
			continue
		}
		for k := range a.nodes {
			p := a.nodes[k]
			if p.gpus > 0 { // part of a node: what others hold there counts
				free := int32(b.World.Store.Nodes()[p.node].FreeGPUs())
				p.gpus = max(0, free-p.tookGPUs+b.insideUse(a, p.node))
			}
			p.limit(h)
		}
		met = true
	}
	return met
}

// keepInside keeps a job that starts at an instant and names the reservation to its nodes and its time.
func (b *Book) keepInside(h *placement.Slack, a *Advance, from cluster.Time) {
	open := a.start <= from && from < a.end
	for id := range b.World.Store.Nodes() {
		if !open || !slices.ContainsFunc(a.nodes, func(p portion) bool { return p.node == int32(id) }) {
			h.Limit(int32(id), 0, 0, 0)
		}
	}
}

// insideUse counts the GPUs that the reservation's own jobs hold on a node.
func (b *Book) insideUse(a *Advance, node int32) int32 {
	used := 0
	b.Around.Running().Walk(func(it order.Item) bool {
		if j := b.Around.Jobs()[it.ID]; a.Inside(j) {
			for i := range j.Allocs {
				if j.Allocs[i].Node == node {
					used += bits.OnesCount64(j.Allocs[i].GPUs)
				}
			}
		}
		return true
	})
	return int32(used)
}

// Lacks reports whether an advance reservation still lacks GPUs on its k-th node that others hold.
func (b *Book) Lacks(a *Advance, k int) bool {
	p := &a.nodes[k]
	n := &b.World.Store.Nodes()[p.node]
	return int32(n.FreeGPUs())+b.insideUse(a, p.node) < p.tookGPUs || p.gpus <= 0 && n.Spec().GPUs <= 0
}

// WhyNot says why a job may not use the reservation that it names; "" if it may.
func (b *Book) WhyNot(s *cluster.Job) string {
	var names []string
	for i := range b.advance {
		a := &b.advance[i]
		names = append(names, a.spec.Name)
		if a.spec.Name != s.Reservation {
			continue
		}
		if a.users[s.User] || slices.Contains(a.spec.Queues, s.Queue) {
			return ""
		}
		return fmt.Sprintf("reservation %q is not for user %q or queue %q", a.spec.Name, s.User, s.Queue)
	}
	return cluster.Unknown("reservation", s.Reservation, names).Error()
}

// NextChange is when the next advance reservation begins or ends.
func (b *Book) NextChange() cluster.Time {
	next := cluster.Never
	for i := range b.advance {
		a := &b.advance[i]
		if a.start > b.World.Now {
			next = min(next, a.start)
		} else {
			next = min(next, a.end)
		}
	}
	return next
}

// Tick brings the advance reservations up to now. It returns how many ended, and those that begin.
func (b *Book) Tick() (ended int, begun []*Advance) {
	now := b.World.Now
	for i := range b.advance {
		a := &b.advance[i]
		if a.end <= now {
			a.begun = false
			if a.spec.Every == 0 {
				a.start, a.end = cluster.Never, cluster.Never
			}
			if a.end <= now {
				gone := now.Sub(a.end)/a.spec.Every + 1
				a.start, a.end = a.start.Add(gone*a.spec.Every), a.end.Add(gone*a.spec.Every)
			}
			ended++
		}
		if a.start <= now && !a.begun {
			a.begun = true
			begun = append(begun, a)
		}
	}
	return ended, begun
}
