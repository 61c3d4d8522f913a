//go:build linux

package local

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/local/audit"
	"github.com/muster-gpu/muster/local/rules"
	"github.com/muster-gpu/muster/show"
	"github.com/muster-gpu/muster/store"
)

const policyKey = "policy"

// putPolicy stores which policy counts.
func putPolicy(t *store.Tx, p *rules.Standing) error {
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return t.PutMeta(policyKey, text)
}

// byConfig stands for who set the policy where nobody did it live.
const byConfig = "the configuration"

// choosePolicy settles which policy counts when the daemon starts: the one that
// was set live, unless the file or a flag has spoken since.
func (m *Machine) choosePolicy(ctx context.Context) error {
	r := &m.opt.Rules
	file := rules.Choice{Policy: r.Policy, Placer: r.Placer, Backfill: r.Backfill}
	now := &rules.Standing{Choice: file, Configured: file, At: m.opt.Now().UTC(), By: byConfig}
	old := &rules.Standing{}
	text, err := m.store.Meta(ctx, policyKey)
	switch {
	case errors.Is(err, store.ErrNotFound):
		old = nil
	case err != nil:
		return err
	default:
		if err := json.Unmarshal(text, old); err != nil {
			return fmt.Errorf("the stored policy: %w", err)
		}
	}
	if old != nil && old.Configured == file && (old.Live || old.Choice == file) {
		h := *r
		h.Policy, h.Placer, h.Backfill = old.Policy, old.Placer, old.Backfill
		held, err := config.Hold(h.Policy, h.Placer)
		if err == nil {
			err = h.Check()
		}
		if m.hold(held, err == nil); err != nil { // of another version of this program, or the cluster is another
			m.opt.Log.Warn("the policy that was set live does not hold any more", "policy", old.Text(), "error", err)
		} else {
			*r, m.policy = h, old
			return nil
		}
	}
	held, err := config.Hold(file.Policy, file.Placer)
	if err != nil {
		return err
	}
	m.hold(held, true)
	m.policy = now
	return m.store.Write(ctx, func(t *store.Tx) error {
		if err := putPolicy(t, now); err != nil || old == nil {
			return err
		}
		return t.PutHistory(noJob, now.At.UnixNano(), policyKey, byConfig+": "+old.Text()+" -> "+now.Text())
	})
}

// mostTold is how many of the latest changes are told.
const mostTold = 20

// Policy says which policy counts, since when, and what changed lately.
func (m *Machine) Policy(ctx context.Context) (show.Policy, error) {
	rows, err := m.store.History(ctx, noJob)
	if err != nil {
		return show.Policy{}, err
	}
	m.conf.RLock()
	p := *m.policy
	m.conf.RUnlock()
	v := show.Policy{PolicyChoice: p.View(), Since: p.At, By: p.By, Live: p.Live, Configured: p.Configured.View(),
		Guard: p.Guard, Changes: []show.Moment{}}
	for _, r := range rows[max(0, len(rows)-mostTold):] {
		v.Changes = append(v.Changes, show.Moment{At: time.Unix(0, r.At).UTC(), State: r.What, Text: r.Text})
	}
	return v, nil
}

// Scheduling is the policy and the placer that count.
func (m *Machine) Scheduling() (policy, placer string) {
	s := m.settings()
	return s.Policy, s.Placer
}

// SetPolicy changes the policy between two steps. When it returns, the change is
// stored: it survives the daemon.
func (m *Machine) SetPolicy(ctx context.Context, r *ask.PolicyRequest, by string) (v show.PolicyChange, err error) {
	files, err := m.filesOf(r)
	if err != nil {
		return v, err
	}
	changes := false
	defer func() { m.hold(files, changes && err == nil) }()
	err = m.turnTo(audit.Named(ctx, by), func(s *rules.Settings, p *rules.Standing) (string, string, error) {
		in := m.rules()
		to, err := p.Wanted(r, &in.Spec)
		if err != nil {
			return "", "", err
		}
		v = show.PolicyChange{Before: p.View(), After: to.View()}
		if to == p.Choice && p.Live != r.FromConfig {
			return "", "", errNothing
		}
		text := by + ": " + p.Text() + " -> " + to.Text()
		if r.FromConfig {
			text += ", as configured"
		}
		now := m.opt.Now().UTC()
		guard := rules.GuardOf(r.Guard, p.View(), now)
		*p = rules.Standing{Choice: to, Configured: p.Configured, Live: !r.FromConfig, At: now, By: by, Guard: guard}
		s.Policy, s.Placer, s.Backfill = to.Policy, to.Placer, to.Backfill
		changes = true
		return policyKey, text, nil
	})
	if err == nil {
		m.opt.Log.Info("policy set", "by", by, "before", v.Before.Text(), "after", v.After.Text())
	}
	return v, err
}

// filesOf reads the files that a request comes to, before anything is locked: a disk that hangs keeps only who asked.
func (m *Machine) filesOf(r *ask.PolicyRequest) (*config.Files, error) {
	m.conf.RLock()
	c := m.policy.Choice
	if r.FromConfig {
		c = m.policy.Configured
	}
	m.conf.RUnlock()
	c.Policy, c.Placer = cmp.Or(r.Policy, c.Policy), cmp.Or(r.Place, c.Placer)
	f, err := config.Hold(c.Policy, c.Placer)
	if err != nil {
		field := "policy"
		if r.Policy == "" && r.Place != "" {
			field = "place"
		}
		return nil, &ask.FieldError{Field: field, Text: err.Error()}
	}
	return f, nil
}

// hold keeps the contents of the files of the policy that counts now, or lets them go if it
// does not count: what is built later (a reload, a forecast) reads no file, and has the weights that count.
func (m *Machine) hold(f *config.Files, counts bool) {
	if counts {
		m.conf.Lock()
		f, m.held = m.held, f
		m.conf.Unlock()
	}
	f.Release()
}

// Guarded is the policy that counts with its guard; nil: it has none.
func (m *Machine) Guarded() (now show.PolicyChoice, since time.Time, by *show.PolicyWatch) {
	m.conf.RLock()
	defer m.conf.RUnlock()
	return m.policy.View(), m.policy.At, m.policy.Guard
}

// Looked stores what a guard's look found; over: it was the last.
func (m *Machine) Looked(ctx context.Context, of *show.PolicyWatch, text string, over bool) error {
	return m.turnTo(ctx, func(_ *rules.Settings, p *rules.Standing) (string, string, error) {
		if p.Guard != of {
			return "", "", errNothing // another policy was set meanwhile
		}
		if over {
			p.Guard = nil
			return policyKey, "the guard ends: " + text, nil
		}
		next := *of
		next.Text = text
		p.Guard = &next
		return "", "", nil
	})
}
