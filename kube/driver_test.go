package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/driver"
	"github.com/muster-gpu/muster/driver/drivertest"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/journal"
	"github.com/muster-gpu/muster/kube/nodes"
	"github.com/muster-gpu/muster/kube/retry"
)

// testConform: a Kubernetes cluster passes the suite that every driver passes,
// with pods of a real API server.
func testConform(b *bench) {
	drivertest.Run(b.T, func(t *testing.T, f *drivertest.Fixture) driver.Driver {
		s := b.under(t)
		t.Cleanup(func() {
			s.ctx = context.Background()
			s.audit()
			s.clear()
		})
		return newConform(s, f)
	})
}

// conform lets a driver be driven by an engine that is not its own: both must
// decide the same. It plays all that is not the scheduler, too: what submits
// jobs and cancels them, and the node on which they end.
type conform struct {
	*bench
	d     *Driver
	begin time.Time
	last  engine.Batch
	fresh bool // the last batch has yet to be applied
	// What comes from outside could not be done, and does not come any more.
	broken context.Context
	broke  context.CancelCauseFunc

	mu   sync.Mutex
	jobs []*contract
	ids  map[cluster.JobID]*contract
}

// contract is a job of the suite: a pod, or one after the other.
type contract struct {
	drivertest.Job
	name    string    // of the present pod
	tries   int       // pods that were made
	told    bool      // the engine knows of the present one
	away    bool      // ... and that it is gone
	started time.Time // of the present one; zero: it has not
	ended   bool      // it was ended, as its run time or limit is over
	cancel  bool      // it was cancelled
	done    bool
}

// own is what a cluster does by itself. The suite expects no less of it; it
// expects it of the cluster.
var own = drivertest.Own{
	Size:  "what a pod asks for of GPUs cannot be changed, and a gang has the pods that its owner made",
	Limit: "activeDeadlineSeconds is kept by the kubelet and the Job controller, also where no scheduler runs",
	Again: "an evicted pod is deleted: its owner makes another, with another UID",
}

// newConform makes a driver for a fixture, whose first job is submitted already.
func newConform(b *bench, f *drivertest.Fixture) *conform {
	b.Helper()
	c := &conform{bench: b, ids: map[cluster.JobID]*contract{}}
	c.broken, c.broke = context.WithCancelCause(context.Background())
	b.Cleanup(func() { c.broke(nil) })
	for i := range f.Jobs {
		c.jobs = append(c.jobs, &contract{Job: f.Jobs[i]})
	}
	for i := range f.Spec.Nodes {
		n := nodeOf(&f.Spec.Nodes[i])
		n.Labels["nvidia.com/gpu.product"], n.Labels["nvidia.com/gpu.memory"] = "Tesla-T4", "15360"
		if _, err := b.c.CoreV1().Nodes().Create(b.ctx, n, metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	b.wait("the nodes are ready", func() bool {
		list, err := b.c.CoreV1().Nodes().List(b.ctx, metav1.ListOptions{})
		return err == nil &&
			!slices.ContainsFunc(list.Items, func(n v1.Node) bool { return !(&nodes.Node{Obj: &n}).Up() })
	})
	opt := testOptions(b.p.Client(), slog.New(slog.NewTextHandler(b.log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	opt.Rules.Backfill = ""
	opt.Rules.Stop = &[3]engine.StopRule{{How: engine.Kill}, {How: engine.Checkpoint, Grace: time.Second},
		{How: engine.Kill, Grace: 50 * time.Millisecond}}
	opt.Journal = func(h journal.Header) (Recorder, error) {
		f.Spec = h.Spec
		return unread{}, nil
	}
	c.start(New(opt))
	f.Late, f.Own = time.Minute, own
	for i, n := range f.Spec.Nodes {
		if n.GPUs != 4 || n.Model != "T4-16GB" {
			b.Fatalf("node %d has %d GPUs of model %q", i, n.GPUs, n.Model)
		}
	}
	return c
}

// unread is a journal that is not read: what begins it is looked at only.
type unread struct{}

func (unread) Record(*engine.Batch, *engine.Decision) error { return nil }
func (unread) Close() error                                 { return nil }

// start does what Run does before its loop, and submits the first job.
func (c *conform) start(d *Driver) {
	c.Helper()
	c.d = d
	ctx, cancel := context.WithCancel(context.Background())
	for range d.opt.Workers {
		d.workers.Go(func() { d.writer.Work(ctx) })
	}
	d.workers.Go(func() { d.notices.Run(ctx) })
	c.Cleanup(func() {
		cancel()
		d.workers.Wait()
	})
	if err := d.arrive(ctx); err != nil {
		c.Fatal(err)
	}
	if err := c.submit(c.jobs[0]); err != nil {
		c.Fatal(err)
	}
	c.begin = time.Now()
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.play()
	}()
	c.Cleanup(func() { <-done })
}

// Next ends when all jobs are over.
func (c *conform) Next(ctx context.Context) (engine.Batch, error) {
	c.mu.Lock()
	over := !slices.ContainsFunc(c.jobs, func(j *contract) bool { return !j.done })
	c.mu.Unlock()
	if over {
		return engine.Batch{}, io.EOF
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.broken, cancel)()
	b, err := c.d.Next(ctx)
	if c.broken.Err() != nil { // nothing more will happen
		return engine.Batch{}, context.Cause(c.broken)
	}
	if errors.Is(err, errRenew) {
		err = fmt.Errorf("%w (%s), though nothing is new to it", err, c.d.stale)
	}
	c.last, c.fresh = b, true
	return b, err
}

// Apply steps the driver's own engine, compares, and carries out. A decision that
// comes again is carried out again.
func (c *conform) Apply(ctx context.Context, dec engine.Decision) error {
	if !c.fresh {
		return c.d.Apply(ctx, dec)
	}
	c.fresh = false
	mine := c.d.eng.Step(c.last)
	if len(mine.Actions)+len(dec.Actions) > 0 && !reflect.DeepEqual(mine.Actions, dec.Actions) {
		c.Errorf("two engines decide differently:\n%+v\n%+v", mine.Actions, dec.Actions)
	}
	if err := c.d.Apply(ctx, dec); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.last.Events {
		c.heard(&c.last.Events[i])
	}
	return nil
}

// heard notes what the engine was told.
func (c *conform) heard(ev *engine.Event) {
	if ev.Type == engine.Submitted {
		for _, j := range c.jobs {
			if ev.Spec.Name == "default/"+j.name {
				c.ids[ev.Job], j.told = j, true
			}
		}
	}
	j := c.ids[ev.Job]
	if j == nil {
		return
	}
	switch ev.Type {
	case engine.Started:
		j.started = time.Now()
	case engine.Stopped, engine.Cancelled:
		j.away = true
		j.done = ev.Type == engine.Stopped && ev.Reason != engine.Preempted || j.cancel
	}
}

// play does what comes from outside, each at its time, and in order also where the
// machine that this runs on is late: nothing is done before the driver has decided
// upon what was done before.
func (c *conform) play() {
	for retry.Pause(c.ctx, 5*time.Millisecond) {
		c.mu.Lock()
		err := c.next()
		c.mu.Unlock()
		if err != nil && c.ctx.Err() == nil {
			c.broke(err)
			return
		}
	}
}

// next does what has to be done first, if its time has come.
func (c *conform) next() error {
	var do func() error
	first := time.Now()
	for _, j := range c.jobs {
		if j.tries > 0 && (!j.told || (j.ended || j.cancel) && !j.away) {
			return nil
		}
		if at, f := c.due(j); f != nil && at.Before(first) {
			first, do = at, f
		}
	}
	if do == nil {
		return nil
	}
	return do()
}

// due is what has to be done about a job, and when.
func (c *conform) due(j *contract) (at time.Time, do func() error) {
	switch {
	case j.done:
		return at, nil
	case j.tries == 0:
		return c.begin.Add(time.Duration(j.Job.Job.Submit)), func() error { return c.submit(j) }
	case j.away: // it had to leave
		return c.begin, func() error { return c.submit(j) }
	}
	if j.Cancel > 0 {
		at, do = c.begin.Add(j.Cancel), func() error { return c.withdraw(j) }
	}
	run := cmp.Or(j.Job.Job.Limit, j.Run)
	if end := j.started.Add(run); run > 0 && !j.started.IsZero() && (do == nil || end.Before(at)) {
		at, do = end, func() error { return c.end(j) }
	}
	return at, do
}

// submit makes a job's pod.
func (c *conform) submit(j *contract) error {
	p := podsOf(&j.Job.Job)[0]
	p.Name = fmt.Sprintf("job%d-%d", j.Job.Job.ID, j.tries)
	p.Labels[LabelGang] = p.Name
	if l := j.Job.Job.Limit; l > 0 {
		most := int64(math.Ceil(l.Seconds()))
		p.Spec.ActiveDeadlineSeconds = &most
	}
	j.name, j.told, j.away, j.started, j.ended = p.Name, false, false, time.Time{}, false
	j.tries++
	_, err := c.c.CoreV1().Pods(p.Namespace).Create(c.ctx, p, metav1.CreateOptions{})
	return err
}

// withdraw is a person who cancels a job.
func (c *conform) withdraw(j *contract) error {
	j.cancel = true
	err := c.c.CoreV1().Pods("default").Delete(c.ctx, j.name, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) { // it had to leave in this very moment
		return nil
	}
	return err
}

// end is the end of a job on its node, as its kubelet reports it. One that has to
// leave does that.
func (c *conform) end(j *contract) error {
	pods := c.c.CoreV1().Pods("default")
	p, err := pods.Get(c.ctx, j.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) || err == nil && (p.DeletionTimestamp != nil || p.Status.Phase != v1.PodRunning):
		return nil
	case err != nil:
		return err
	}
	j.ended = true
	text := `{"status": {"phase": "Succeeded"}}`
	switch {
	case j.Job.Job.Limit > 0:
		text = `{"status": {"phase": "Failed", "reason": "DeadlineExceeded"}}`
	case j.Fails:
		text = `{"status": {"phase": "Failed"}}`
	}
	_, err = pods.Patch(c.ctx, j.name, types.StrategicMergePatchType, []byte(text), metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) { // it had to leave in this very moment
		return nil
	}
	return err
}
