package preempt

import (
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/links"
	"github.com/muster-gpu/muster/engine/order"
	"github.com/muster-gpu/muster/engine/placement"
	"github.com/muster-gpu/muster/engine/sched"
	"github.com/muster-gpu/muster/quota"
)

// running is jobs that hold devices, and how all of them are stopped.
type running struct {
	sched.Oracle
	jobs []*job.State
	list order.List
}

func (r *running) Jobs() []*job.State                { return r.jobs }
func (r *running) Running() *order.List              { return &r.list }
func (r *running) Company(*job.State) *links.Company { return nil }
func (r *running) HowToStop(*job.State) job.How      { return job.Kill }

// add has a job of a queue run on a GPU of a node, which loses so much work when it is killed.
func (r *running) add(queue, node int32, tier cluster.Tier, loses time.Duration) *job.State {
	j := &job.State{Spec: &cluster.Job{ID: cluster.JobID(len(r.jobs)), Tier: tier}, Tenure: &job.Tenure{},
		Facts: job.Facts{State: job.Running}, Queue: queue, Milli: cluster.Whole}
	j.Done, j.Allocs = loses, []inventory.Alloc{{Node: node, GPUs: 1}}
	r.jobs = append(r.jobs, j)
	r.list.Insert(order.Item{ID: int32(j.Spec.ID)})
	return j
}

func (r *running) finder(tree *quota.Tree) *Finder {
	w := &sched.World{Oracle: r, Tree: tree}
	f := New(Rules{}, &placement.Finder{World: w, Around: r}, nil, nil)
	return &f
}

// TestLeastOn: of the jobs on a node that may not stay the one leaves that loses least; critical ones never do.
func TestLeastOn(t *testing.T) {
	r := &running{}
	r.add(0, 0, cluster.Critical, 0)
	r.add(0, 1, cluster.Standard, time.Minute)
	stays := r.add(0, 0, cluster.Standard, time.Minute)
	r.add(0, 0, cluster.Standard, 3*time.Minute)
	want := r.add(0, 0, cluster.Standard, 2*time.Minute)
	f := r.finder(nil)
	inside := func(v *job.State) bool { return v == stays }
	if got := f.LeastOn(0, inside); got != want {
		t.Errorf("%v leaves", got)
	}
	if got := f.LeastOn(2, inside); got != nil {
		t.Errorf("%v leaves a node where it is not", got)
	}
}

// TestLeastBorrower: the job leaves the queue that borrows most by its weight, of those that any can leave.
func TestLeastBorrower(t *testing.T) {
	queues := []cluster.Queue{{Name: "a", Guarantee: 2000}, {Name: "b", Guarantee: 1000}, {Name: "c", Guarantee: 1000}}
	for i := range queues {
		queues[i].Limit, queues[i].Lend, queues[i].Weight = cluster.Unlimited, cluster.Unlimited, 1
	}
	tree, err := quota.New(queues, 8000)
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) int32 {
		q, ok := tree.Index(name)
		if !ok {
			t.Fatalf("no queue is named %s", name)
		}
		return int32(q)
	}
	r := &running{}
	f := r.finder(tree)
	use := func(name string, n int, tier cluster.Tier) {
		for range n {
			j := r.add(at(name), 0, tier, time.Duration(len(r.jobs))*time.Minute)
			tree.Charge(int(j.Queue), j.Milli, tier == cluster.Critical)
		}
	}
	if use("a", 2, cluster.Standard); f.LeastBorrower() != nil {
		t.Error("a job leaves a queue that borrows nothing")
	}
	use("c", 4, cluster.Critical)
	if f.LeastBorrower() != nil {
		t.Error("a critical job leaves")
	}
	if use("b", 3, cluster.Standard); f.LeastBorrower() != r.jobs[6] {
		t.Errorf("%v leaves, not the one of b that loses least", f.LeastBorrower())
	}
}
