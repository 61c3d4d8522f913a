//go:build linux

package local

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/journal"
	"github.com/muster-gpu/muster/local/observe"
	"github.com/muster-gpu/muster/local/rules"
	"github.com/muster-gpu/muster/show"
)

// open2 are two queues without limits.
func open2(names ...string) (list []cluster.Queue) {
	for _, n := range names {
		list = append(list, cluster.Queue{Name: n, Limit: cluster.Unlimited, Lend: cluster.Unlimited})
	}
	return list
}

func inQueue(name string) func(*ask.Submission) {
	return func(s *ask.Submission) { s.Queue = name }
}

// New settings count as a whole or not at all, and cost no job: who would lose
// its queue or its partition keeps the old ones in force.
func TestReconfigure(t *testing.T) {
	m := alive(t, func(o *Options) { o.Rules.Spec.Queues = open2("a", "b") })
	running := submit(t, m, "sleep 1000", inQueue("a"), func(s *ask.Submission) { s.GPUs = 2 })
	until(t, m, running, show.StateRunning)
	waiting := submit(t, m, "sleep 1000", inQueue("b"))
	old := m.settings()
	for name, c := range map[string]struct {
		change func(*rules.Settings)
		want   string
	}{
		"a queue of a waiting job": {func(s *rules.Settings) { s.Queues = open2("a") }, "queue b would be gone"},
		"an unknown policy":        {func(s *rules.Settings) { s.Policy = "lass" }, `did you mean "las"?`},
		"more than there is": {func(s *rules.Settings) {
			s.Queues = open2("a", "b")
			s.Queues[0].Guarantee = 9000
		}, "guarantees"},
		"a partition of no node": {func(s *rules.Settings) {
			s.Partitions = []cluster.Partition{{Name: "p", Nodes: []string{"nowhere"}}}
		}, "nowhere"},
		"a queue that is there twice": {func(s *rules.Settings) { s.Queues = open2("a", "b", "b") }, "defined twice"},
	} {
		s := old
		s.HourCost, s.KillWait = 7, time.Hour
		c.change(&s)
		if _, err := m.Reconfigure(t.Context(), s, "ann", "x: 1 -> 2"); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if now := m.settings(); !reflect.DeepEqual(now, old) {
			t.Errorf("%s: the settings are %+v", name, now)
		}
	}
	s := old
	s.Queues, s.HourCost, s.Members = open2("b", "c"), 2,
		map[string]rules.Members{"c": {Users: []string{"nobody-at-all"}}}
	s.Idle = &observe.IdleRules{Below: 5, Warn: time.Hour}
	s.Partitions = []cluster.Partition{{Name: "short", Nodes: []string{"n1"}, Default: true, MaxTime: time.Hour}}
	notes, err := m.Reconfigure(t.Context(), s, "ann", "x: 1 -> 2")
	if err != nil || len(notes) != 1 || !strings.Contains(notes[0], `queue "a" is gone`) {
		t.Fatalf("%v %v", notes, err)
	}
	if j := until(t, m, running, show.StateRunning); j.Restarts != 0 {
		t.Errorf("the running job was started again: %+v", j)
	}
	if _, err := m.Submit(t.Context(), self(t), &ask.Submission{Command: []string{"true"}, Queue: "c"},
		""); err == nil {
		t.Error("the new members do not count")
	}
	if _, err := m.Submit(t.Context(), self(t),
		&ask.Submission{Command: []string{"true"}, Queue: "b", Limit: ask.Duration(2 * time.Hour)}, ""); err == nil {
		t.Error("the new partition's longest time does not count")
	}
	if u, err := m.Usage(t.Context(), "user", m.opt.Now().Add(-time.Hour)); err != nil || u.HourCost != 2 {
		t.Errorf("cost %v, %v", u.HourCost, err)
	}
	p, err := m.Policy(t.Context())
	if err != nil || len(p.Changes) != 1 || p.Changes[0].Text != "ann: x: 1 -> 2" || p.By != "the configuration" {
		t.Errorf("%+v, %v", p, err)
	}
	if err := m.Act(t.Context(), running, "cancel", ""); err != nil {
		t.Fatal(err)
	}
	until(t, m, waiting, show.StateRunning)
	if m.idle.Load() != s.Idle {
		t.Error("the new rules for idle jobs do not count")
	}
	cancelAll(t, m, waiting)
	replaysAll(t, m)
}

// A partition that a job names cannot vanish under it.
func TestPartitionStays(t *testing.T) {
	m := alive(t, func(o *Options) {
		o.Rules.Spec.Partitions = []cluster.Partition{{Name: "p", Nodes: []string{"n1"}, Default: true}}
	})
	id := submit(t, m, "sleep 1000", func(s *ask.Submission) { s.Partitions = []string{"p"} })
	until(t, m, id, show.StateRunning)
	s := m.settings()
	s.Partitions = nil
	if _, err := m.Reconfigure(t.Context(), s, "ann", ""); err == nil ||
		!strings.Contains(err.Error(), "partition p would be gone") {
		t.Errorf("%v", err)
	}
	cancelAll(t, m, id)
}

// To ask what a policy would change changes nothing; to set it does, for those
// who read meanwhile, too, and the next daemon goes on with it until the
// configuration speaks.
func TestSetPolicy(t *testing.T) {
	opt := testOptions(t, &cluster.Spec{Nodes: []cluster.Node{{Name: "n1", Model: "T4-16GB", GPUs: 2}}})
	m := alive(t, func(o *Options) { o.Dir = opt.Dir })
	first := submit(t, m, "sleep 1000", func(s *ask.Submission) { s.GPUs = 2; s.Estimate = ask.Duration(time.Hour) })
	until(t, m, first, show.StateRunning)
	second := submit(t, m, "sleep 1000", func(s *ask.Submission) { s.GPUs = 2; s.Estimate = ask.Duration(time.Minute) })
	hash := func() uint64 { m.mu.RLock(); defer m.mu.RUnlock(); s := m.eng.Snapshot(); return s.Hash }
	was := hash()
	v, err := m.TryPolicy(&ask.PolicyRequest{Policy: "srtf"})
	if err != nil || len(v.Starts) != 1 || v.Starts[0].Job != second || v.Starts[0].Before != 1 ||
		len(v.Preempted) != 1 || v.Preempted[0].Job != first || v.Preempted[0].For != second || len(v.Waiting) != 1 ||
		v.Waiting[0].Job != first {
		t.Errorf("%+v, %v", v, err)
	}
	if v, err := m.TryPolicy(&ask.PolicyRequest{Policy: "fifo"}); err != nil || len(v.Starts)+len(v.Preempted) > 0 {
		t.Errorf("the same policy: %+v, %v", v, err)
	}
	if hash() != was {
		t.Error("a question changed the engine")
	}
	for _, r := range []ask.PolicyRequest{{}, {Policy: "fifo:x=1"}, {Place: "nowhere"}, {Backfill: "never"},
		{FromConfig: true, Policy: "las"}} {
		if _, err := m.SetPolicy(t.Context(), &r, "ann"); err == nil {
			t.Errorf("%+v is accepted", r)
		}
	}
	stop := make(chan struct{})
	go func() { // whoever looks sees the state between two steps
		defer close(stop)
		for range 50 {
			_, _ = m.Why(t.Context(), second, &User{})
			m.Overview()
			m.Partitions()
			_, _ = m.Usage(t.Context(), "user", m.opt.Now())
		}
	}()
	for _, name := range []string{"las", "sjf", "multifactor", "srtf"} {
		if _, err := m.SetPolicy(t.Context(), &ask.PolicyRequest{Policy: name, Backfill: "own"}, "ann"); err != nil {
			t.Error(err)
		}
	}
	<-stop
	until(t, m, second, show.StateRunning)
	cancelAll(t, m, first, second)
	replaysAll(t, m)
}

// cancelAll ends the jobs, so that nothing writes into the test's folder when it
// is removed.
func cancelAll(t *testing.T, m *Machine, ids ...int) {
	t.Helper()
	for _, id := range ids {
		if err := m.Act(t.Context(), id, "cancel", ""); err != nil {
			t.Error(err)
		}
	}
	for _, id := range ids {
		until(t, m, id, show.StateCancelled)
	}
}

// replaysAll takes the decisions of every segment of the journal again.
func replaysAll(t *testing.T, m *Machine) {
	t.Helper()
	list, err := m.store.Segments(t.Context())
	if err != nil || len(list) < 2 {
		t.Fatalf("%d segments, %v", len(list), err)
	}
	for i := range list {
		replaySegment(t, m, i+1)
	}
}

func replaySegment(t *testing.T, m *Machine, n int) {
	t.Helper()
	var text bytes.Buffer
	if err := m.Journal().Write(t.Context(), n, &text); err != nil {
		t.Fatal(err)
	}
	r, err := journal.NewReader("segment", &text)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := journal.Replay(r, cluster.Never); err != nil {
		t.Errorf("segment %d: %v", n, err)
	}
}

// The policy that was set live goes before what the configuration says, until
// that says something new; the choice survives the daemon in either case.
func TestPolicyLasts(t *testing.T) {
	opt := testOptions(t, &cluster.Spec{Nodes: []cluster.Node{{Name: "n1", Model: "T4-16GB", GPUs: 2}}})
	begin := func(configured string) *Machine {
		o := opt
		o.Rules.Policy = configured
		m, err := Open(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	set := func(m *Machine, name string) { // as the loop does it
		tn := &turn{t.Context(), func(s *rules.Settings, p *rules.Standing) (string, string, error) {
			*p = rules.Standing{Choice: rules.Choice{Policy: name, Placer: s.Placer, Backfill: s.Backfill},
				Configured: p.Configured, Live: true, At: m.opt.Now(), By: "ann"}
			s.Policy = name
			return rules.PolicyChange, name, nil
		}, make(chan error, 1)}
		m.turns = append(m.turns, tn)
		m.turnAll()
		if err := <-tn.done; err != nil {
			t.Fatal(err)
		}
	}
	for i, c := range []struct{ configured, want, set string }{
		{"fifo", "fifo", "las"}, {"fifo", "las", ""}, {"fifo", "las", "srtf"}, {"fifo", "srtf", ""},
		{"sjf", "sjf", ""}, {"fifo", "fifo", ""}, {"fifo", "fifo", "las"}, {"las", "las", ""}, {"fifo", "fifo", ""},
	} {
		m := begin(c.configured)
		if got, _ := m.Scheduling(); got != c.want {
			t.Errorf("daemon %d: %s configured, %s counts, not %s", i+1, c.configured, got, c.want)
		}
		if c.set != "" {
			set(m, c.set)
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A job whose queue was removed while the daemon was down ends, with the reason
// on record; it does not wait for ever.
func TestQueueGone(t *testing.T) {
	opt := testOptions(t,
		&cluster.Spec{Nodes: []cluster.Node{{Name: "n1", Model: "T4-16GB", GPUs: 2}}, Queues: open2("a", "b")})
	ctx, stop := context.WithCancel(t.Context())
	m, err := Open(ctx, opt)
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan error, 1)
	go func() { over <- m.Run(ctx) }()
	id := submit(t, m, "true", inQueue("b"), func(s *ask.Submission) { s.Hold = true })
	stop()
	if err := <-over; err != nil {
		t.Fatal(err)
	}
	opt.Rules.Spec.Queues = open2("a")
	m = openMachine(t, opt)
	j, err := m.Job(t.Context(), id)
	if err != nil || j.State != show.StateRejected || !strings.Contains(j.Reason, `queue "b" was removed`) ||
		j.Ended == nil {
		t.Errorf("%+v, %v", j, err)
	}
}

// A file that a policy names is read before the loop is asked, once: a pipe is refused and keeps nobody waiting, and
// what counts is not read again when other settings change, though the file is gone.
func TestPolicyFiles(t *testing.T) {
	m := alive(t)
	dir := t.TempDir()
	pipe, samples := filepath.Join(dir, "pipe"), filepath.Join(dir, "samples")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(samples, []byte("GPU-seconds\n10\n20\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, r := range []ask.PolicyRequest{{Policy: "sched2:weights=" + pipe}, {Policy: "tiresias-g:samples=" + pipe},
		{Place: "meta-rl:weights=" + pipe}} {
		if _, err := m.SetPolicy(t.Context(), &r, "ann"); err == nil ||
			!strings.Contains(err.Error(), "only a regular file") {
			t.Errorf("%+v: %v", r, err)
		}
	}
	name := "tiresias-g:samples=" + samples
	if _, err := m.SetPolicy(t.Context(), &ask.PolicyRequest{Policy: name}, "ann"); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(samples); err != nil {
		t.Fatal(err)
	}
	s := m.settings()
	s.Policy, s.MinRuntime = "fifo", s.MinRuntime+time.Second // as the file said before
	if _, err := m.Reconfigure(t.Context(), s, "ann", "min runtime"); err != nil {
		t.Error(err)
	}
	if now, _ := m.Scheduling(); now != name {
		t.Errorf("policy %s, want %s", now, name)
	}
	if _, err := m.SetPolicy(t.Context(), &ask.PolicyRequest{Policy: "fifo"}, "ann"); err != nil {
		t.Error(err)
	}
	if _, err := m.SetPolicy(t.Context(), &ask.PolicyRequest{Policy: name}, "ann"); err == nil ||
		!strings.Contains(err.Error(), "no such file") {
		t.Errorf("set again without its file: %v", err)
	}
	id := submit(t, m, "true") // the loop goes on
	until(t, m, id, show.StateCompleted)
}
