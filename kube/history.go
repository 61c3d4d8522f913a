package kube

import (
	"reflect"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
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
	failed bool // it could not be written, and that was said
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
	if same && reflect.DeepEqual(d.tree.list, c.queues) {
		return
	}
	c.nodes, c.queues, c.at = nodes, d.tree.list, d.now
	d.chronicled(d.opt.History.Cluster(nodes, scaled(d.tree.list, spec.GPUs())))
}

// chronicleEnd tells the history of a gang whose job ends now.
func (d *Driver) chronicleEnd(g *gang, reason engine.StopReason) {
	if d.opt.History == nil || g.spec == nil {
		return
	}
	r := d.eng.Record(g.id)
	if r == nil || r.State != engine.Running {
		return
	}
	job := *g.spec
	job.GPUTypes = d.modelsFor(&job)
	job.ID, job.Partitions, job.NodeLimits, job.NoRequeue = 0, nil, nil, false
	d.chronicled(d.opt.History.Ended(&job, r.DoneAt(d.now), reason, d.now))
}

// modelsFor is the GPU models to which a gang's constraints keep it; nil: to none of
// those that there are.
func (d *Driver) modelsFor(job *cluster.Job) []string {
	if len(job.Partitions) == 0 || job.GPUs() == 0 {
		return job.GPUTypes
	}
	var all, some []string
	add := func(list []string, n *cluster.Node) []string {
		if n.GPUs == 0 || slices.Contains(list, n.Model) {
			return list
		}
		return append(list, n.Model)
	}
	nodes := d.eng.Nodes()
	for i := range nodes {
		all = add(all, &nodes[i])
	}
	for _, p := range d.cfg.Spec.Partitions {
		if p.Name != job.Partitions[0] {
			continue
		}
		for i := range nodes {
			if slices.Contains(p.Nodes, nodes[i].Name) {
				some = add(some, &nodes[i])
			}
		}
	}
	if len(some) == 0 || len(some) == len(all) {
		return job.GPUTypes
	}
	slices.Sort(some)
	return some
}

// chronicled says once that the history cannot be written.
func (d *Driver) chronicled(err error) {
	if err != nil && !d.chronicle.failed {
		d.opt.Log.Error("the history cannot be written", "error", err)
	}
	d.chronicle.failed = err != nil
}
