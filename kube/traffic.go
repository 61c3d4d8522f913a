package kube

import (
	"maps"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/driver"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/traffic"
	"github.com/muster-gpu/muster/show"
)

// treatsTraffic reports whether gangs are told how the network treats what they transmit.
func (o *Options) treatsTraffic() bool {
	return o.Rules.Traffic != "" && o.Rules.Spec.Network != nil
}

// marks is by what traffic is marked.
func (o *Options) marks() *traffic.Marks {
	return &traffic.Marks{QoS: &o.QoS, Sign: o.Sign, Now: o.Now}
}

// tellTraffic adds to what is written to a pod with its binding how the network treats it.
func (d *Driver) tellTraffic(g *gang.Gang, obj *v1.Pod, notes map[string]string) {
	if d.opt.treatsTraffic() {
		t := g.Treatment(d.eng)
		maps.Copy(notes, d.opt.marks().AtStart(obj, &t))
	}
}

// treat writes to the pods of a running gang how their traffic is treated from now on.
func (d *Driver) treat(g *gang.Gang, t *cluster.Treatment) {
	if !d.opt.treatsTraffic() || t == nil {
		return
	}
	for _, p := range g.Sorted() {
		if p.Node == "" {
			continue // its binding says it
		}
		obj := p.Obj
		d.writer.Annotate(obj, d.opt.marks().Notes(obj, t), func(err error) {
			d.opt.Log.Warn("how its traffic is treated cannot be written to a pod", "pod",
				obj.Namespace+"/"+obj.Name, "error", err)
		})
	}
}

// marksOfPods is what can be said of marking what pods send: it is done on their nodes.
const marksOfPods = "written to its pods (" + AnnotationDSCP + "); what they send bears it where an agent runs on their nodes"

// networkOf is what people see of how a running gang's traffic is treated; nil: as any other's.
func (d *Driver) networkOf(g *gang.Gang) (n *show.Network) {
	if d.opt.treatsTraffic() {
		began, now := d.opt.marks().StartedWith(g.Members()), g.Treatment(d.eng)
		n = d.opt.QoS.Treated(&began, &now, marksOfPods, g.Last)
	}
	return driver.OnNetwork(d.eng, g.Job, n, func(id cluster.JobID) int {
		if other := d.byID[id]; other != nil {
			return other.Book.Number
		}
		return int(id)
	})
}
