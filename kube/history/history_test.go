package history

import (
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

// taken is what a book was told.
type taken struct {
	nodes []int
	jobs  []cluster.Job
	fails bool
}

func (b *taken) Cluster(nodes []cluster.Node, _ []cluster.Queue) error {
	if b.fails {
		return errors.New("the disk is full")
	}
	b.nodes = append(b.nodes, len(nodes))
	return nil
}

func (b *taken) Ended(job *cluster.Job, _ time.Duration, _ engine.StopReason, _ cluster.Time) error {
	b.jobs = append(b.jobs, *job)
	return nil
}

// A book is told of the nodes that are there, at most once an hour, and again when it could not be; of other CPU and
// memory it is not told.
func TestCluster(t *testing.T) {
	b := &taken{fails: true}
	r := New(b, slog.New(slog.NewTextHandler(t.Output(), nil)))
	there := func(name string) bool { return name != "gone" }
	spec := cluster.Spec{Nodes: []cluster.Node{{Name: "a", GPUs: 8}, {Name: "gone"}}}
	at := func(minutes int) cluster.Time { return cluster.Time(minutes+1) * cluster.Time(time.Minute) }
	r.Cluster(at(0), &spec, there, nil)
	if !r.Missing() {
		t.Error("it is not known that the book could not be written")
	}
	b.fails = false
	r.Cluster(at(1), &spec, there, nil)
	spec.Nodes = append(spec.Nodes, cluster.Node{Name: "b", GPUs: 8})
	r.Cluster(at(2), &spec, there, nil)
	r.Cluster(at(62), &spec, there, nil)
	spec.Nodes[0].CPU = 5
	r.Cluster(at(200), &spec, there, nil)
	if r.Missing() || !slices.Equal(b.nodes, []int{1, 2}) {
		t.Errorf("missing %v, nodes %v", r.Missing(), b.nodes)
	}
}

// A job that names a set of nodes is of their GPU models, where these are not all that there are.
func TestModels(t *testing.T) {
	nodes := []cluster.Node{{Name: "a", Model: "A100-80GB", GPUs: 8}, {Name: "h", Model: "H100-80GB", GPUs: 8},
		{Name: "cpu"}}
	for _, c := range []struct{ names, want []string }{
		{[]string{"a"}, []string{"A100-80GB"}}, {[]string{"a", "h"}, nil}, {[]string{"cpu"}, nil},
		{[]string{"h", "cpu"}, []string{"H100-80GB"}},
	} {
		if got := modelsIn(nodes, c.names); !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, not %v", c.names, got, c.want)
		}
	}
}
