// Package history takes down what became of gangs, so that their cluster's own past can be replayed.
package history

import (
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/queues"
)

// Book takes down what it is told.
type Book interface {
	// Cluster is what there is from now on.
	Cluster(nodes []cluster.Node, queues []cluster.Queue) error
	// Ended is a gang that came to its end: how much useful work it did, on the reference GPU, and how
	// it ended. Times of the job, and at, are Unix times.
	Ended(job *cluster.Job, did time.Duration, reason engine.StopReason, at cluster.Time) error
}

// Room is how far a book was told of the cluster.
type Room struct {
	book   Book // nil: nothing is taken down
	log    *slog.Logger
	nodes  []cluster.Node
	queues []cluster.Queue
	at     cluster.Time
	// It could not be written, and that was said; the cluster itself could not.
	failed, missing bool
	// The GPU models of sets of nodes, by name, of this life of the engine.
	life   int
	models map[string][]string
}

// every is how often at most the book hears of nodes, which come and go.
const every = time.Hour

// New takes down in a book; nil: nothing.
func New(book Book, log *slog.Logger) *Room { return &Room{book: book, log: log} }

// Cluster tells the book what the cluster is, where that is another than it knows: the nodes that are there, and the
// queues, with limits as they are said.
func (r *Room) Cluster(now cluster.Time, spec *cluster.Spec, there func(node string) bool, list []cluster.Queue) {
	if r.book == nil || r.at > 0 && now < r.at.Add(every) {
		return
	}
	var nodes []cluster.Node
	for _, n := range spec.Nodes {
		if there(n.Name) {
			n.State, n.Bad, n.Asleep = cluster.Up, 0, 0
			nodes = append(nodes, n)
		}
	}
	same := slices.EqualFunc(nodes, r.nodes, func(a, b cluster.Node) bool {
		a.CPU, a.RAM, b.CPU, b.RAM = 0, 0, 0, 0 // what other pods leave
		return reflect.DeepEqual(a, b)
	})
	if same && reflect.DeepEqual(list, r.queues) {
		return
	}
	err := r.book.Cluster(nodes, queues.Scaled(list, spec.GPUs()))
	if err == nil {
		r.nodes, r.queues, r.at = nodes, list, now
	}
	r.missing = err != nil
	r.told(err)
}

// Missing reports whether the book could not be told of the cluster.
func (r *Room) Missing() bool { return r.missing }

// Wants reports whether ends are taken down.
func (r *Room) Wants() bool { return r.book != nil }

// End tells the book of a job that ends now. life counts the engines; named are the nodes of the sets that jobs name.
func (r *Room) End(e *engine.Engine, life int, named map[string][]string, spec *cluster.Job, reason engine.StopReason,
	now cluster.Time, did time.Duration) {
	if r.life != life {
		r.life, r.models = life, map[string][]string{}
	}
	job := *spec
	if list := r.modelsFor(e, named, &job); list != nil {
		job.GPUTypes = list
	}
	job.ID, job.Nodes, job.Partitions, job.NodeLimits, job.NoRequeue = 0, "", nil, nil, false
	r.told(r.book.Ended(&job, did, reason, now))
}

// modelsFor is the GPU models to which the set of nodes that a job names keeps it; nil: to none of those that there
// are.
func (r *Room) modelsFor(e *engine.Engine, named map[string][]string, job *cluster.Job) []string {
	if job.Nodes == "" || job.GPUs() == 0 {
		return nil
	}
	list, ok := r.models[job.Nodes]
	if !ok {
		list = modelsIn(e.Nodes(), named[job.Nodes])
		r.models[job.Nodes] = list
	}
	return list
}

// modelsIn is the models of some nodes; nil: those of all nodes.
func modelsIn(nodes []cluster.Node, names []string) []string {
	model, all := map[string]string{}, map[string]bool{} // by node
	for i := range nodes {
		if nodes[i].GPUs > 0 {
			model[nodes[i].Name], all[nodes[i].Model] = nodes[i].Model, true
		}
	}
	some := map[string]bool{}
	for _, n := range names {
		if m, ok := model[n]; ok {
			some[m] = true
		}
	}
	if len(some) == 0 || len(some) == len(all) {
		return nil
	}
	return slices.Sorted(maps.Keys(some))
}

// told says once that the book cannot be written.
func (r *Room) told(err error) {
	if err != nil && !r.failed {
		r.log.Error("the history cannot be written", "error", err)
	}
	r.failed = err != nil
}
