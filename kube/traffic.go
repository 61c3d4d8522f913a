package kube

import (
	"maps"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/driver"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/traffic"
	"github.com/muster-gpu/muster/show"
)

// treatsTraffic reports whether gangs are told how the network treats what they transmit.
func (o *Options) treatsTraffic() bool {
	return o.Rules.Traffic != "" && o.Rules.Spec.Network != nil
}

// treatment is how the traffic of a gang is treated.
func (g *gang) treatment(e *engine.Engine) (t cluster.Treatment) {
	if r := e.Record(g.id); r != nil {
		t = r.Treatment.Value()
	}
	return t
}

// marks is by what traffic is marked.
func (o *Options) marks() *traffic.Marks {
	return &traffic.Marks{QoS: &o.QoS, Sign: o.Sign, Now: o.Now}
}

// tellTraffic adds to what is written to a pod with its binding how the network treats it.
func (d *Driver) tellTraffic(g *gang, obj *v1.Pod, notes map[string]string) {
	if d.opt.treatsTraffic() {
		t := g.treatment(d.eng)
		maps.Copy(notes, d.opt.marks().AtStart(obj, &t))
	}
}

// treat writes to the pods of a running gang how their traffic is treated from now on.
func (d *Driver) treat(g *gang, t *cluster.Treatment) {
	if !d.opt.treatsTraffic() || t == nil {
		return
	}
	for _, p := range g.sorted() {
		if p.node == "" {
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
func (d *Driver) networkOf(g *gang) (n *show.Network) {
	if d.opt.treatsTraffic() {
		began, now := d.opt.marks().StartedWith(g.Members()), g.treatment(d.eng)
		n = d.opt.QoS.Treated(&began, &now, marksOfPods, g.Last)
	}
	return driver.OnNetwork(d.eng, g.id, n, func(id cluster.JobID) int {
		if other := d.byID[id]; other != nil {
			return other.book.Number
		}
		return int(id)
	})
}
