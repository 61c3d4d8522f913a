//go:build linux

package local

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/driver"
	"github.com/muster-gpu/muster/driver/drivertest"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/local/account"
	"github.com/muster-gpu/muster/local/record"
	"github.com/muster-gpu/muster/show"
	"github.com/muster-gpu/muster/slurm"
)

// testOptions are those of a machine with a state of its own and these nodes.
func testOptions(t testing.TB, spec *cluster.Spec) Options {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	opt := Options{Dir: filepath.Join(folder(t), "state"), Now: time.Now,
		Log:  slog.New(slog.NewTextHandler(testLog{t}, nil)),
		Shim: []string{exe, shimWord}, KillWait: 200 * time.Millisecond, Variables: slurm.Variables,
		Rules: config.Rules{Spec: *spec, Policy: "fifo", Placer: "best-fit",
			Stop: &[3]engine.StopRule{{How: engine.Kill}, {How: engine.Checkpoint, Grace: time.Second},
				{How: engine.Kill, Grace: 50 * time.Millisecond}}}}
	for i := range spec.Nodes[0].GPUs {
		opt.GPUs = append(opt.GPUs,
			show.GPU{Index: i, UUID: fmt.Sprintf("GPU-simulated-%d", i), Simulated: true, Healthy: true})
	}
	return opt
}

// folder is a temporary one for the test. A task that is being killed may still
// write to it when the test is over.
func folder(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "muster")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for range 200 {
			if err = os.RemoveAll(dir); err == nil {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
		t.Error(err)
	})
	return dir
}

// testLog is a test's log, which a machine may write to until it is closed.
type testLog struct{ t testing.TB }

func (l testLog) Write(b []byte) (int, error) {
	l.t.Logf("%s", b)
	return len(b), nil
}

// openMachine opens a machine that ends with the test, and its tasks with it.
func openMachine(t *testing.T, opt Options) *Machine {
	t.Helper()
	m, err := Open(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeMachine(t, m) })
	return m
}

// closeMachine ends a machine and whatever it left running.
func closeMachine(t *testing.T, m *Machine) {
	t.Helper()
	m.stopped()
	m.runners.Wait()
	_ = m.store.Close()
	m.jobs = nil
	if err := m.sweep(); err != nil {
		t.Error(err)
	}
}

// self is the user of the test.
func self(t testing.TB) User {
	t.Helper()
	u, err := account.UserOf(os.Getuid())
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// conform lets a machine be driven by an engine that is not its own: both must
// decide the same.
type conform struct {
	t    *testing.T
	m    *Machine
	left int // jobs that have yet to be submitted
	last engine.Batch
	own  engine.Decision
	mine bool // the last batch was applied
}

func newConform(t *testing.T, f *drivertest.Fixture) driver.Driver {
	f.Late = 2 * time.Second
	m := openMachine(t, testOptions(t, &f.Spec))
	m.next = 0 // the suite counts from there
	d := &conform{t: t, m: m, left: len(f.Jobs)}
	u := self(t)
	var list []happening
	for i := range f.Jobs {
		j := &f.Jobs[i]
		list = append(list, happening{time.Duration(j.Job.Submit), func(now cluster.Time) []engine.Event {
			d.left--
			spec := j.Job
			spec.Submit = now
			m.next = spec.ID
			made := m.newJob(&ask.Submission{Name: "job", Command: command(j), Dir: "/", Output: "/dev/null"}, spec,
				&record.Info{User: u, Record: engine.JobRecord{Facts: engine.JobFacts{Since: spec.Submit}}})
			m.next = max(m.next, cluster.JobID(len(f.Jobs)))
			return []engine.Event{{Type: engine.Submitted, Job: made.ID, Spec: made.Spec}}
		}})
		if j.Cancel > 0 {
			list = append(list, happening{j.Cancel, func(cluster.Time) []engine.Event {
				return []engine.Event{{Type: engine.Cancelled, Job: j.Job.ID}}
			}})
		}
	}
	d.happen(list)
	return d
}

// command is what a job of the suite executes.
func command(j *drivertest.Job) []string {
	sleep := fmt.Sprintf("sleep %.3f", j.Run.Seconds())
	if j.Run == 0 {
		sleep = "while :; do sleep 1; done"
	}
	if j.Fails {
		sleep += "; exit 3"
	}
	return []string{"sh", "-c", sleep}
}

// happening is what comes from outside at a time after the beginning.
type happening struct {
	after  time.Duration
	events func(cluster.Time) []engine.Event
}

// happen puts what happens into the inbox, in order also where the machine that
// the test runs on is late.
func (d *conform) happen(list []happening) {
	slices.SortStableFunc(list, func(a, b happening) int { return cmp.Compare(a.after, b.after) })
	put := func(h happening) {
		d.m.inbox.Put(func(now cluster.Time) ([]engine.Event, func(error)) { return h.events(now), nil })
	}
	for len(list) > 0 && list[0].after <= 0 {
		put(list[0])
		list = list[1:]
	}
	begin := time.Now()
	ctx := d.t.Context()
	go func() {
		for _, h := range list {
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Until(begin.Add(h.after))):
				put(h)
			}
		}
	}()
}

// Next ends when all jobs were submitted and are over.
func (d *conform) Next(ctx context.Context) (engine.Batch, error) {
	d.m.mu.RLock()
	over := d.left == 0 && len(d.m.jobs) == 0
	d.m.mu.RUnlock()
	if over {
		return engine.Batch{}, io.EOF
	}
	b, err := d.m.Next(ctx)
	d.last, d.mine = b, true
	return b, err
}

// Apply steps the machine's own engine, compares, and carries out. A decision
// that comes again is carried out again.
func (d *conform) Apply(ctx context.Context, dec engine.Decision) error {
	if !d.mine {
		d.m.mu.Lock()
		return d.m.Apply(ctx, dec)
	}
	d.mine = false
	d.own = d.m.eng.Step(d.last)
	if len(d.own.Actions)+len(dec.Actions) > 0 && !reflect.DeepEqual(d.own.Actions, dec.Actions) {
		d.t.Errorf("two engines decide differently:\n%+v\n%+v", d.own.Actions, dec.Actions)
	}
	if err := d.m.Record(&d.last, &d.own); err != nil {
		return err
	}
	return d.m.Apply(ctx, dec)
}

// TestDriver: this machine passes the suite that every driver passes, with real
// processes.
func TestDriver(t *testing.T) { drivertest.Run(t, newConform) }
