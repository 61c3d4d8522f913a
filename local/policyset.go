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
	"github.com/muster-gpu/muster/show"
	"github.com/muster-gpu/muster/store"
)

// choice is who is next, where, and what may pass a blocked job (empty: the
// policy's own).
type choice struct {
	Policy   string `json:"policy"`
	Placer   string `json:"place"`
	Backfill string `json:"backfill,omitempty"`
}

func (c *choice) text() string {
	backfill := c.Backfill
	if backfill == "" {
		backfill = "of its own"
	}
	return fmt.Sprintf("%s (place %s, backfill %s)", c.Policy, c.Placer, backfill)
}

func (c *choice) view() show.PolicyChoice {
	return show.PolicyChoice{Policy: c.Policy, Place: c.Placer, Backfill: c.Backfill}
}

// policyNow is what is stored of the policy: what counts, since when and by
// whom, and what the file and the flags said then. The last to speak wins: a
// live setting stays until the file says something else than it did.
type policyNow struct {
	choice
	Configured choice    `json:"configured"`
	Live       bool      `json:"live,omitempty"` // set by a person, not by the file
	At         time.Time `json:"at"`
	By         string    `json:"by"`

	Guard *show.PolicyWatch `json:"guard,omitempty"`
}

const policyKey = "policy"

func (p *policyNow) put(t *store.Tx) error {
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
	file := choice{r.Policy, r.Placer, r.Backfill}
	now := &policyNow{choice: file, Configured: file, At: m.opt.Now().UTC(), By: byConfig}
	old := &policyNow{}
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
	if old != nil && old.Configured == file && (old.Live || old.choice == file) {
		h := *r
		h.Policy, h.Placer, h.Backfill = old.Policy, old.Placer, old.Backfill
		held, err := config.Hold(h.Policy, h.Placer)
		if err == nil {
			err = h.Check()
		}
		if m.hold(held, err == nil); err != nil { // of another version of this program, or the cluster is another
			m.opt.Log.Warn("the policy that was set live does not hold any more", "policy", old.text(), "error", err)
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
		if err := now.put(t); err != nil || old == nil {
			return err
		}
		return t.PutHistory(noJob, now.At.UnixNano(), policyKey, byConfig+": "+old.text()+" -> "+now.text())
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
	v := show.Policy{PolicyChoice: p.view(), Since: p.At, By: p.By, Live: p.Live, Configured: p.Configured.view(), Guard: p.Guard, Changes: []show.Moment{}}
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

// wanted is what a request comes to beside what counts now; it says what of it
// is wrong.
func (m *Machine) wanted(r *ask.PolicyRequest, p *policyNow) (choice, error) {
	c := p.choice
	switch {
	case r.FromConfig && (r.Policy != "" || r.Place != "" || r.Backfill != ""):
		return c, &ask.FieldError{Field: "from_config", Text: "the configuration says which policy it is: name none"}
	case r.FromConfig:
		return p.Configured, nil
	case r.Policy == "" && r.Place == "" && r.Backfill == "":
		return c, &ask.FieldError{Field: "policy", Text: "name a policy, a placer or a backfill"}
	}
	m.conf.RLock()
	spec := m.opt.Rules.Spec
	m.conf.RUnlock()
	try := func(field, value string, set func(h *config.Rules)) error {
		if value == "" {
			return nil
		}
		h := config.Rules{Policy: "fifo", Placer: "best-fit", Spec: spec}
		set(&h)
		if err := h.Check(); err != nil {
			return &ask.FieldError{Field: field, Text: err.Error()}
		}
		return nil
	}
	if r.Backfill == "own" {
		c.Backfill = ""
	} else if r.Backfill != "" {
		c.Backfill = r.Backfill
	}
	if r.Policy != "" {
		c.Policy = r.Policy
	}
	if r.Place != "" {
		c.Placer = r.Place
	}
	return c, errors.Join(try("policy", r.Policy, func(h *config.Rules) { h.Policy = c.Policy }),
		try("place", r.Place, func(h *config.Rules) { h.Placer = c.Placer }),
		try("backfill", r.Backfill, func(h *config.Rules) { h.Backfill = c.Backfill }))
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
	err = m.turnTo(named(ctx, by), func(s *Settings, p *policyNow) (string, string, error) {
		to, err := m.wanted(r, p)
		if err != nil {
			return "", "", err
		}
		v = show.PolicyChange{Before: p.view(), After: to.view()}
		if to == p.choice && p.Live != r.FromConfig {
			return "", "", errNothing
		}
		text := by + ": " + p.text() + " -> " + to.text()
		if r.FromConfig {
			text += ", as configured"
		}
		now := m.opt.Now().UTC()
		guard := guardOf(r.Guard, p.view(), now)
		*p = policyNow{choice: to, Configured: p.Configured, Live: !r.FromConfig, At: now, By: by, Guard: guard}
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
	c := m.policy.choice
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

// usual is what a guard does where nothing is said.
var usual = ask.PolicyGuard{Every: ask.Duration(10 * time.Minute), Objective: "mean-jct", Bound: 0.05, Jobs: 20}

// guardOf is a guard from now on; nil: none was asked for.
func guardOf(g *ask.PolicyGuard, before show.PolicyChoice, now time.Time) *show.PolicyWatch {
	if g == nil || g.For <= 0 {
		return nil
	}
	w := &show.PolicyWatch{PolicyGuard: *g, Against: before, Until: now.Add(time.Duration(g.For))}
	w.Every, w.Objective = cmp.Or(w.Every, usual.Every), cmp.Or(w.Objective, usual.Objective)
	w.Bound, w.Jobs = cmp.Or(w.Bound, usual.Bound), cmp.Or(w.Jobs, usual.Jobs)
	return w
}

// Guarded is the policy that counts with its guard; nil: it has none.
func (m *Machine) Guarded() (now show.PolicyChoice, since time.Time, by *show.PolicyWatch) {
	m.conf.RLock()
	defer m.conf.RUnlock()
	return m.policy.view(), m.policy.At, m.policy.Guard
}

// Looked stores what a guard's look found; over: it was the last.
func (m *Machine) Looked(ctx context.Context, of *show.PolicyWatch, text string, over bool) error {
	return m.turnTo(ctx, func(_ *Settings, p *policyNow) (string, string, error) {
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
