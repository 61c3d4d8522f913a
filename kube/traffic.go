package kube

import (
	"cmp"
	"maps"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/driver"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/terms"
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

// trafficNotes are what can change while a pod runs: the class and the slots. Agents check the seal of the DSCP.
func (o *Options) trafficNotes(obj *v1.Pod, t *cluster.Treatment) map[string]string {
	notes := map[string]string{AnnotationClass: strconv.Itoa(t.Class), AnnotationDSCP: "cs0",
		AnnotationSlots: strings.TrimSpace(string(config.Slots(t)))}
	if m, marked := o.QoS.Mark(t.Class); marked {
		notes[AnnotationDSCP] = config.DSCPText(m.DSCP)
	}
	if o.Sign != nil {
		notes[AnnotationDSCP+terms.SealSuffix] = o.Sign(obj, AnnotationDSCP, notes[AnnotationDSCP], o.Now())
	}
	return notes
}

// tellTraffic adds to what is written to a pod with its binding how the network treats it, each variable with the
// library's default where nothing is decided: an empty one is a mistake to NCCL.
func (d *Driver) tellTraffic(g *gang, obj *v1.Pod, notes map[string]string) {
	if !d.opt.treatsTraffic() {
		return
	}
	t := g.treatment(d.eng)
	maps.Copy(notes, d.opt.trafficNotes(obj, &t))
	set := map[string]string{}
	for _, kv := range d.opt.QoS.Variables(&t, nil) {
		name, value, _ := strings.Cut(kv, "=")
		set[name] = value
	}
	notes[AnnotationTC] = cmp.Or(set["NCCL_IB_TC"], "0")
	notes[AnnotationFIFO] = cmp.Or(set["NCCL_IB_FIFO_TC"], notes[AnnotationTC])
	notes[AnnotationSL] = cmp.Or(set["NCCL_IB_SL"], "0")
	notes[AnnotationQPs] = cmp.Or(set["NCCL_IB_QPS_PER_CONNECTION"], "1")
	if name := set["NCCL_SOCKET_IFNAME"]; name != "" {
		notes[AnnotationIface] = name
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
		d.writer.Annotate(obj, d.opt.trafficNotes(obj, t), func(err error) {
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
		began, now := g.startedWith(&d.opt.QoS), g.treatment(d.eng)
		n = d.opt.QoS.Treated(&began, &now, marksOfPods, g.Last)
	}
	return driver.OnNetwork(d.eng, g.id, n, func(id cluster.JobID) int {
		if other := d.byID[id]; other != nil {
			return other.book.Number
		}
		return int(id)
	})
}

// startedWith is of a gang's treatment what its pods were told for good: what libraries read when they start.
func (g *gang) startedWith(q *config.QoS) (t cluster.Treatment) {
	for _, p := range g.sorted() {
		tc, known := p.Obj.Annotations[AnnotationTC]
		if !known {
			continue
		}
		t.Spread, _ = strconv.Atoi(p.Obj.Annotations[AnnotationQPs])
		for class := 1; t.Class == 0 && class <= cluster.MaxClasses; class++ {
			if m, marked := q.Mark(class); marked && strconv.Itoa(int(m.TC)) == tc {
				t.Class = class
			}
		}
		break
	}
	return t
}
