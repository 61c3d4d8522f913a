package kube

import (
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/queues"
)

// History takes down what became of gangs, so that their cluster's own past can be replayed.
type History interface {
	// Cluster is what there is from now on.
	Cluster(nodes []cluster.Node, queues []cluster.Queue) error
	// Ended is a gang that came to its end: how much useful work it did, on the reference GPU, and how
	// it ended. Times of the job, and at, are Unix times.
	Ended(job *cluster.Job, did time.Duration, reason engine.StopReason, at cluster.Time) error
}

// chronicle is how far the history was told of the cluster.
type chronicle struct {
	nodes  []cluster.Node
	queues []cluster.Queue
	at     cluster.Time
	// It could not be written, and that was said; the cluster itself could not.
	failed, missing bool
	// The GPU models of sets of nodes, by name, of this life of the engine.
	life   int
	models map[string][]string
}

// chronicleEvery is how often at most the history hears of nodes, which come and go.
const chronicleEvery = time.Hour

// chronicleCluster tells the history what the cluster is, where that is another than it knows.
func (d *Driver) chronicleCluster(spec *cluster.Spec) {
	c := &d.chronicle
	if d.opt.History == nil || c.at > 0 && d.now < c.at.Add(chronicleEvery) {
		return
	}
	var nodes []cluster.Node
	for i, n := range spec.Nodes {
		if o := d.nodes[d.order[i]]; o == nil || o.obj == nil {
			continue
		}
		n.State, n.Bad, n.Asleep = cluster.Up, 0, 0
		nodes = append(nodes, n)
	}
	same := slices.EqualFunc(nodes, c.nodes, func(a, b cluster.Node) bool {
		a.CPU, a.RAM, b.CPU, b.RAM = 0, 0, 0, 0 // what other pods leave
		return a == b
	})
	if same && reflect.DeepEqual(d.queues.Tree().List(), c.queues) {
		return
	}
	err := d.opt.History.Cluster(nodes, queues.Scaled(d.queues.Tree().List(), spec.GPUs()))
	if err == nil {
		c.nodes, c.queues, c.at = nodes, d.queues.Tree().List(), d.now
	}
	c.missing = err != nil
	d.chronicled(err)
}

// tellHistory tells the history what the cluster is now.
func (d *Driver) tellHistory() {
	spec := d.cfg.Spec
	spec.Nodes = d.engineNodes()
	d.chronicleCluster(&spec)
}

// chronicleEnd tells the history of a gang whose job ends now.
func (d *Driver) chronicleEnd(g *gang, reason engine.StopReason) {
	if d.opt.History == nil || g.spec == nil {
		return
	}
	r := d.eng.Record(g.id)
	if r == nil || r.State < engine.Starting || r.State > engine.Stopping {
		return
	}
	if d.chronicle.missing {
		d.tellHistory()
	}
	job := *g.spec
	job.GPUTypes = d.modelsFor(&job)
	job.ID, job.Nodes, job.Partitions, job.NodeLimits, job.NoRequeue = 0, "", nil, nil, false
	d.chronicled(d.opt.History.Ended(&job, r.DoneAt(d.now), reason, d.now))
}

// modelsFor is the GPU models to which a gang's constraints keep it; nil: to none of
// those that there are.
func (d *Driver) modelsFor(job *cluster.Job) []string {
	if job.Nodes == "" || job.GPUs() == 0 {
		return job.GPUTypes
	}
	c := &d.chronicle
	if c.life != d.life {
		c.life, c.models = d.life, map[string][]string{}
	}
	name := job.Nodes
	list, ok := c.models[name]
	if !ok {
		list = d.modelsIn(name)
		c.models[name] = list
	}
	if list == nil {
		return job.GPUTypes
	}
	return list
}

// modelsIn is the models of the nodes of a set, by name; nil: those of all nodes.
func (d *Driver) modelsIn(set string) []string {
	model, all := map[string]string{}, map[string]bool{} // by node
	nodes := d.eng.Nodes()
	for i := range nodes {
		if nodes[i].GPUs > 0 {
			model[nodes[i].Name], all[nodes[i].Model] = nodes[i].Model, true
		}
	}
	some := map[string]bool{}
	for _, n := range d.named[set] {
		if m, ok := model[n]; ok {
			some[m] = true
		}
	}
	if len(some) == 0 || len(some) == len(all) {
		return nil
	}
	return slices.Sorted(maps.Keys(some))
}

// chronicled says once that the history cannot be written.
func (d *Driver) chronicled(err error) {
	if err != nil && !d.chronicle.failed {
		d.opt.Log.Error("the history cannot be written", "error", err)
	}
	d.chronicle.failed = err != nil
}
