//go:build linux

package local

import (
	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/forward"
	"github.com/muster-gpu/muster/local/foresight"
	"github.com/muster-gpu/muster/show"
)

// TryPolicy says what another policy would change: two engines go on from
// the present state, one under each policy, and what they do is compared.
func (m *Machine) TryPolicy(r *ask.PolicyRequest) (show.PolicyChange, error) {
	m.conf.RLock()
	p, old := m.policy.Now(), m.opt.Rules
	m.conf.RUnlock()
	to, err := p.Wanted(r, &old.Spec)
	if err != nil {
		return show.PolicyChange{}, err
	}
	rules := old
	rules.Policy, rules.Placer, rules.Backfill = to.Policy, to.Placer, to.Backfill
	m.mu.RLock()
	now, snap, known := m.clock.Now(), m.eng.Snapshot(), m.expectations()
	m.mu.RUnlock()
	before, err := m.future(&old, &snap, now, known)
	if err != nil {
		return show.PolicyChange{}, err
	}
	snap.Fresh = true
	after, err := m.future(&rules, &snap, now, known)
	if err != nil {
		return show.PolicyChange{}, err
	}
	return foresight.Compare(before, after, show.PolicyChange{Before: p.View(), After: to.View(), DryRun: true}), nil
}

// future is what an engine would do that goes on from a snapshot under rules.
func (m *Machine) future(rules *config.Rules, snap *engine.Snapshot, now cluster.Time,
	known *foresight.Expectations) (*foresight.Future, error) {
	e, err := m.restored(rules, snap)
	if err != nil {
		return nil, err
	}
	return foresight.FutureOf(e, now, func(opt forward.Options) (*forward.Result, error) {
		return known.Likely(m.second(rules, snap), opt)
	})
}
