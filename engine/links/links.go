// Package links decides how the network treats the traffic of running jobs: which class, which paths, and when their
// iterations begin. It decides again when a job that transmits starts, leaves, or is found to transmit otherwise.
package links

import (
	"cmp"
	"math/bits"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/network"
	"github.com/muster-gpu/muster/network/flow"
	"github.com/muster-gpu/muster/network/traffic"
)

// Book knows the network and its policy. The zero value decides nothing.
type Book struct {
	policy traffic.Policy
	fabric *network.Fabric
	spec   *cluster.Network
	due    bool
	known  flow.Cache // of what people ask
	scores traffic.Scores
}

// New returns the book of a network; without one, or without a policy, it decides nothing.
func New(spec *cluster.Network, policy traffic.Policy) Book {
	if spec == nil {
		policy = nil
	}
	return Book{policy: policy, spec: spec, scores: traffic.Scores{Shifted: traffic.Shifts(policy)}}
}

// NodesChanged notes that nodes joined, or are elsewhere in the network.
func (b *Book) NodesChanged() { b.fabric, b.due = nil, b.policy != nil }

// Name is the name of the policy; empty: nothing is decided.
func (b *Book) Name() string {
	if b.policy == nil {
		return ""
	}
	return b.policy.Name()
}

// Restore goes on after jobs were treated by a policy of a name. Under another one all is decided again; without one
// no job is treated.
func (b *Book) Restore(before string, jobs []*job.State) {
	switch {
	case before == b.Name():
	case b.policy != nil:
		b.due = true
	default:
		for _, j := range jobs {
			if j != nil && j.Treatment != nil {
				j.Treatment = nil
			}
		}
	}
}

// Changed notes that a job got or lost devices, or that its traffic is known otherwise than before.
func (b *Book) Changed(j *job.State) {
	if b.policy != nil && !b.due && spread(j) {
		b.due = b.Traffic(j).Pattern != cluster.NoTraffic
	}
}

// spread reports whether a job is in several places, so that it may transmit between them.
func spread(j *job.State) bool { return len(j.Allocs) > 1 || len(j.Spec.Hosts) > 1 }

// Computes notes that a job begins to compute, after its start or another break: where it is in an iteration follows.
func (b *Book) Computes(j *job.State, now cluster.Time) {
	if b.spec != nil && now != cmp.Or(j.Computing, j.Started) {
		j.Computing = now
		b.Changed(j)
	}
}

// Due reports whether something changed since Treat.
func (b *Book) Due() bool { return b.due }

// Traffic is what is believed of a job's traffic: what was measured goes before what is stated.
func (b *Book) Traffic(j *job.State) cluster.Traffic {
	t, _ := b.believed(j)
	return t
}

func (b *Book) believed(j *job.State) (cluster.Traffic, cluster.TrafficSource) {
	t, from := b.spec.TrafficOf(j.Spec)
	if j.Tenure != nil && j.Account.Traffic != nil {
		t, from = t.Measured(*j.Account.Traffic), cluster.TrafficMeasured
	}
	return t, from
}

// Treat decides for the running jobs, in the order of their numbers. It returns those whose treatment is another than
// before, which it sets. Nodes are those of the cluster by number.
func (b *Book) Treat(nodes func() []cluster.Node, running []*job.State) (changed []*job.State) {
	b.due = false
	jobs, states := b.senders(nodes, running)
	f := traffic.Fabric{Links: b.fabric, Classes: b.spec.Classes}
	for i, t := range b.policy.Treat(f, jobs) {
		if now := states[i].Treatment.Value(); !now.Equal(&t) {
			states[i].Treatment = &t
			changed = append(changed, states[i])
		}
	}
	return changed
}

// build makes the graph of the network, unless it is there.
func (b *Book) build(nodes func() []cluster.Node) {
	if b.fabric == nil {
		b.fabric = network.New(nodes(), b.spec)
	}
}

// senders are the running jobs that transmit over the network.
func (b *Book) senders(nodes func() []cluster.Node, running []*job.State) (jobs []traffic.Job, states []*job.State) {
	b.build(nodes)
	for _, j := range running {
		t, from := b.believed(j)
		d := b.fabric.Demand(j.Spec.ID, t, b.ranks(j))
		if len(d.Parts) == 0 {
			continue
		}
		states = append(states, j)
		jobs = append(jobs, b.sender(j, t, from, d))
	}
	return jobs, states
}

// sender is a job as policies see it.
func (b *Book) sender(j *job.State, t cluster.Traffic, from cluster.TrafficSource, d network.Demand) traffic.Job {
	one := traffic.NewJob(b.fabric, j.Spec.ID, int64(max(1, j.Milli/cluster.Whole)), t, d,
		time.Duration(cmp.Or(j.Computing, j.Started)), j.Treatment.Value())
	one.Varies = from == cluster.TrafficMeasured
	if b.spec.Real {
		one.Slots = slotsOf(j)
	}
	return one
}

// slotsOf is how far a real job keeps slots, by what it says.
func slotsOf(j *job.State) traffic.Slots {
	if j.Tenure == nil {
		return traffic.SlotsUntold
	}
	switch j.Account.Slots {
	case cluster.SlotsHeld:
		return traffic.SlotsKept
	case cluster.SlotsCalled:
		return traffic.SlotsOffered
	case cluster.SlotsTooShort:
		return traffic.SlotsLate
	}
	return traffic.SlotsUntold
}

// ranks is where a job's ranks are: on its nodes, or one on each of the hosts that it names.
func (b *Book) ranks(j *job.State) (held []network.Held) {
	for _, name := range j.Spec.Hosts {
		if v, known := b.fabric.Host(name); known {
			held = append(held, network.Held{Node: v, Ranks: 1})
		}
	}
	if len(held) == 0 {
		return Ranks(j.Allocs)
	}
	return held
}

// Ranks counts a job's ranks by node: its GPUs, or its tasks where it has none.
func Ranks(allocs []inventory.Alloc) (held []network.Held) {
	for i := range allocs {
		a := &allocs[i]
		n := bits.OnesCount64(a.GPUs)
		if n == 0 {
			n = int(a.Tasks)
		}
		if k := len(held); k > 0 && held[k-1].Node == a.Node {
			held[k-1].Ranks += n
			continue
		}
		held = append(held, network.Held{Node: a.Node, Ranks: n})
	}
	return held
}
