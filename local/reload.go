//go:build linux

package local

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/local/audit"
	"github.com/muster-gpu/muster/local/rules"
	"github.com/muster-gpu/muster/store"
)

// The rules can change while the machine runs. The engine then starts over,
// between two steps, from a snapshot of what it knows, under the new rules and
// in a new segment of the journal: what a restart of the daemon does, without
// the restart. Nothing that runs is touched by the change itself; what the new
// rules mean for it, the next step decides.

// Apply puts settings into the options.
func (o *Options) Apply(s *rules.Settings) {
	r := &o.Rules
	r.Policy, r.Placer, r.Backfill, r.MinRuntime, r.Starvation, r.HoldAfter, r.Stop = s.Policy, s.Placer, s.Backfill,
		s.MinRuntime, s.Starvation, s.HoldAfter, s.Stop
	r.Spec.Queues, r.Spec.Partitions, r.Spec.Zone, r.Perf, r.Defrag = s.Queues, s.Partitions, s.Zone, s.Perf, s.Defrag
	if s.Models != nil {
		r.Spec.Models = s.Models
	}
	o.Limits, o.Urgency, o.AuditKeep = s.Limits, s.Urgency, s.AuditKeep
	o.Members, o.DefaultQueues, o.KillWait, o.Keep, o.HourCost, o.Idle, o.Saving = s.Members, s.DefaultQueues,
		s.KillWait, s.Keep, s.HourCost, s.Idle, s.Saving
}

// settings are those in force.
func (m *Machine) settings() rules.Settings {
	m.conf.RLock()
	defer m.conf.RUnlock()
	o := &m.opt
	r := &o.Rules
	return rules.Settings{
		Policy: r.Policy, Placer: r.Placer, Backfill: r.Backfill,
		MinRuntime: r.MinRuntime, Starvation: r.Starvation, HoldAfter: r.HoldAfter, Stop: r.Stop,
		Queues: r.Spec.Queues, Partitions: r.Spec.Partitions, Members: o.Members, DefaultQueues: o.DefaultQueues,
		Limits: o.Limits, Urgency: o.Urgency, KillWait: o.KillWait, Keep: o.Keep, AuditKeep: o.AuditKeep,
		HourCost: o.HourCost, Zone: r.Spec.Zone, Idle: o.Idle, Perf: r.Perf, Defrag: r.Defrag, Saving: o.Saving,
		Models: r.Spec.Models,
	}
}

// rules are how the engine is built at the moment.
func (m *Machine) rules() config.Rules {
	m.conf.RLock()
	defer m.conf.RUnlock()
	return m.opt.Rules
}

func (m *Machine) killWait() time.Duration { s := m.settings(); return s.KillWait }

// turn is a change of the rules that waits for the end of a step.
type turn struct {
	ctx    context.Context
	change func(s *rules.Settings, p *rules.Standing) (what, text string, err error)
	done   chan error
}

// errNothing is returned by a change that changes nothing.
var errNothing = errors.New("nothing changes")

// turnTo changes the rules between two steps and returns when the change is
// stored and in force. change runs with the state locked; what and text go into
// the record of changes.
func (m *Machine) turnTo(ctx context.Context,
	change func(s *rules.Settings, p *rules.Standing) (what, text string, err error)) error {
	t := &turn{ctx, change, make(chan error, 1)}
	m.inbox.Put(func(cluster.Time) ([]engine.Event, func(error)) {
		m.turns = append(m.turns, t)
		return nil, nil
	})
	return m.await(ctx, t.done)
}

// turnAll makes the changes that wait, one after the other.
func (m *Machine) turnAll() {
	turns := m.turns
	m.turns = nil
	for _, t := range turns {
		err := t.ctx.Err() // the caller has gone: nothing happens
		if err == nil {
			err = m.turn(t)
		}
		if errors.Is(err, errNothing) {
			err = nil
		}
		t.done <- err
	}
}

// turn makes a change: all of it, or none.
func (m *Machine) turn(t *turn) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, p := m.settings(), m.policy.Now()
	what, text, err := t.change(&s, &p)
	if err != nil {
		return err
	}
	opt := m.opt
	opt.Apply(&s)
	record := func(tx *store.Tx) error {
		if err := p.Put(tx); err != nil || what == "" {
			return err
		}
		return errors.Join(tx.PutHistory(rules.NoJob, m.opt.Now().UnixNano(), what, text),
			tx.PutAudit(audit.Entry(t.ctx, m.opt.Now(), what, "", text)))
	}
	if reflect.DeepEqual(opt.Rules, m.opt.Rules) {
		if err := m.store.Write(m.running, record); err != nil {
			return err
		}
		m.install(&s, &p)
		return nil
	}
	snap, err := m.facts(m.running)
	if err != nil {
		return err
	}
	snap.Fresh = true
	e, err := m.restored(&opt.Rules, snap)
	if err == nil {
		err = rules.AllStay(opt.Rules.Spec.Partitions, m.liveUnder(e))
	}
	if err == nil {
		err = m.begin(m.running, &opt.Rules, snap, record)
	}
	if err != nil {
		return err
	}
	m.crash("turned")
	other := opt.Rules.Policy != m.opt.Rules.Policy
	m.install(&s, &p)
	if other { // another policy errs in other ways
		if err := m.relearn(m.running); err != nil {
			m.opt.Log.Warn("what became of earlier expected starts is not known", "error", err)
		}
	}
	m.eng, m.lines = e, lines{}
	m.outlook.Set(nil)
	m.event(engine.Event{Type: engine.Tick})
	return nil
}

// install lets settings count. The state is locked.
func (m *Machine) install(s *rules.Settings, p *rules.Standing) {
	m.conf.Lock()
	defer m.conf.Unlock()
	if !reflect.DeepEqual(s.Idle, m.opt.Idle) {
		m.SetIdle(s.Idle)
	}
	m.opt.Apply(s)
	m.policy.Set(p)
}

// liveUnder are the jobs that are not over; e is the engine under the new rules, nil: there is none yet.
func (m *Machine) liveUnder(e *engine.Engine) (list []rules.Live) {
	for _, j := range m.sorted() {
		rec := m.eng.Record(j.ID)
		if rec == nil || rec.State == engine.Done {
			continue
		}
		list = append(list, rules.Live{Spec: rec.Spec, Waits: rec.State == engine.Pending,
			Refused: e != nil && e.Record(j.ID).State == engine.Done})
	}
	return list
}

// Reconfigure lets new settings count, as a file has them: all, or none. by says
// who wanted it and text what changes, for the record. It returns what is worth
// knowing besides.
func (m *Machine) Reconfigure(ctx context.Context, s rules.Settings, by, text string) (notes []string, err error) {
	files, err := config.Hold(s.Policy, s.Placer)
	if err != nil {
		return nil, err
	}
	changes := false
	defer func() { m.policy.Hold(files, changes && err == nil) }()
	err = m.turnTo(audit.Named(ctx, by), func(now *rules.Settings, p *rules.Standing) (string, string, error) {
		notes = rules.Closing(s.Queues, m.liveUnder(nil))
		file := rules.Choice{Policy: s.Policy, Placer: s.Placer, Backfill: s.Backfill}
		if p.Live && file == p.Configured {
			notes = append(notes,
				fmt.Sprintf("policy %s, set by %s, stays: the file says of it what it said then (muster policy set --from-config goes back to it)", p.Text(), p.By))
			s.Policy, s.Placer, s.Backfill = p.Policy, p.Placer, p.Backfill
		} else if file != p.Choice || p.Live {
			changes = true
			*p = rules.Standing{Choice: file, Configured: file, At: m.opt.Now().UTC(), By: by}
		}
		if !changes {
			files.Release() // what counted goes on, with the contents that it had
		}
		if text == "" && reflect.DeepEqual(*now, s) {
			return "", "", errNothing
		}
		*now = s
		return "config", by + ": " + text, nil
	})
	return notes, err
}
