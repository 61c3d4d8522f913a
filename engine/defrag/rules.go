package defrag

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/limits"
	"github.com/muster-gpu/muster/engine/order"
	"github.com/muster-gpu/muster/engine/plan"
	"github.com/muster-gpu/muster/engine/preempt"
	"github.com/muster-gpu/muster/engine/reserve"
	"github.com/muster-gpu/muster/engine/running"
	"github.com/muster-gpu/muster/engine/sched"
	"github.com/muster-gpu/muster/engine/shape"
	"github.com/muster-gpu/muster/engine/words"
)

// KeepMoves is how long it is remembered that a job was moved.
const KeepMoves = time.Hour

// Rules say which jobs may be moved, and when.
type Rules struct {
	Settings Settings

	finder   *Finder
	world    *sched.World
	st       *inventory.Store
	spec     *cluster.Spec // its calendar
	resv     *reserve.Book
	running  *running.Jobs
	limits   *limits.Book
	victims  *preempt.Finder
	plan     *plan.Book
	unshared bool            // the driver chooses the GPUs of shares and slices
	onTheWay []cluster.JobID // jobs that leave for devices that are booked for them, by number
}

// Rooms are what Rules ask.
type Rooms struct {
	Spec     *cluster.Spec
	Finder   *Finder
	Reserved *reserve.Book
	Running  *running.Jobs
	Limits   *limits.Book
	Victims  *preempt.Finder
	Plan     *plan.Book
	Unshared bool // the driver chooses the GPUs of shares and slices
}

// NewRules makes the rules of a cluster. No job is on the way.
func NewRules(r *Rooms) Rules {
	return Rules{finder: r.Finder, world: r.Finder.world, st: r.Finder.st, spec: r.Spec, resv: r.Reserved,
		running: r.Running, limits: r.Limits, victims: r.Victims, plan: r.Plan, unshared: r.Unshared}
}

// OnTheWay lists the jobs that leave for devices that are booked for them, by number.
func (m *Rules) OnTheWay() []cluster.JobID { return m.onTheWay }

// Leaves notes that a job leaves for devices that are booked for it.
func (m *Rules) Leaves(id cluster.JobID) {
	at, _ := slices.BinarySearch(m.onTheWay, id)
	m.onTheWay = slices.Insert(m.onTheWay, at, id)
}

// Arrived notes that nothing is booked for a job any more.
func (m *Rules) Arrived(id cluster.JobID) {
	if at, ok := slices.BinarySearch(m.onTheWay, id); ok {
		m.onTheWay = slices.Delete(m.onTheWay, at, at+1)
	}
}

// WhyNot says why moves cannot help the job; "": they may.
func (m *Rules) WhyNot(j *job.State, s *shape.Shape) string {
	r := &s.Sets[0].Request
	if text := m.WhyNone(); text != "" {
		return text
	}
	switch {
	case len(s.Sets) != 1 || r.GPUs == 0:
		return "jobs are moved for gangs of one kind of task with GPUs only"
	case shape.IsPart(r) && m.unshared:
		return "jobs are moved for whole GPUs only: here Muster does not choose the GPU of shares and slices"
	case s.NoPreempt:
		return "it asks that no job is stopped for it"
	case j.Home != nil:
		return "it is suspended, and goes on only where its memory is"
	}
	if shape.IsPart(r) {
		return ""
	}
	if have, parted := m.freeFor(s); have+parted < s.GPUs {
		text := fmt.Sprintf("no move would help: it needs %s, %d suitable ones are free", words.GPUs(s.GPUs), have)
		if parted > 0 {
			text += fmt.Sprintf(", and on %d are only shares and slices", parted)
		}
		return text
	}
	return ""
}

// WhyNone says why no job is moved at all; "": jobs may be.
func (m *Rules) WhyNone() string {
	switch {
	case m.plan.Active() && !m.world.Traits.Anywhere:
		return "policy " + m.plan.Policy() + " plans where jobs run: only its plans move them"
	case m.resv.HasAdvance():
		return "there are advance reservations: jobs are not moved around them yet"
	}
	return ""
}

// freeFor is the free GPUs, and those on which only shares and slices are, of the model of
// which there are most of both. Where the engine does not choose the GPUs of these, none count.
func (m *Rules) freeFor(s *shape.Shape) (free, parted int) {
	for _, g := range s.StagesOf() {
		whole, part := 0, 0
		for _, ci := range g.Classes {
			whole += m.st.Classes()[ci].Free()
			if !m.unshared {
				part += m.st.Parted(ci)
			}
		}
		if whole+part > free+parted {
			free, parted = whole, part
		}
	}
	return free, parted
}

// Movable lists the running jobs of a tier or a lower one that may be moved, by number,
// and says what keeps others where they are.
func (m *Rules) Movable(tier cluster.Tier) (list []Mover, kept string) {
	young, often := 0, 0
	m.running.ByKey().Walk(func(it order.Item) bool {
		v := m.finder.places.Around.Jobs()[it.ID]
		switch {
		case !m.MayMove(v) || v.Tier() < tier:
		case !m.victims.MayStop(v):
			young++
		case v.MovedSince(m.world.Now.Add(-KeepMoves)) >= m.Settings.PerHour:
			often++
		default:
			list = append(list, m.finder.Mover(v))
		}
		return true
	})
	slices.SortFunc(list, func(a, b Mover) int { return cmp.Compare(a.Job.Spec.ID, b.Job.Spec.ID) })
	if young > 0 {
		kept += fmt.Sprintf("; %s within the minimum run time", words.Jobs(young))
	}
	if often > 0 {
		kept += fmt.Sprintf("; %s moved %d times within the hour", words.Jobs(often), m.Settings.PerHour)
	}
	return list, kept
}

// MayMove reports whether a job may be moved at all: it runs on whole GPUs of its
// own, or on shares or slices that it asked for where the engine chooses their GPUs; one kind of
// task, at a size that it may keep, no plan says in which partition, and it comes back when it is stopped.
func (m *Rules) MayMove(v *job.State) bool {
	s := m.world.Shapes.At(v.Base)
	r := &s.Sets[0].Request
	return v.State == job.Running && m.plan.Stays(v) && v.Spec.Tier != cluster.Critical && !v.Spec.NoRequeue &&
		!v.Spec.Hold && len(s.Sets) == 1 &&
		r.GPUs > 0 && (!shape.IsPart(r) || !m.unshared) && !m.world.Shapes.Get(v.Base).OnInstance(v.Allocs) &&
		(v.Target == nil || v.Target.Partition == "") && !v.Hosted() && len(v.Guests) == 0 && !v.Packed &&
		!v.Resizing && !m.limits.Closed(int(v.Queue))
}

// Left is how many more moves there may be at once, in thousandths.
func (m *Rules) Left() cluster.Milli {
	left := cluster.Milli(m.Settings.Moves) * cluster.Whole
	for _, id := range m.onTheWay {
		left -= Toll(m.finder.places.Around.Jobs()[id])
	}
	return left
}

// Full says that no more jobs are moved at once.
func (m *Rules) Full() string {
	return fmt.Sprintf("%s on the way already: no more are moved at once", words.Jobs(len(m.onTheWay)))
}

// Placements collects which jobs are where.
func (m *Rules) Placements(by Compact) *Compaction {
	c := m.finder.Compaction(by, m.world.Now.Add(m.Settings.Horizon))
	m.running.ByKey().Walk(func(it order.Item) bool {
		v := m.finder.places.Around.Jobs()[it.ID]
		c.Add(v.Spec.ID, v.Allocs, m.world.EndOf(v))
		return true
	})
	for _, id := range m.onTheWay {
		v := m.finder.places.Around.Jobs()[id]
		c.Add(id, v.Dest, m.world.Now.Add(v.ExpectedRun(m.world.LimitOf(v))))
	}
	return c
}

// Protected says why no job is moved now; "": they may be.
func (m *Rules) Protected() string {
	return m.Settings.Protected.Says(m.spec.Unix(m.world.Now))
}

// Unprotected is the first instant from one on at which jobs may be moved.
func (m *Rules) Unprotected(t cluster.Time) cluster.Time {
	if end, within := m.Settings.Protected.Until(m.spec.Unix(t)); within {
		return m.spec.Instant(end)
	}
	return t
}

// Postpone has moves that would be worth it wait for the end of a protected time.
func (m *Rules) Postpone(x *Moves) {
	if text := m.Protected(); x.Worth && text != "" {
		x.Worth, x.Text = false, text
	}
}
