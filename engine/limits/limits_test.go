package limits

import (
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/lending"
	"github.com/muster-gpu/muster/engine/order"
	"github.com/muster-gpu/muster/engine/sched"
	"github.com/muster-gpu/muster/engine/shape"
)

// room is a node of eight GPUs, and jobs in queues.
type room struct {
	st    inventory.Store
	table shape.Table
	world sched.World
	book  Book
	jobs  []*job.State
	ends  order.List
}

func newRoom(t *testing.T, queues ...cluster.Queue) *room {
	r := &room{}
	n := cluster.Node{Name: "n", Model: "T4", GPUs: 8}
	if _, err := r.st.Add(n, cluster.GPUModel{Name: "T4"}, 1, 0); err != nil {
		t.Fatal(err)
	}
	r.table = shape.NewTable(&r.st, map[string]int32{"n": 0}, false)
	r.world = sched.World{Store: &r.st, Shapes: &r.table}
	var err error
	r.book, err = New(&r.world, &cluster.Spec{Queues: queues}, lending.New(&r.st, &r.table), 24*time.Hour, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	r.init(t, queues, nil)
	return r
}

func (r *room) init(t *testing.T, queues, removed []cluster.Queue) {
	t.Helper()
	if _, err := r.book.Init(queues, removed, 8000); err != nil {
		t.Fatal(err)
	}
	r.book.Tick(func() {})
}

// add makes a job of so many GPUs that runs until then; 0: it waits.
func (r *room) add(t *testing.T, queue string, gpus int, until time.Duration) *job.State {
	t.Helper()
	spec := &cluster.Job{ID: cluster.JobID(len(r.jobs)), Queue: queue, Tier: cluster.Standard,
		Tasks: []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: gpus}}}}
	j := &job.State{Tenure: &job.Tenure{}, Spec: spec, Milli: int64(gpus) * 1000}
	j.Shape, _ = r.table.Of(j.Spec)
	q, err := r.book.Of(j.Spec)
	if err != nil {
		t.Fatal(err)
	}
	j.Queue = int32(q)
	r.jobs = append(r.jobs, j)
	if until > 0 {
		j.State = job.Running
		r.book.Bill(j, 1)
		r.ends.Insert(order.Item{Key: order.Key{int64(until)}, ID: int32(j.Spec.ID)})
	}
	return j
}

// A job starts when enough of its queue has ended; looking changes nothing of what is used.
func TestFreeAt(t *testing.T) {
	r := newRoom(t, cluster.Queue{Name: "a", Limit: 4000, Lend: cluster.Unlimited})
	r.add(t, "a", 1, time.Hour)
	r.add(t, "a", 3, 2*time.Hour)
	freeAt := func(gpus int) cluster.Time {
		return r.book.FreeAt(r.add(t, "a", gpus, 0), r.jobs, &r.ends, func(*job.State) cluster.Time { return 0 })
	}
	for gpus, want := range map[int]cluster.Time{1: cluster.Time(time.Hour), 2: cluster.Time(2 * time.Hour),
		5: cluster.Never} {
		if got := freeAt(gpus); got != want {
			t.Errorf("%d GPUs at %v, want %v", gpus, got, want)
		}
	}
	if err := r.book.CheckUse(r.jobs); err != nil {
		t.Error(err)
	}
	if text := r.book.Beyond(r.add(t, "a", 5, 0)); text != "asks for 5 GPUs; queue a is limited to 4" {
		t.Error(text)
	}
}

// A window that opens at one o'clock allows what the queue does not allow before; the tree is as before afterwards.
func TestFreeAtWindow(t *testing.T) {
	r := newRoom(t, cluster.Queue{Name: "a", Limit: 1000, Lend: cluster.Unlimited, Windows: []cluster.Window{
		{From: time.Hour, To: 2 * time.Hour, Guarantee: cluster.Unlimited, Limit: 4000}}})
	j := r.add(t, "a", 2, 0)
	if got := r.book.FreeAt(j, r.jobs, &r.ends, nil); got != cluster.Time(time.Hour) {
		t.Errorf("at %v", got)
	}
	if r.book.Allows(j, 2000) || r.book.NextChange() > cluster.Time(time.Hour) {
		t.Errorf("allowed at midnight, or the next change is at %v", r.book.NextChange())
	}
	left := 0
	r.world.Now = cluster.Time(time.Hour)
	if !r.book.Tick(func() { left++ }) || left != 1 || !r.book.Allows(j, 2000) {
		t.Errorf("within the window: jobs were told to leave %d times, allowed %v", left, r.book.Allows(j, 2000))
	}
}

// A queue that is removed keeps the jobs that run in it, under another name, and takes no others; what the others used
// is kept.
func TestRemovedQueue(t *testing.T) {
	a := cluster.Queue{Name: "a", Limit: cluster.Unlimited, Lend: cluster.Unlimited, Budget: 100}
	r := newRoom(t, a, cluster.Queue{Name: "b", Limit: cluster.Unlimited, Lend: cluster.Unlimited})
	r.add(t, "a", 2, time.Hour)
	gone := r.add(t, "b", 3, time.Hour)
	r.world.Now = cluster.Time(30 * time.Minute)
	history := r.book.History()
	open := []cluster.Queue{a}
	r.init(t, open, nil)
	removed := r.book.Removed(r.jobs)
	r.init(t, open, removed)
	r.book.GoOn(history)
	if q := r.book.Remains("b"); len(removed) != 1 || !r.book.Closed(q) || r.world.Tree.Name(q) != "b (removed)" {
		t.Errorf("removed are %+v, b is now queue %d", removed, q)
	}
	if _, err := r.book.Of(gone.Spec); err == nil || strings.Contains(err.Error(), "removed") {
		t.Errorf("it takes jobs, or is offered: %v", err)
	}
	if _, budgets := r.book.Usage(); len(budgets) != 1 || budgets[0].Spent != 2000*(30*time.Minute).Milliseconds() {
		t.Errorf("of 2 GPUs for half an hour %+v is booked", budgets)
	}
}
