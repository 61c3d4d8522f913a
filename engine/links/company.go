package links

import (
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/network"
	"github.com/muster-gpu/muster/network/traffic"
)

// Company is the running jobs beside which places for a job are rated.
type Company struct {
	book *Book
	job  *job.State
	does cluster.Traffic // what the job does
	from cluster.TrafficSource
	with *traffic.Company
}

// Company describes the jobs beside which places for a job are rated; nil: it is not known that it transmits over a
// network that is described. Nodes are those of the cluster by number.
func (b *Book) Company(nodes func() []cluster.Node, running func() []*job.State, j *job.State) *Company {
	if b.spec == nil || len(j.Spec.Hosts) > 0 {
		return nil
	}
	t, from := b.believed(j)
	if t.Pattern == cluster.NoTraffic {
		return nil
	}
	jobs, states := b.senders(nodes, running())
	var on [][]network.Bytes
	n := 0
	for i := range jobs {
		if states[i] != j {
			jobs[n] = jobs[i]
			on = append(on, jobs[i].Demand.On(&jobs[i].Now))
			n++
		}
	}
	f := traffic.Fabric{Links: b.fabric, Classes: b.spec.Classes}
	return &Company{b, j, t, from, traffic.NewCompany(f, jobs[:n], on, &b.scores)}
}

// Rate says how well the job would share links if it held some allocations, before anything is decided of its
// treatment.
func (c *Company) Rate(allocs []inventory.Alloc) traffic.Compatibility {
	f := c.book.fabric
	d := f.Demand(c.job.Spec.ID, c.does, Ranks(allocs))
	if len(d.Parts) == 0 {
		return traffic.Compatibility{}
	}
	one := c.book.sender(c.job, c.does, c.from, d)
	return c.with.Rate(&one, d.On(&cluster.Treatment{}))
}

// On reports whether one of the running jobs uses a node's own links.
func (c *Company) On(node int32) bool {
	return slices.ContainsFunc(c.book.fabric.Own(node), c.with.Uses)
}
