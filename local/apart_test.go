//go:build linux

package local

import (
	"reflect"
	"testing"
	"time"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/show"
)

// otherThan is all that is known of jobs except one, as it is asked for and as it is kept.
func otherThan(t *testing.T, m *Machine, except int) map[int]any {
	t.Helper()
	m.mu.RLock()
	defer m.mu.RUnlock()
	all := map[int]any{}
	for id, j := range m.jobs {
		if int(id) == except {
			continue
		}
		v, kept := m.view(j), *j
		v.Waited, v.Ran, v.GPUHours = 0, 0, 0 // they go on
		kept.Info = nil
		all[int(id)] = []any{j.Whole(), v, kept, *j.Spec, *m.eng.Record(id)}
	}
	return all
}

// Whatever happens to one element of an array, nothing of it shows on another.
func TestApart(t *testing.T) {
	m, end := running(t, twoGPUs(t))
	t.Cleanup(func() { end(); m.jobs = nil; _ = m.sweep() })
	u := self(t)
	submit := func(s ask.Submission) []int {
		t.Helper()
		return submitSleeping(t, m, &s)
	}
	held := submit(ask.Submission{Array: "0-9", Hold: true})
	capped := submit(ask.Submission{Array: "1-9%1", GPUs: 1}) // one of them runs
	until(t, m, capped[0], show.StateRunning)
	name, limit := "renamed", ask.Duration(time.Hour)
	for _, c := range []struct {
		what string
		id   int
		do   func(id int) error
		then string // the state that it gets to
	}{
		{"cancel", held[0], func(id int) error {
			return m.Act(t.Context(), id, "cancel", u.Name)
		}, show.StateCancelled},
		{"name", held[1], func(id int) error {
			return m.Update(t.Context(), id, &ask.Update{Name: &name}, &u)
		}, show.StatePending},
		{"limit", held[2], func(id int) error {
			return m.Update(t.Context(), id, &ask.Update{Limit: &limit}, &u)
		}, show.StatePending},
		{"hold again", held[3], func(id int) error {
			return m.Act(t.Context(), id, "hold", u.Name)
		}, show.StatePending},
		{"start", held[4], func(id int) error { return m.Act(t.Context(), id, "release", u.Name) }, show.StateRunning},
		{"suspend", held[4], func(id int) error {
			return m.Act(t.Context(), id, "suspend", u.Name)
		}, show.StateSuspended},
		{"resume", held[4], func(id int) error { return m.Act(t.Context(), id, "resume", u.Name) }, show.StateRunning},
		{"requeue", held[4], func(id int) error {
			return m.Act(t.Context(), id, "requeue", u.Name)
		}, show.StateRunning},
		{"stop", held[4], func(id int) error { return m.Act(t.Context(), id, "cancel", u.Name) }, show.StateCancelled},
		{"hold", capped[3], func(id int) error { return m.Act(t.Context(), id, "hold", u.Name) }, show.StatePending},
	} {
		was := otherThan(t, m, c.id)
		if err := c.do(c.id); err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		until(t, m, c.id, c.then)
		for id, now := range otherThan(t, m, c.id) {
			if !reflect.DeepEqual(now, was[id]) {
				t.Errorf("%s of job %d changed job %d:\n%+v\n%+v", c.what, c.id, id, was[id], now)
			}
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	a, b := m.jobs[cluster.JobID(held[7])], m.jobs[cluster.JobID(held[8])]
	if a.Info != b.Info {
		t.Fatal("elements to which nothing happened have something of their own")
	}
	was := b.Whole()
	otherwise(t, reflect.ValueOf(a.Own()).Elem())
	if now := b.Whole(); !reflect.DeepEqual(now, was) || b.Info == a.Info {
		t.Errorf("what is changed of one element is\n%+v\nof another, and was\n%+v", now, was)
	}
	if a.Whole().Run != 1 || a.Whole().Record.State != engine.Placed {
		t.Errorf("nothing was changed: %+v", a.Whole())
	}
}

// otherwise gives each field of a struct, and of structs in it, another value.
func otherwise(t *testing.T, v reflect.Value) {
	for i := range v.NumField() {
		switch f := v.Field(i); f.Kind() {
		case reflect.Struct:
			if f.NumField() > 0 && f.Type() != reflect.TypeFor[time.Time]() {
				otherwise(t, f)
			}
		case reflect.Bool:
			f.SetBool(!f.Bool())
		case reflect.Int, reflect.Int8, reflect.Int32, reflect.Int64:
			f.SetInt(f.Int() + 1)
		case reflect.Uint8, reflect.Uint64:
			f.SetUint(f.Uint() + 1)
		case reflect.Float64:
			f.SetFloat(f.Float() + 1)
		case reflect.String:
			f.SetString(f.String() + "x")
		default:
			f.SetZero()
		}
	}
}
