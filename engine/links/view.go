package links

import (
	"cmp"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/network"
	"github.com/muster-gpu/muster/network/flow"
	"github.com/muster-gpu/muster/network/traffic"
)

// View is what the model of the network says of a running job.
type View struct {
	Traffic   cluster.Traffic
	Source    cluster.TrafficSource
	Treatment cluster.Treatment
	Alone     time.Duration // an iteration without other jobs
	Takes     time.Duration // an iteration as it is
	With      []Meeting     // jobs that slow it, the worst first
}

// Meeting is another job whose traffic is in a job's way.
type Meeting struct {
	Job  cluster.JobID
	Link string        // the busiest that they share
	Lost time.Duration // how much shorter an iteration would be without it
}

// Load is what a directed link carries, as parts of its rate.
type Load struct {
	Name    string
	Rate    int64 // bits per second
	Classes [cluster.MaxClasses + 1]float64
}

// mostMeetings bounds the jobs of which View says how much they slow one.
const mostMeetings = 8

// View says how a running job's traffic is treated and what it loses to others; false: it transmits nothing.
func (b *Book) View(nodes func() []cluster.Node, running []*job.State, of *job.State) (View, bool) {
	if b.spec == nil {
		return View{}, false
	}
	jobs, states := b.senders(nodes, running)
	me := slices.Index(states, of)
	if me < 0 {
		return View{}, false
	}
	group, on := near(jobs, me)
	v := View{Treatment: of.Treatment.Value()}
	v.Traffic, v.Source = b.believed(of)
	list := flows(jobs, group)
	at := slices.Index(group, me)
	plain := list[at]
	plain.Period = 0
	v.Alone = plain.Alone(b.fabric)
	if v.Takes = b.known.Steady(b.fabric, list)[at]; v.Takes <= v.Alone {
		v.Takes = v.Alone
		return v, true
	}
	for k, i := range group {
		link, shared := b.busiest(on[me], on[i])
		if i == me || !shared || len(v.With) == mostMeetings {
			continue
		}
		rest := slices.Delete(slices.Clone(list), k, k+1)
		mine := at
		if k < at {
			mine--
		}
		if lost := v.Takes - b.known.Steady(b.fabric, rest)[mine]; lost > 0 {
			v.With = append(v.With, Meeting{jobs[i].ID, b.fabric.Name(link), lost})
		}
	}
	slices.SortStableFunc(v.With, func(a, b Meeting) int { return cmp.Compare(b.Lost, a.Lost) })
	return v, true
}

// Computing is the computing time of a running job by what an iteration takes; 0: it is about what was known, or not
// seen, as other jobs share its links.
func (b *Book) Computing(nodes func() []cluster.Node, running func() []*job.State, of *job.State,
	iteration time.Duration) time.Duration {
	if b.spec == nil || !spread(of) {
		return 0
	}
	b.build(nodes)
	t, _ := b.believed(of)
	treated := of.Treatment.Value()
	d := b.fabric.Demand(of.Spec.ID, t, b.ranks(of))
	if len(d.Parts) == 0 {
		return 0
	}
	c := t.ComputingIn(iteration, network.Alone(b.fabric, d.On(&treated)))
	if c == 0 || t.Like(&cluster.Traffic{Compute: c}) {
		return 0
	}
	jobs, states := b.senders(nodes, running())
	if group, _ := near(jobs, slices.Index(states, of)); len(group) > 1 {
		return 0
	}
	return c
}

// near are the indexes of the jobs that share links with one, directly or through others, and what each puts on links.
func near(jobs []traffic.Job, me int) (group []int, on [][]network.Bytes) {
	for i := range jobs {
		on = append(on, jobs[i].Demand.On(&jobs[i].Now))
	}
	for _, g := range network.Components(on) {
		if slices.Contains(g, me) {
			return g, on
		}
	}
	return []int{me}, on
}

func flows(jobs []traffic.Job, group []int) (list []flow.Job) {
	for _, i := range group {
		list = append(list, asTreated(&jobs[i]))
	}
	return list
}

// asTreated is a job as it is treated now; slots count if it says that it keeps them.
func asTreated(j *traffic.Job) flow.Job {
	now := j.Now
	if j.Slots != traffic.SlotsKept {
		now.Shift, now.Period = 0, 0
	}
	return j.As(&now)
}

// busiest is the link that two jobs share on which they put the most, for its capacity.
func (b *Book) busiest(mine, others []network.Bytes) (link network.LinkID, shared bool) {
	most := 0.0
	for _, m := range mine {
		at, both := slices.BinarySearchFunc(others, m.Link, func(o network.Bytes, l network.LinkID) int {
			return int(o.Link - l)
		})
		if !both {
			continue
		}
		if part := float64(m.Bytes+others[at].Bytes) / float64(b.fabric.Capacity(m.Link)); part > most {
			link, most, shared = m.Link, part, true
		}
	}
	return link, shared
}

// Loads lists what links carry, by class, the busiest first; links that carry nothing are left out.
func (b *Book) Loads(nodes func() []cluster.Node, running []*job.State) (loads []Load) {
	if b.spec == nil {
		return nil
	}
	jobs, _ := b.senders(nodes, running)
	all := make([]Load, b.fabric.Links())
	var list []flow.Job
	for i := range jobs {
		list = append(list, asTreated(&jobs[i]))
	}
	for i, takes := range b.known.Steady(b.fabric, list) {
		for _, l := range list[i].On {
			all[l.Link].Classes[min(list[i].Class, cluster.MaxClasses)] += float64(l.Bytes) / takes.Seconds() /
				float64(b.fabric.Capacity(l.Link))
		}
	}
	total := func(l *Load) (sum float64) {
		for _, part := range l.Classes {
			sum += part
		}
		return sum
	}
	for l := range all {
		if id := network.LinkID(l); total(&all[l]) > 0 {
			all[l].Name, all[l].Rate = b.fabric.Name(id), 8*b.fabric.Capacity(id)
			loads = append(loads, all[l])
		}
	}
	slices.SortStableFunc(loads, func(a, b Load) int { return cmp.Compare(total(&b), total(&a)) })
	return loads
}
