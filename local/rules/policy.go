//go:build linux

package rules

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/show"
)

// Choice is which job is next, where it goes, and what may pass a blocked one (empty: the policy's own).
type Choice struct {
	Policy   string `json:"policy"`
	Placer   string `json:"place"`
	Backfill string `json:"backfill,omitempty"`
}

// Text is the choice in words.
func (c *Choice) Text() string {
	backfill := c.Backfill
	if backfill == "" {
		backfill = "of its own"
	}
	return fmt.Sprintf("%s (place %s, backfill %s)", c.Policy, c.Placer, backfill)
}

// View is the choice as it is shown.
func (c *Choice) View() show.PolicyChoice {
	return show.PolicyChoice{Policy: c.Policy, Place: c.Placer, Backfill: c.Backfill}
}

// Standing is what is stored of the policy: what counts, since when and by
// whom, and what the file and the flags said then. The last to speak wins: a
// live setting stays until the file says something else than it did.
type Standing struct {
	Choice
	Configured Choice    `json:"configured"`
	Live       bool      `json:"live,omitempty"` // set by a person, not by the file
	At         time.Time `json:"at"`
	By         string    `json:"by"`

	Guard *show.PolicyWatch `json:"guard,omitempty"`
}

// Wanted is what a request comes to beside what counts now; it says what of it
// is wrong.
func (p *Standing) Wanted(r *ask.PolicyRequest, spec *cluster.Spec) (Choice, error) {
	c := p.Choice
	switch {
	case r.FromConfig && (r.Policy != "" || r.Place != "" || r.Backfill != ""):
		return c, &ask.FieldError{Field: "from_config", Text: "the configuration says which policy it is: name none"}
	case r.FromConfig:
		return p.Configured, nil
	case r.Policy == "" && r.Place == "" && r.Backfill == "":
		return c, &ask.FieldError{Field: "policy", Text: "name a policy, a placer or a backfill"}
	}
	try := func(field, value string, set func(h *config.Rules)) error {
		if value == "" {
			return nil
		}
		h := config.Rules{Policy: "fifo", Placer: "best-fit", Spec: *spec}
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

// usual is what a guard does where nothing is said.
var usual = ask.PolicyGuard{Every: ask.Duration(10 * time.Minute), Objective: "mean-jct", Bound: 0.05, Jobs: 20}

// GuardOf is a guard from now on; nil: none was asked for.
func GuardOf(g *ask.PolicyGuard, before show.PolicyChoice, now time.Time) *show.PolicyWatch {
	if g == nil || g.For <= 0 {
		return nil
	}
	w := &show.PolicyWatch{PolicyGuard: *g, Against: before, Until: now.Add(time.Duration(g.For))}
	w.Every, w.Objective = cmp.Or(w.Every, usual.Every), cmp.Or(w.Objective, usual.Objective)
	w.Bound, w.Jobs = cmp.Or(w.Bound, usual.Bound), cmp.Or(w.Jobs, usual.Jobs)
	return w
}
