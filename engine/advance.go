package engine

import (
	"fmt"
	"math"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/order"
	"github.com/muster-gpu/muster/engine/placement"
)

// advance is an advance reservation: maintenance, a class, a promised gang.
// Others may use its devices as long as they are expected to be gone in time;
// who is still there when it begins is preempted, unless it is critical.
type advance struct {
	spec  cluster.Reservation
	start cluster.Time // of the present or next occurrence
	end   cluster.Time
	nodes []slack // what outsiders may still use of each of its nodes
	begun bool
	users map[string]bool // looked up only
}

func (e *Engine) initAdvance() error {
	for _, r := range e.cfg.Spec.Reservations {
		a := advance{spec: r, start: r.Start, end: r.End, users: map[string]bool{}}
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
		if err := e.reserveNodes(&a); err != nil {
			return err
		}
		e.advance = append(e.advance, a)
	}
	return nil
}

// reserveNodes chooses the reservation's devices: the nodes that it names, or
// the last nodes of the cluster with so many GPUs (placers fill from the first).
func (e *Engine) reserveNodes(a *advance) error {
	for _, name := range a.spec.Nodes {
		id, ok := e.nodeID[name]
		if !ok {
			return fmt.Errorf("reservation %q: no node is named %q", a.spec.Name, name)
		}
		a.nodes = append(a.nodes, slack{node: id, tookGPUs: int32(e.st.Nodes()[id].Spec().GPUs)})
	}
	left := a.spec.GPUs
	for id := len(e.st.Nodes()) - 1; id >= 0 && left > 0; id-- {
		n := &e.st.Nodes()[id]
		if n.Spec().GPUs == 0 || n.Spec().State == cluster.Down {
			continue
		}
		take := min(left, n.Spec().GPUs)
		left -= take
		s := slack{node: int32(id), tookGPUs: int32(take), gpus: int32(n.Spec().GPUs - take), cpu: math.MaxInt64,
			ram: math.MaxInt64}
		if s.gpus == 0 {
			s.cpu, s.ram = 0, 0
		}
		a.nodes = append(a.nodes, s)
	}
	if left > 0 {
		return fmt.Errorf("reservation %q asks for %d GPUs, %d more than the cluster has", a.spec.Name, a.spec.GPUs,
			left)
	}
	return nil
}

// constrainAdvance adds the advance reservations that a run from..end meets.
func (e *Engine) constrainAdvance(h *placement.Slack, j *job.State, from, end cluster.Time) bool {
	met := false
	for i := range e.advance {
		a := &e.advance[i]
		if a.end == cluster.Never {
			continue
		}
		inside := e.insider(a, j)
		if inside {
			e.onlyInside(h, a, from, end)
			met = true
			continue
		}
		if a.start >= end || a.end <= from {
			continue
		}
		for k := range a.nodes {
			s := a.nodes[k]
			if s.gpus > 0 { // part of a node: what others hold there counts
				n := &e.st.Nodes()[s.node]
				s.gpus = max(0, int32(n.FreeGPUs())-s.tookGPUs+e.insideUse(a, s.node))
			}
			s.limit(h)
		}
		met = true
	}
	return met
}

// onlyInside keeps a job that named a reservation to its nodes and its time.
func (e *Engine) onlyInside(h *placement.Slack, a *advance, from, end cluster.Time) {
	if from < a.start || from >= a.end {
		for id := range e.st.Nodes() {
			h.Limit(int32(id), 0, 0, 0)
		}
		return
	}
	for id := range e.st.Nodes() {
		mine := false
		for k := range a.nodes {
			mine = mine || a.nodes[k].node == int32(id)
		}
		if !mine {
			h.Limit(int32(id), 0, 0, 0)
		}
	}
}

// insideUse counts the GPUs that the reservation's own jobs hold on a node.
func (e *Engine) insideUse(a *advance, node int32) int32 {
	var used int32
	e.byKey().Walk(func(it order.Item) bool {
		if j := e.jobs[it.ID]; e.insider(a, j) {
			for i := range j.Allocs {
				if j.Allocs[i].Node == node {
					used += int32(popcount(j.Allocs[i].GPUs))
				}
			}
		}
		return true
	})
	return used
}

// insider reports whether the job runs in the reservation: it names it and may.
func (e *Engine) insider(a *advance, j *job.State) bool {
	return j.Spec.Reservation != "" && j.Spec.Reservation == a.spec.Name
}

// mayUse says why a job may not use the reservation that it names; "" if it may.
func (e *Engine) mayUse(name string, s *cluster.Job) string {
	var names []string
	for i := range e.advance {
		a := &e.advance[i]
		names = append(names, a.spec.Name)
		if a.spec.Name != name {
			continue
		}
		if a.users[s.User] {
			return ""
		}
		for _, q := range a.spec.Queues {
			if q == s.Queue {
				return ""
			}
		}
		return fmt.Sprintf("reservation %q is not for user %q or queue %q", name, s.User, s.Queue)
	}
	return cluster.Unknown("reservation", name, names).Error()
}

func (e *Engine) advanceChange() cluster.Time {
	next := cluster.Never
	for i := range e.advance {
		a := &e.advance[i]
		if a.start > e.w.Now {
			next = min(next, a.start)
		} else {
			next = min(next, a.end)
		}
	}
	return next
}

// tickAdvance begins and ends reservations.
func (e *Engine) tickAdvance() {
	for i := range e.advance {
		a := &e.advance[i]
		if a.end <= e.w.Now {
			a.begun = false
			if a.spec.Every == 0 {
				a.start, a.end = cluster.Never, cluster.Never
			}
			if a.end <= e.w.Now {
				gone := e.w.Now.Sub(a.end)/a.spec.Every + 1
				a.start, a.end = a.start.Add(gone*a.spec.Every), a.end.Add(gone*a.spec.Every)
			}
			e.epoch++
		}
		if a.start <= e.w.Now && !a.begun {
			a.begun = true
			e.epoch++
			e.fresh = true
			e.clear(a)
		}
	}
}

// clear preempts outsiders from a reservation that begins. Where it has part of
// a node, as many leave as it needs, those who lose least first.
func (e *Engine) clear(a *advance) {
	for k := range a.nodes {
		s := &a.nodes[k]
		for {
			n := &e.st.Nodes()[s.node]
			if int32(n.FreeGPUs())+e.insideUse(a, s.node) >= s.tookGPUs && (s.gpus > 0 || n.Spec().GPUs > 0) {
				break
			}
			v := e.outsiderOn(a, s.node)
			if !e.dismiss(v) {
				break
			}
		}
	}
}

func (e *Engine) outsiderOn(a *advance, node int32) *job.State {
	var best *job.State
	var bestLost int64
	e.byKey().Walk(func(it order.Item) bool {
		v := e.jobs[it.ID]
		if v.Spec.Tier == cluster.Critical || e.insider(a, v) || !holdsNode(v, node) {
			return true
		}
		if lost := v.LostAt(e.w.Now, e.howToStop(v)); best == nil || lost < bestLost {
			best, bestLost = v, lost
		}
		return true
	})
	return best
}

func holdsNode(j *job.State, node int32) bool {
	for i := range j.Allocs {
		if j.Allocs[i].Node == node {
			return true
		}
	}
	return false
}
