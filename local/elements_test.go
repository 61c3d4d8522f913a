//go:build linux

package local

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/journal"
	"github.com/muster-gpu/muster/local/evidence"
	"github.com/muster-gpu/muster/show"
	"github.com/muster-gpu/muster/store"
)

func twoGPUs(t *testing.T) Options {
	return testOptions(t, &cluster.Spec{Nodes: []cluster.Node{{Name: "n1", Model: "T4-16GB", GPUs: 2}}})
}

// running lets a machine schedule; what is returned ends it.
func running(t testing.TB, opt Options) (m *Machine, end func()) {
	t.Helper()
	m, err := Open(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- m.Run(ctx) }()
	return m, func() {
		t.Helper()
		cancel()
		if err := <-over; err != nil {
			t.Error(err)
		}
	}
}

// submitSleeping submits jobs that sleep.
func submitSleeping(t *testing.T, m *Machine, s *ask.Submission) []int {
	t.Helper()
	s.Command, s.Dir, s.Output, s.Env = []string{"sleep", "1000"}, "/", "/dev/null", []string{"A=B"}
	ids, err := m.Submit(t.Context(), self(t), s, "")
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// replayed ends a machine and replays the last segment of its journal.
func replayed(t *testing.T, m *Machine, end func()) *engine.Engine {
	t.Helper()
	var out bytes.Buffer
	if err := m.Journal().Write(t.Context(), 0, &out); err != nil {
		t.Fatal(err)
	}
	end()
	r, err := journal.NewReader("journal", &out)
	if err != nil {
		t.Fatal(err)
	}
	e, _, err := journal.Replay(r, cluster.Never)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// allKnown is all that a machine knows of its jobs, done or not, as text: job by job.
func allKnown(t *testing.T, m *Machine, last int) map[int]string {
	t.Helper()
	all := map[int]string{}
	list, err := m.list(t.Context(), store.Filter{Limit: 10_000})
	if err != nil {
		t.Fatal(err)
	}
	for i := range list {
		if all[list[i].ID] != "" {
			t.Errorf("job %d is listed twice", list[i].ID)
		}
		if i > 0 && list[i].ID > list[i-1].ID {
			t.Errorf("job %d is listed after %d", list[i].ID, list[i-1].ID)
		}
		list[i].Waited, list[i].Ran, list[i].GPUHours = 0, 0, 0 // they go on
		moments, err := m.History(t.Context(), list[i].ID)
		if err != nil {
			t.Fatal(err)
		}
		all[list[i].ID] = text(t, list[i], moments)
	}
	if len(all) != last {
		t.Errorf("%d jobs are listed, not %d", len(all), last)
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	for id, j := range m.jobs {
		all[int(id)] += text(t, j.Info, j.Sub, m.eng.Record(id), m.tally)
	}
	return all
}

func text(t *testing.T, parts ...any) string {
	t.Helper()
	b, err := json.Marshal(parts)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func same(t *testing.T, got, want map[int]string) {
	t.Helper()
	for id := range want {
		if got[id] != want[id] {
			t.Errorf("job %d was\n%s\nand is\n%s", id, want[id], got[id])
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d jobs, not %d", len(got), len(want))
	}
}

// rows are the numbers of the jobs that have rows of their own.
func rows(t *testing.T, m *Machine) []int {
	t.Helper()
	ids, err := m.store.Rows(t.Context(), 0, 1<<31)
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// An array is one record: rows have only the elements to which something happened, and after a restart every
// element is what it was.
func TestArrayRecord(t *testing.T) {
	opt := twoGPUs(t)
	m, end := running(t, opt)
	u := self(t)
	submit := func(s ask.Submission) []int {
		t.Helper()
		return submitSleeping(t, m, &s)
	}
	plain := submit(ask.Submission{GPUs: 1, Array: "0-98:2"}) // two of them start
	capped := submit(ask.Submission{GPUs: 1, Array: "5,7-20%3"})
	held := submit(ask.Submission{Array: "1-30", Hold: true})
	after := submit(ask.Submission{Array: "1-30", After: []ask.After{{Type: "aftercorr", Job: held[0]}}})
	later := time.Now().Add(time.Hour).Truncate(time.Second)
	begin := submit(ask.Submission{Array: "1-2", Begin: &later})
	until(t, m, plain[0], show.StateRunning)
	until(t, m, plain[1], show.StateRunning)
	name := "renamed"
	if err := m.Update(t.Context(), held[7], &ask.Update{Name: &name}, &u); err != nil {
		t.Fatal(err)
	}
	for _, act := range []struct {
		id   int
		verb string
	}{{plain[9], "cancel"}, {plain[11], "hold"}, {capped[1], "hold"}, {held[3], "cancel"}, {held[4], "release"}} {
		if err := m.Act(t.Context(), act.id, act.verb, u.Name); err != nil {
			t.Fatal(err)
		}
	}
	last := begin[1]
	// two that run, those that are above, what entered a place that is free, aftercorr
	for len(rows(t, m)) < 2+2+3+1+3+30 {
		time.Sleep(10 * time.Millisecond)
	}
	apart := rows(t, m)
	for _, id := range []int{plain[2], plain[49], capped[14], held[0], held[29], begin[0]} {
		if slices.Contains(apart, id) {
			t.Errorf("job %d, to which nothing happened, has a row", id)
		}
	}
	for _, id := range []int{plain[0], plain[1], plain[9], plain[11], capped[1], held[3], held[4], held[7], after[0]} {
		if !slices.Contains(apart, id) {
			t.Errorf("job %d has no row", id)
		}
	}
	was := allKnown(t, m, last)
	end()
	m, end = running(t, opt)
	t.Cleanup(func() { end(); m.jobs = nil; _ = m.sweep() })
	same(t, allKnown(t, m, last), was)
	if now := rows(t, m); !reflect.DeepEqual(now, apart) {
		t.Errorf("a restart made rows: %v, %v", apart, now)
	}
	if ids := submit(ask.Submission{Hold: true}); ids[0] != last+1 {
		t.Errorf("the next job is %d, not %d", ids[0], last+1)
	}
	if _, err := m.ActOnAll(t.Context(), &ask.Selection{All: true}, "cancel",
		Requester{Name: u.Name, Owns: func(string) bool { return true }}); err != nil {
		t.Fatal(err)
	}
	until(t, m, plain[0], show.StateCancelled)
	until(t, m, plain[1], show.StateCancelled)
	if n := len(rows(t, m)); n != last+1 {
		t.Errorf("%d of %d jobs that are over have rows", n, last+1)
	}
	if open, err := m.store.Arrays(t.Context()); err != nil || len(open) > 0 {
		t.Errorf("%d arrays are open (%v)", len(open), err)
	}
	if v, err := m.Job(t.Context(), held[20]); err != nil || !slices.Equal(v.Submission.Env, []string{"A=B"}) {
		t.Errorf("the submission of an element that is over: %+v, %v", v.Submission, err)
	}
}

// copyState copies what a daemon that is killed now leaves behind.
func copyState(t *testing.T, from string) string {
	t.Helper()
	to := filepath.Join(folder(t), "state")
	if err := os.MkdirAll(to, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, suffix := range []string{"", "-wal", ".mark"} {
		b, err := os.ReadFile(evidence.Database(from) + suffix)
		if err == nil {
			err = os.WriteFile(evidence.Database(to)+suffix, b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return to
}

// Killed at any point of the steps in which an array is submitted and elements of it are changed, a daemon that
// is started again has all elements or none, each once, and what was answered is what it has.
func TestArrayCrash(t *testing.T) {
	opt := twoGPUs(t)
	type death struct {
		point, dir string
		answered   []string // what was, before
	}
	var deaths []death
	var answered []string
	armed := false
	opt.Crash = func(point string) { // with the state locked
		if armed {
			deaths = append(deaths, death{point, copyState(t, opt.Dir), slices.Clone(answered)})
		}
	}
	m, end := running(t, opt)
	u := self(t)
	change := func(name string, f func() error) {
		t.Helper()
		m.mu.Lock()
		armed = true
		m.mu.Unlock()
		if err := f(); err != nil {
			t.Fatal(name, err)
		}
		m.mu.Lock()
		armed, answered = false, append(answered, name)
		m.mu.Unlock()
	}
	s := ask.Submission{Command: []string{"true"}, Dir: "/", Output: "/dev/null", Array: "0-39", Hold: true, GPUs: 1}
	submitted := func(m *Machine) ([]int, error) { again := s; return m.Submit(t.Context(), u, &again, "key") }
	change("submit", func() error { _, err := submitted(m); return err })
	change("cancel", func() error { return m.Act(t.Context(), 5, "cancel", u.Name) })
	change("all", func() error {
		_, err := m.ActOnAll(t.Context(), &ask.Selection{Jobs: []int{1}}, "cancel",
			Requester{Name: u.Name, Owns: func(string) bool { return true }})
		return err
	})
	end()
	points := map[string]int{}
	for _, d := range deaths {
		points[d.point]++
		opt.Dir, opt.Crash = d.dir, nil
		m, end := running(t, opt)
		list, err := m.Jobs(t.Context(), store.Filter{})
		if err != nil {
			t.Fatal(err)
		}
		states := map[string]int{}
		for i := range list {
			states[list[i].State]++
			if list[i].ID != 40-i {
				t.Errorf("%s after %v: entry %d is job %d", d.point, d.answered, i, list[i].ID)
			}
		}
		may := [][2]int{{0, 0}, {40, 0}, {39, 1}, {0, 40}} // pending, cancelled: before each change, and after the last
		got := [2]int{states[show.StatePending], states[show.StateCancelled]}
		if at := slices.Index(may, got); at != len(d.answered) && at != len(d.answered)+1 {
			t.Errorf("%s after %v: %v", d.point, d.answered, states)
		}
		ids, err := submitted(m)
		if err != nil || len(ids) != 40 || ids[0] != 1 || ids[39] != 40 {
			t.Errorf("%s after %v: submitted again: %v, %v", d.point, d.answered, ids, err)
		}
		end()
	}
	for _, point := range []string{"before-commit", "in-commit", "after-commit", "applied"} {
		if points[point] < 3 {
			t.Errorf("%d deaths at %s", points[point], point)
		}
	}
}
