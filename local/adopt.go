//go:build linux

package local

import (
	"context"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/driver"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/local/run"
)

// adopt compares what the engine believes with the shims that are there and
// prepares what it missed. A job whose tasks all ended meanwhile counts as
// running until its runner, which finds that out at once, says so.
func (m *Machine) adopt() error {
	o := driver.Observed{Nodes: m.eng.Nodes()}
	var mine, begin []*runner
	for _, b := range m.eng.Beliefs() {
		j := m.jobs[b.Job]
		r := m.newRunner(j)
		switch {
		case r.Find(r.leftTasks()):
			mine = append(mine, r)
		case b.State == engine.Starting, b.State == engine.Running && b.Resizing:
			r.On = b.Allocs // it is started in place: the devices are its own
			begin = append(begin, r)
		default:
			r.forget()
			continue
		}
		f := driver.Found{Job: b.Job, Rate: 1_000_000}
		for _, a := range r.On {
			f.On = append(f.On, driver.Held{Node: o.Nodes[a.Node].Name, GPUs: a.GPUs})
		}
		o.Running = append(o.Running, f)
	}
	mine = append(mine, m.adoptSuspended()...)
	m.crash("adopting")
	events, _ := driver.Diff(o, driver.ViewOf(m.eng))
	events = slices.DeleteFunc(events, func(ev engine.Event) bool { // they have yet to say so themselves
		return slices.ContainsFunc(begin, func(r *runner) bool { return r.ID == ev.Job })
	})
	if len(events) > 0 {
		m.inbox.Put(func(cluster.Time) ([]engine.Event, func(error)) { return events, nil })
	} else {
		m.event(engine.Event{Type: engine.Tick})
	}
	m.chooseAgain()
	if err := m.sweep(); err != nil {
		return err
	}
	m.mps.Missed()
	m.crash("adopted")
	for _, r := range mine {
		m.treatmentChanged(r.job) // it may have been decided when the daemon died
		orders := r.owed()
		go func() {
			defer m.runners.Done()
			for _, o := range orders { // before it is seen that the job has ended, perhaps because of them
				r.Obey(o)
			}
			r.follow()
		}()
	}
	for _, r := range begin {
		says := engine.Started
		if r.job.Info.Record.State == engine.Running {
			says = engine.Resized
		}
		go func() {
			defer m.runners.Done()
			if r.again(says) {
				r.follow()
			}
		}()
	}
	return nil
}

// noteCold ends the processes of jobs that were suspended and are not to go on with what they
// have in memory, and writes that down.
func (m *Machine) noteCold(ctx context.Context) error {
	for _, j := range m.sorted() {
		if rec := j.Whole().Record; rec.State != engine.Pending || rec.Home == nil || m.eng.Record(j.ID).Home != nil {
			continue
		}
		r := m.runnerOf(j)
		r.FindAndEnd(r.leftTasks())
		info := j.Own()
		info.Use.Add(r.Tasks)
		info.Frozen = false
		j.Said = append(j.Said,
			"what it had in memory is given up: GPUs are shared in another way than when it was suspended, or are not there any more")
		if err := m.storeNow(ctx, j); err != nil {
			return err
		}
	}
	return nil
}

// adoptSuspended finds the jobs that are frozen, and not on devices.
func (m *Machine) adoptSuspended() (mine []*runner) {
	for _, j := range m.sorted() {
		if rec := j.Whole().Record; rec.State == engine.Pending && rec.Home != nil {
			r := m.newRunner(j)
			r.Freeze()
			r.reportedSuspended = true
			if r.Find(r.leftTasks()) {
				mine = append(mine, r)
				continue
			}
			r.forget()
			m.event(engine.Event{Type: engine.Cancelled, Job: j.ID})
			j.Own().Text = "killed while it was suspended"
		}
	}
	return mine
}

// forget drops a runner of which nothing is to be seen.
func (r *runner) forget() {
	r.job.run = nil
	r.m.runners.Done()
}

// sorted lists the jobs by number.
func (m *Machine) sorted() (list []*job) {
	for id := range m.next {
		if j := m.jobs[id]; j != nil {
			list = append(list, j)
		}
	}
	return list
}

// owed is which orders a job may not have had when the daemon died. One
// that had to stop gets the rest of its time.
func (r *runner) owed() (list []run.Order) {
	rec := r.job.Whole().Record
	if rec.State == engine.Running && rec.LimitAt != cluster.Never {
		r.Limit = time.Unix(0, int64(rec.LimitAt))
	}
	switch {
	case rec.State == engine.Stopping:
		// GPUs may be shared in another way than when that was ordered
		return []run.Order{{How: r.m.eng.Record(r.ID).How, Grace: r.remaining()}}
	case rec.State == engine.Running && r.job.Info.Requeue:
		return []run.Order{{How: engine.Checkpoint, Grace: r.remaining()}}
	case r.reportedSuspended, r.job.Info.Frozen:
		list = append(list, run.Order{Freeze: true})
	default:
		list = append(list, run.Order{Unfreeze: true})
	}
	if rec.State == engine.Running && rec.Resizing && !run.SameAllocs(r.On, rec.Allocs) {
		list = append(list, run.Order{Resize: slices.Clone(rec.Allocs), Grace: r.m.grace(r.job)})
	}
	return list
}

// leftTasks are the tasks that a run of an earlier daemon should have.
func (r *runner) leftTasks() (tasks []*run.Task) {
	n := 0
	for i := range r.On {
		n += int(r.On[i].Tasks)
	}
	for rank := range n {
		t := r.m.keeper.Left(r.ID, r.N, rank, r.job.Info.User.UID)
		t.Request = r.job.Spec.Tasks[setOf(r.On, rank)].Request
		tasks = append(tasks, t)
	}
	return tasks
}

// sweep kills the tasks that are not known any more.
func (m *Machine) sweep() error {
	live := func(id cluster.JobID, n int) bool {
		j := m.jobs[id]
		return j != nil && j.run != nil && j.Info.Run == n
	}
	known := func(id cluster.JobID, n int) bool {
		j := m.jobs[id]
		return j != nil && j.Info.Run == n
	}
	return m.keeper.Sweep(live, known)
}
