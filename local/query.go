//go:build linux

package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/driver"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/local/audit"
	"github.com/muster-gpu/muster/local/foresight"
	"github.com/muster-gpu/muster/local/record"
	"github.com/muster-gpu/muster/local/segment"
	"github.com/muster-gpu/muster/local/watch"
	"github.com/muster-gpu/muster/progress"
	"github.com/muster-gpu/muster/show"
	"github.com/muster-gpu/muster/store"
)

// Job returns a job, done or not.
func (m *Machine) Job(ctx context.Context, id int) (show.Job, error) {
	m.mu.RLock()
	if j := m.jobs[cluster.JobID(id)]; j != nil && j.Stored() {
		v := m.view(j)
		m.mu.RUnlock()
		if m.opt.Rules.Spec.Network != nil {
			m.mu.Lock()
			m.addNetwork(&v)
			m.mu.Unlock()
		}
		return v, nil
	}
	m.mu.RUnlock()
	row, err := m.store.Job(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return show.Job{}, fmt.Errorf("%w: %d", ErrNoJob, id)
	}
	if err != nil {
		return show.Job{}, err
	}
	return m.stored(row)
}

// stored is a job as its row says.
func (m *Machine) stored(row *store.Job) (show.Job, error) {
	j, err := record.Read(row)
	if err != nil {
		return show.Job{}, err
	}
	v := j.View(m.opt.Now())
	v.Node = m.opt.Rules.Spec.Nodes[0].Name
	return v, nil
}

// view is a job that is not done.
func (m *Machine) view(j *job) show.Job {
	v := j.View(m.opt.Now())
	if j.Info.Record.State != engine.Pending {
		v.Node = m.opt.Rules.Spec.Nodes[0].Name
	}
	v.Network = m.networkOf(j)
	if j.Info.Record.State == engine.Pending {
		v.Code = record.Code(j.Info.Record.Parked)
	}
	return v
}

// mostExplained bounds how many waiting jobs of a list are explained, the
// oldest first; muster why explains any. An explanation costs as much as there
// are jobs in line: of a long line fewer are, of the others their places are said.
// Of further ones only the expected start is said, elements of arrays apart.
const (
	mostExplained = 50
	longLine      = 1000
	inLongLine    = 3
)

// explain says of waiting jobs where in the line they are, what blocks them
// first, and when they are expected to start.
func (m *Machine) explain(list []show.Job) {
	if !slices.ContainsFunc(list, func(v show.Job) bool { return v.State == show.StatePending }) {
		return
	}
	seen := m.outlook.Latest(foresight.AnyJob, waitToList)
	line := m.line(seen)
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.clock.Now()
	m.eng.Look(now)
	ends := seen.Ends(now)
	n := 0
	for i := len(list) - 1; i >= 0; i-- {
		v := &list[i]
		if v.State != show.StatePending || len(v.Elements) > 0 || m.jobs[cluster.JobID(v.ID)] == nil {
			continue
		}
		if n++; n > mostExplained {
			if v.Array == 0 { // the same is said of elements, whether they come as one or each alone
				seen.SetExpected(v, now)
			}
			continue
		}
		if line.Has(cluster.JobID(v.ID)) && len(line.List) > longLine && n > inLongLine {
			line.Place(v)
			seen.SetExpected(v, now)
			continue
		}
		y := m.eng.WhyForeseen(cluster.JobID(v.ID), ends)
		v.Position = y.Ahead + 1
		if y.Ahead == 0 {
			v.Code = "Resources"
		}
		if len(y.Blockers) > 0 {
			v.Reason = y.Blockers[0]
		}
		if text := m.jobs[cluster.JobID(v.ID)].noWay; text != "" {
			v.Reason = text
		}
		foresight.SetWhen(v, seen, &y, now)
		m.quoted(v, m.jobs[cluster.JobID(v.ID)], seen, now)
	}
}

// Why explains why a job waits and what single change, of those that who asks may
// make, would start it now; nil: changes are not asked for.
func (m *Machine) Why(ctx context.Context, id int, who *User) (show.Why, error) {
	w, spec, snap, err := m.why(ctx, id, who != nil, m.foreseen(id))
	if err == nil && snap != nil {
		fork := func() (*engine.Engine, error) { return m.fork(snap) }
		may := func(other *cluster.Job) bool { return m.mayAsk(who, other, spec) }
		if w.Changes, err = foresight.Helping(spec, snap.Now, fork, may); err == nil {
			w.Moves, err = worthMoves(cluster.JobID(id), fork)
		}
	}
	return w, err
}

// foreseen looks ahead for a job, if it waits.
func (m *Machine) foreseen(id int) *foresight.Forecast {
	m.mu.RLock()
	j := m.jobs[cluster.JobID(id)]
	waits := j != nil && j.Info.Record.State <= engine.Placed
	m.mu.RUnlock()
	if !waits {
		return nil
	}
	return m.outlook.Latest(cluster.JobID(id), waitToTell)
}

// why is what the engine says, and what was foreseen. It looks ahead for it,
// which needs the state for itself; a snapshot is for questions that take longer.
func (m *Machine) why(ctx context.Context, id int, changes bool, seen *foresight.Forecast) (show.Why, *cluster.Job,
	*engine.Snapshot, error) {
	m.mu.Lock()
	j := m.jobs[cluster.JobID(id)]
	if j == nil {
		m.mu.Unlock()
		v, err := m.Job(ctx, id)
		return show.Why{Job: v, Text: v.Reason, Blockers: []string{}}, nil, nil, err
	}
	defer m.mu.Unlock()
	now := m.clock.Now()
	m.eng.Look(now)
	y := m.eng.WhyForeseen(j.ID, seen.Ends(now))
	w := show.Why{Job: m.view(j), Blockers: y.Blockers, Holders: y.Holders, Text: y.Text}
	m.addNetwork(&w.Job)
	w.Job.Position = y.Ahead + 1
	if j.noWay != "" {
		w.Blockers, w.Text = append([]string{j.noWay}, w.Blockers...), j.noWay+"; "+w.Text
	}
	if text := m.asleepText(j); text != "" {
		w.Text = text + strings.TrimSuffix("; "+w.Text, "; ")
	}
	if j.Info.Record.State <= engine.Placed {
		foresight.SetWhen(&w.Job, seen, &y, now)
		m.quoted(&w.Job, j, seen, now)
		if at := w.Job.Expected; at != nil && j.firstPrediction == 0 && j.Info.Run == 0 {
			j.firstPrediction = cluster.Time(at.UnixNano())
		}
	}
	if text := m.loans.Text(int(j.ID)); text != "" && j.Info.Record.State == engine.Running {
		w.Text = strings.TrimPrefix(w.Text+"; "+text, "; ")
	}
	if text := w.Job.SavesNothing; text != "" && j.Info.Record.State >= engine.Starting {
		w.Text = strings.TrimPrefix(w.Text+"; "+text, "; ")
	}
	if w.Blockers == nil {
		w.Blockers = []string{}
	}
	// one that is suspended cannot be changed (Update), nor moved
	if rec := j.Whole().Record; changes && rec.AwaitsTurn() &&
		len(j.Spec.Tasks) == 1 && j.run == nil && rec.Home == nil {
		snap := m.eng.Snapshot()
		return w, j.Spec, &snap, nil
	}
	return w, nil, nil, nil
}

// asleepText says for which job or by which person a job was suspended, and how it goes on; "": it is not suspended.
func (m *Machine) asleepText(j *job) string {
	switch rec := j.Whole().Record; {
	case rec.State == engine.Pending && rec.Home != nil:
		id, found := strings.CutPrefix(j.Info.Text, preemptedFor)
		if !found {
			return "suspended by the policy"
		}
		if n, err := strconv.Atoi(id); err == nil && m.jobs[cluster.JobID(n)] != nil &&
			m.jobs[cluster.JobID(n)].Spec.Name != "" {
			id += " " + m.jobs[cluster.JobID(n)].Spec.Name
		}
		return "suspended for job " + id
	case rec.State == engine.Running && j.Info.Frozen:
		return fmt.Sprintf("suspended by %s, on its GPUs, until muster resume %d", cmp.Or(j.Info.FrozenBy, "a person"),
			j.ID)
	}
	return ""
}

// Wait returns a job when it is done.
func (m *Machine) Wait(ctx context.Context, id int) (show.Job, error) {
	return m.waitUntil(ctx, id, func(v *show.Job) (bool, error) {
		return v.Ended != nil && !slices.Contains(liveStates, v.State), nil
	})
}

// waitUntil returns a job as soon as a condition holds.
func (m *Machine) waitUntil(ctx context.Context, id int, holds func(*show.Job) (bool, error)) (show.Job, error) {
	for {
		changed := m.watch.Changed()
		v, err := m.Job(ctx, id)
		if err != nil {
			return v, err
		}
		if ok, err := holds(&v); ok || err != nil {
			return v, err
		}
		select {
		case <-ctx.Done():
			return v, ctx.Err()
		case <-m.running.Done():
			return v, errors.New("the daemon is ending")
		case <-changed:
		}
	}
}

// Audit is the trail of what was done, and the tokens.
func (m *Machine) Audit() *audit.Book { return &audit.Book{Store: m.store, Now: m.opt.Now} }

// Journal is the stored journal.
func (m *Machine) Journal() *segment.Book { return &segment.Book{Store: m.store} }

// Now is the wall clock's time.
func (m *Machine) Now() time.Time { return m.opt.Now() }

// Watches says which jobs change.
func (m *Machine) Watches() *watch.Hub { return &m.watch }

// Nodes lists this machine.
func (m *Machine) Nodes() []show.Node {
	m.mu.Lock() // what is usable is remembered
	defer m.mu.Unlock()
	n := m.eng.Nodes()[0]
	usable := m.eng.FragmentationByNode()[0].Usable
	v := show.Node{Usable: &usable, Name: n.Name, State: n.State.String(), Reason: m.drained.Load().Text(), CPU: n.CPU,
		RAM: n.RAM, GPUs: m.gpus.Show(&m.opt.Rules.Spec, n.Bad, m.eng.Beliefs())}
	return []show.Node{v}
}

// Queues lists the queues with what they hold.
func (m *Machine) Queues() []show.Queue {
	m.mu.RLock()
	defer m.mu.RUnlock()
	list := []show.Queue{}
	queues := m.eng.QueueUse()
	var shares []int64
	for _, q := range queues {
		shares = append(shares, q.Spec.Shares)
		v := show.Queue{Name: q.Spec.Name, Parent: q.Spec.Parent, Guarantee: q.Spec.Guarantee, Limit: q.Spec.Limit,
			Used: q.Used}
		for _, j := range m.jobs {
			name := j.Spec.Queue
			if name == "" {
				name = "default"
			}
			switch {
			case name != v.Name:
			case j.Info.Record.State == engine.Pending:
				v.Pending++
			default:
				v.Running++
			}
		}
		list = append(list, v)
	}
	show.FairShares(list, shares)
	return list
}

// Partitions lists the partitions; without any there is one of everything.
func (m *Machine) Partitions() []show.Partition {
	rules := m.rules()
	spec := &rules.Spec
	list := []show.Partition{}
	for i := range spec.Partitions {
		p := &spec.Partitions[i]
		list = append(list, show.Partition{Name: p.Name, Default: p.Default, Nodes: p.Nodes,
			MaxTime:     ask.Duration(p.MaxTime),
			DefaultTime: ask.Duration(p.DefaultTime), PriorityTier: p.PriorityTier})
	}
	if len(list) == 0 {
		list = append(list, show.Partition{Name: "main", Default: true, Nodes: []string{spec.Nodes[0].Name}})
	}
	return list
}

// Speeds are the speeds of jobs as measured by their progress.
func (m *Machine) Speeds() show.Speeds {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return progress.Speeds(m.eng)
}

// Fair says what fair shares and the priorities of waiting jobs are made of.
func (m *Machine) Fair() show.Fair {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return driver.Fair(m.eng, m.opt.Rules.Policy)
}
