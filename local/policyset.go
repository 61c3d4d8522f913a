//go:build linux

package local

import (
	"context"
	"time"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/local/audit"
	"github.com/muster-gpu/muster/local/rules"
	"github.com/muster-gpu/muster/show"
)

// Policy says which policy is in force, since when, and what changed lately.
func (m *Machine) Policy(ctx context.Context) (show.Policy, error) {
	return m.policy.Show(ctx, m.store)
}

// Scheduling is the policy and the placer that count.
func (m *Machine) Scheduling() (policy, placer string) {
	s := m.settings()
	return s.Policy, s.Placer
}

// SetPolicy changes the policy between two steps. When it returns, the change is
// stored: it survives the daemon.
func (m *Machine) SetPolicy(ctx context.Context, r *ask.PolicyRequest, by string) (v show.PolicyChange, err error) {
	files, err := m.policy.FilesOf(r)
	if err != nil {
		return v, err
	}
	changes := false
	defer func() { m.policy.Hold(files, changes && err == nil) }()
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
		return rules.PolicyChange, text, nil
	})
	if err == nil {
		m.opt.Log.Info("policy set", "by", by, "before", v.Before.Text(), "after", v.After.Text())
	}
	return v, err
}

// Guarded is the policy that counts with its guard; nil: it has none.
func (m *Machine) Guarded() (now show.PolicyChoice, since time.Time, by *show.PolicyWatch) {
	p := m.policy.Now()
	return p.View(), p.At, p.Guard
}

// GuardChecked stores what a guard's check found; over: it was the last.
func (m *Machine) GuardChecked(ctx context.Context, of *show.PolicyWatch, text string, over bool) error {
	return m.turnTo(ctx, func(_ *rules.Settings, p *rules.Standing) (string, string, error) {
		if p.Guard != of {
			return "", "", errNothing // another policy was set meanwhile
		}
		if over {
			p.Guard = nil
			return rules.PolicyChange, "the guard ends: " + text, nil
		}
		next := *of
		next.Text = text
		p.Guard = &next
		return "", "", nil
	})
}
