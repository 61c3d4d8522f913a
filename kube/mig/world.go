package mig

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/fit"
	"github.com/muster-gpu/muster/kube/holds"
)

// A second engine says which gangs would start if nodes were partitioned otherwise: it knows quotas, the order, racks,
// promises to others. It is made as the one that decides is, of nodes as they would be, and takes one step.

// lookAhead is how many gangs at the head of the line are asked when they start.
const lookAhead = 20

// world is what a second engine did.
type world struct {
	as     map[string]*config.MIGOffer // what nodes were supposed to have, with no pods on them
	engine *engine.Engine
	spec   cluster.Spec
	starts map[cluster.JobID][]engine.Alloc
	order  []cluster.JobID // of those that start
	line   []engine.Waiting
}

// newNode is one more node, like another and partitioned otherwise.
type newNode struct {
	like  *Node
	offer *config.MIGOffer
}

// suppose asks what would happen if nodes were partitioned otherwise, with no pods on them, and there were others
// besides.
func (l *look) suppose(as map[string]*config.MIGOffer, more []newNode) (*world, error) {
	snap := l.Engine.Snapshot()
	w := &world{as: as, spec: l.Spec, starts: map[cluster.JobID][]engine.Alloc{}}
	w.spec.Nodes = slices.Clone(snap.Nodes)
	other := map[string]*v1.Node{} // nodes as they would be
	for i, name := range l.Order {
		o := as[name]
		if o == nil {
			continue
		}
		other[name] = offering(l.room.nodes[name].obj, o)
		w.spec.Nodes[i] = l.NodeAs(name, other[name])
		w.spec.Nodes[i].State = cluster.Up
	}
	snap.Jobs = slices.DeleteFunc(snap.Jobs, func(r engine.JobRecord) bool {
		return r.State == engine.Done ||
			slices.ContainsFunc(r.Allocs, func(a engine.Alloc) bool { return as[l.Order[a.Node]] != nil })
	})
	for _, m := range more {
		obj := offering(m.like.obj, m.offer)
		n := l.NodeAs(obj.Name, obj)
		n.Name += "/" + m.offer.Text()
		for slices.ContainsFunc(w.spec.Nodes, func(o cluster.Node) bool { return o.Name == n.Name }) {
			n.Name += "'"
		}
		n.State = cluster.Up
		other[n.Name] = obj
		w.spec.Nodes = append(w.spec.Nodes, n)
	}
	stateModels(&w.spec)
	snap.Nodes = slices.Clone(w.spec.Nodes)
	events := l.renameSets(&snap, &w.spec, other)
	cfg, err := l.Config(w.spec)
	if err != nil {
		return nil, err
	}
	snap.Fresh = true
	if w.engine, err = engine.Restore(cfg, &snap); err != nil {
		return nil, err
	}
	w.engine.Look(l.Now)
	dec := w.engine.Step(engine.Batch{Seq: l.Seq + 1, Now: l.Now, Events: events})
	for i := range dec.Actions {
		if a := &dec.Actions[i]; a.Type == engine.Start {
			w.starts[a.Job], w.order = slices.Clone(a.Allocs), append(w.order, a.Job)
		}
	}
	w.line = w.engine.Line(lookAhead)
	return w, nil
}

// stateModels states the models of the nodes: so each is looked up once, and not for every node.
func stateModels(spec *cluster.Spec) {
	spec.Models = slices.Clone(spec.Models)
	for i := range spec.Nodes {
		name := spec.Nodes[i].Model
		if name == "" || slices.ContainsFunc(spec.Models, func(m cluster.GPUModel) bool { return m.Name == name }) {
			continue
		}
		if m, ok := cluster.FindModel(name); ok && m.Name == name {
			spec.Models = append(spec.Models, m)
		}
	}
}

// renameSets has the gangs that wait name the nodes that suit them, as these would be, and returns how those are
// submitted that the engine does not have.
func (l *look) renameSets(snap *engine.Snapshot, spec *cluster.Spec,
	other map[string]*v1.Node) (events []engine.Event) {
	known, sets := map[string]bool{}, map[string]cluster.NodeSet{}
	for i := range snap.Sets {
		known[snap.Sets[i].Name] = true
	}
	var within []string
	spec.Partitions = slices.Clone(spec.Partitions)
	for i := range spec.Partitions {
		if p := &spec.Partitions[i]; p.Name == l.All {
			p.Nodes, within = nil, []string{p.Name}
			for k := range spec.Nodes {
				p.Nodes = append(p.Nodes, spec.Nodes[k].Name)
			}
		}
	}
	records := map[cluster.JobID]int{}
	for i := range snap.Jobs {
		records[snap.Jobs[i].Spec.ID] = i
	}
	for _, w := range l.waiters {
		set, ok := sets[w.Kind]
		if !ok {
			set = w.setOf(spec.Nodes, other)
			sets[w.Kind] = set
		}
		if len(set.Nodes) == 0 {
			continue
		}
		if !known[set.Name] {
			snap.Sets, known[set.Name] = append(snap.Sets, set), true
		}
		confined := func(job cluster.Job) *cluster.Job {
			job.Nodes, job.Partitions = set.Name, within
			return &job
		}
		if w.Outside {
			events = append(events, engine.Event{Type: engine.Submitted, Job: w.Job.ID, Spec: confined(*w.Job)})
		} else if i, ok := records[w.Job.ID]; ok {
			snap.Jobs[i].Spec = confined(*snap.Jobs[i].Spec)
		}
	}
	return events
}

// setOf is the nodes that suit a gang's pods.
func (w *Waiter) setOf(nodes []cluster.Node, other map[string]*v1.Node) (set cluster.NodeSet) {
	now := w.Suits()
	for i := range nodes {
		name := nodes[i].Name
		n := other[name]
		if n == nil && slices.Contains(now, name) || n != nil && w.SuitsAs(n) {
			set.Nodes = append(set.Nodes, name)
		}
	}
	set.Name = fit.SetName(set.Nodes)
	return set
}

// isOn reports whether a gang starts on a node.
func (w *world) isOn(id cluster.JobID, name string, order []string) bool {
	return slices.ContainsFunc(w.starts[id], func(a engine.Alloc) bool {
		return int(a.Node) < len(order) && order[a.Node] == name
	})
}

// later reports whether a gang that comes before another in line would start later than without the changes.
func later(base, w *world, id cluster.JobID) bool {
	then := map[cluster.JobID]cluster.Time{}
	for _, l := range w.line {
		then[l.Job] = l.Expected
	}
	for _, l := range base.line {
		if l.Job == id {
			return false
		}
		at, waits := then[l.Job]
		if l.Expected != cluster.Never && waits && at > l.Expected.Add(time.Second) {
			return true
		}
	}
	return false
}

// free is what of each resource is left on a node behind whole GPUs: those that are not healthy, or held, are not.
func (w *world) free(names []string) map[string]map[string]int {
	list := map[string]map[string]int{}
	for _, n := range w.engine.Nodes() {
		model, _ := w.spec.Model(n.Model)
		have := map[string]int{}
		list[n.Name] = have
		if n.State != cluster.Up || !slices.Contains(names, n.Name) {
			continue
		}
		geometry, _, err := n.Geometry(&model)
		if err != nil {
			continue
		}
		for dev := range n.GPUs {
			if n.Bad>>dev&1 != 0 {
				continue
			}
			if dev >= len(geometry) || geometry[dev] == nil {
				have[""]++
				continue
			}
			for _, in := range geometry[dev] {
				have[in.Profile]++
			}
		}
	}
	nodes := w.engine.Nodes()
	for _, b := range w.engine.Beliefs() {
		r := w.engine.Record(b.Job)
		for i := range b.Allocs {
			a := &b.Allocs[i]
			have := list[nodes[a.Node].Name]
			if p := holds.Profile(r, a); p != "" {
				have[p] -= int(a.Tasks)
				continue
			}
			for dev := range nodes[a.Node].GPUs {
				if a.GPUs>>dev&1 != 0 {
					have[""]--
				}
			}
		}
	}
	return list
}
