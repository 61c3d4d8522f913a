package kube

import (
	"math/bits"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/driver"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/queues"
)

// Queue objects: watched where the cluster knows them, a change of them is a
// change of the engine's tree, and what becomes of them is written into their
// status: not more often than people look, and only what changed.
const statusEvery = 2 * time.Second

// queueChanged books a Queue object as it is now.
func (d *Driver) queueChanged(u *unstructured.Unstructured) {
	if err := d.queues.Changed(u); err != nil {
		d.opt.Log.Error("a Queue object cannot be read", "queue", u.GetName(), "error", err)
		return
	}
	d.queues.StatusChanged()
}

// queueEvents tell the engine that the tree is another. Gangs that wait are
// looked at again: what kept them out may be gone, or there may be something now.
func (d *Driver) queueEvents() []engine.Event {
	d.queues.Rebuild(d.opt.Rules.Spec.Queues, d.opt.Log)
	d.queues.StatusChanged()
	for _, g := range d.gangs {
		if g.Phase <= gang.Waiting {
			g.RefusedFor = nil
			d.agenda.touch(g)
			g.Told.Since(d.now, d.opt.TellAfter) // what it waits for may be something else now
		}
	}
	all, there := d.countGPUs()
	fitted, changed := d.queues.Fit(all, there)
	if !changed {
		return nil
	}
	return []engine.Event{{Type: engine.QueueChanged, Queues: fitted}}
}

// countGPUs counts the GPUs of all nodes, and those that are there.
func (d *Driver) countGPUs() (all, there int) {
	for _, n := range d.observed(d.engineNodes()).Nodes {
		all += n.GPUs
		if n.State != cluster.Down {
			there += n.GPUs - bits.OnesCount64(n.Bad)
		}
	}
	return all, there
}

// countQueues counts gangs by queue, those of queues below included.
func (d *Driver) countQueues() map[string]*queues.Count {
	own := queues.Counts{}
	for _, g := range d.gangs {
		var first *gang.Pod
		name, gpus := "", cluster.Milli(0)
		pending := g.Waits()
		switch {
		case g.Spec != nil:
			name = g.Spec.Queue
		default:
			for _, p := range g.Pods {
				if first == nil || gang.Order(p, first) < 0 {
					first = p
				}
			}
			if first == nil {
				continue
			}
			name = d.reader.QueueOf(g, first.Obj)
		}
		if !pending && g.Phase < gang.Starting {
			continue
		}
		oldest := time.Time{}
		for _, p := range g.Pods {
			gpus += p.Request.Milli()
			if at := p.Obj.CreationTimestamp.Time; oldest.IsZero() || at.Before(oldest) {
				oldest = at
			}
		}
		own.Add(name, pending, gpus, oldest)
	}
	return own.Sum(d.queues.Tree())
}

// writeStatus tells metrics how queues are, and writes into Queue objects what
// became of them, if it is time and if that is news.
func (d *Driver) writeStatus(now cluster.Time) {
	if now < d.queues.NextStatus(d.opt.StatusEvery) {
		return
	}
	began := d.opt.Now()
	d.queues.StatusSeen(now)
	defer func() { d.queues.StatusTook(d.opt.Now().Sub(began)) }()
	counts, figures := d.countQueues(), []QueueFigures{}
	for _, u := range d.eng.QueueUse() {
		f := QueueFigures{Name: u.Spec.Name, Parent: u.Spec.Parent, Guarantee: u.Spec.Guarantee, Used: u.Used}
		if c := counts[f.Name]; c != nil {
			f.Running, f.Pending, f.PendingGPUs, f.Oldest = c.Running, c.Pending, c.GPUs, c.Oldest
		}
		figures = append(figures, f)
	}
	d.opt.Observe.Queues(figures)
	d.opt.Observe.Links(driver.Links(d.eng))
	if d.opt.Tell == nil {
		return
	}
	total := cluster.Milli(0)
	for _, n := range d.eng.Nodes() {
		if n.State != cluster.Down {
			total += cluster.Milli(n.GPUs) * cluster.Whole
		}
	}
	again := d.queues.Tell(figures, total, now, func(name string, s *queues.Status) bool {
		if d.notices.Full(1) {
			return false
		}
		d.notices.Status(d.opt.Dynamic, queues.Resource, name, s, "oldestPending", "inForce")
		return true
	})
	if again {
		d.queues.StatusChanged()
	}
}
