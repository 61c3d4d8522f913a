package defrag

import (
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/placement"
	"github.com/muster-gpu/muster/engine/plan"
	"github.com/muster-gpu/muster/engine/reserve"
	"github.com/muster-gpu/muster/engine/sched"
	"github.com/muster-gpu/muster/engine/shape"
)

const minute = cluster.Time(time.Minute)

func rounds() (*Rounds, *sched.World) {
	st := &inventory.Store{}
	table := shape.NewTable(st, nil, false)
	w := &sched.World{Now: 12 * minute, Store: st, Shapes: &table}
	find := &placement.Finder{World: w}
	finder := New(find, nil, nil)
	rules := NewRules(&Rooms{Spec: &cluster.Spec{}, Finder: &finder, Reserved: &reserve.Book{World: w},
		Plan: &plan.Book{}})
	d := NewRounds(&rules, func(*job.State) (reserve.Window, bool) { return reserve.Window{}, false })
	return &d, w
}

// TestRounds: with Auto moves are looked for once in each round while a job waits; nodes are emptied while one runs.
func TestRounds(t *testing.T) {
	d, w := rounds()
	if d.Begin(1, 1) || d.Wake(1, 1) != cluster.Never {
		t.Fatal("moves are looked for before settings are given")
	}
	if d.Start(Settings{}); d.Begin(1, 1) || d.Wake(1, 1) != cluster.Never {
		t.Fatal("moves are looked for that are to be asked for")
	}
	d.Start(Settings{Auto: true})
	if d.Begin(0, 1) || d.Wake(0, 1) != cluster.Never || d.Wake(1, 1) != 15*minute {
		t.Fatalf("no job waits, or the next round is at %v", d.Wake(1, 1))
	}
	if !d.Begin(1, 1) || !d.Due || d.Compacting != NoCompact || d.Last != 2 {
		t.Fatalf("a job waits in round %d: due %v", d.Last, d.Due)
	}
	if d.End(); d.Due || d.Begin(1, 1) {
		t.Error("moves are looked for twice in a round")
	}
	if w.Now = 15 * minute; !d.Begin(1, 1) {
		t.Error("the next round has begun")
	}
	d.End()
	d.Start(Settings{Auto: true, Compact: EmptyNodes})
	if w.Now = 20 * minute; !d.Begin(0, 1) || d.Compacting != EmptyNodes {
		t.Error("a job runs, and no node is emptied")
	}
	if d.End(); d.Wake(0, 0) != cluster.Never {
		t.Error("nodes without jobs are to be emptied")
	}
}

// TestProtected: in a protected time no round begins; the next one does at its end.
func TestProtected(t *testing.T) {
	d, w := rounds()
	d.Start(Settings{Auto: true, Protected: &cluster.Weekly{Hours: []cluster.Hours{{From: 0, To: time.Hour}}}})
	if d.Begin(1, 1) || d.Wake(1, 1) != 60*minute {
		t.Errorf("due %v, woken at %v", d.Due, d.Wake(1, 1))
	}
	if w.Now = 60 * minute; !d.Begin(1, 1) {
		t.Error("the time is over")
	}
}

// TestAsk: a pass looks for what was asked for; nothing is looked for where jobs are never moved.
func TestAsk(t *testing.T) {
	d, _ := rounds()
	if d.Ask(3, NoCompact); d.Begin(1, 1) {
		t.Fatal("jobs are never moved")
	}
	d.Start(Settings{})
	if d.Ask(3, NoCompact); !d.Begin(1, 1) || !d.Due {
		t.Fatal("it was asked for")
	}
	if d.For(placement.Request{}, &job.State{Spec: &cluster.Job{ID: 4}}) != nil || len(d.Seen()) != 0 {
		t.Errorf("moves are looked for another job: %+v", d.Seen())
	}
	d.End()
	if d.Ask(cluster.NoJob, EmptyNodes); !d.Begin(0, 1) || d.Due || d.Compacting != EmptyNodes {
		t.Errorf("due %v, compacting %v", d.Due, d.Compacting)
	}
	if d.Empty(true, false) != nil || len(d.Seen()) != 1 ||
		d.Seen()[0].Text != "no node is emptied while a job waits for room" {
		t.Errorf("%+v", d.Seen())
	}
	if d.Forget(); len(d.Seen()) != 0 {
		t.Error("they are remembered")
	}
}

// TestLook: to look for moves makes none, and leaves no request behind.
func TestLook(t *testing.T) {
	d, _ := rounds()
	passes := 0
	seen := d.Look(3, func() {
		passes++
		if !d.On || !d.Due || !d.look {
			t.Error("the pass does not look for moves")
		}
	})
	if passes != 1 || len(seen) != 0 || d.Due || d.look {
		t.Errorf("%d passes, %+v", passes, seen)
	}
	d.LookForEmptying(UsableGPUs, func() {
		if d.Compacting != UsableGPUs || !d.look {
			t.Error("the pass does not look for nodes to empty")
		}
	})
	if d.Compacting != NoCompact || d.look || d.Begin(1, 1) {
		t.Error("moves are made in the next pass")
	}
}
