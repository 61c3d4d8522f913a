package scenario

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/network/traffic"
	"github.com/muster-gpu/muster/place"
	"github.com/muster-gpu/muster/policy"
	"github.com/muster-gpu/muster/sim"
)

// runCmd is a `run` line: each combination of policy, placer and backfill is a
// variant with a label of its own.
type runCmd struct {
	line                        int
	policies, places, backfills []string
	traffic                     []string
	until                       cluster.Time
	seed                        int64
	minRuntime, starvation      duration
	holdAfter                   duration
	startup                     duration
	preempt                     string
	defrag                      *engine.Defrag
	protected                   []string
	zone                        string
	depth, reserve              int
	est                         sim.Estimates
	epoch                       int64
	showJobs                    string
	set                         *setup
	variants                    []variant
}

// variant is one combination.
type variant struct {
	label                   string
	policy, place, backfill string
	traffic                 string
}

// defaultUntil ends runs that would go on for ever: for example a service that is never cancelled
// under a policy that re-evaluates its keys every minute.
const defaultUntil = cluster.Time(30 * 24 * time.Hour)

var runKeys = []key[runCmd]{
	{name: "policies", set: func(r *runCmd, v string) error {
		r.policies = policy.Split(strings.Join(list(v), ","))
		return nil
	}},
	words("place", func(r *runCmd) *[]string { return &r.places }),
	words("backfill", func(r *runCmd) *[]string { return &r.backfills }),
	words("traffic", func(r *runCmd) *[]string { return &r.traffic }),
	instant("until", func(r *runCmd) *cluster.Time { return &r.until }),
	long("seed", func(r *runCmd) *int64 { return &r.seed }),
	span("min-runtime", func(r *runCmd) *duration { return &r.minRuntime }),
	span("starvation", func(r *runCmd) *duration { return &r.starvation }),
	span("hold-after", func(r *runCmd) *duration { return &r.holdAfter }),
	span("startup", func(r *runCmd) *duration { return &r.startup }),
	text("preempt", func(r *runCmd) *string { return &r.preempt }),
	{name: "defragment", set: func(r *runCmd, v string) (err error) {
		r.defrag, err = engine.ParseDefrag(v)
		return err
	}},
	words("protected", func(r *runCmd) *[]string { return &r.protected }),
	text("zone", func(r *runCmd) *string { return &r.zone }),
	whole("depth", 1, 1<<20, func(r *runCmd) *int { return &r.depth }),
	whole("reserve", 1, 1<<20, func(r *runCmd) *int { return &r.reserve }),
	{name: "estimates", set: func(r *runCmd, v string) (err error) {
		r.est, err = sim.ParseEstimates(v)
		return err
	}},
	{name: "epoch", set: func(r *runCmd, v string) error {
		t, err := time.Parse(time.RFC3339, v)
		if err != nil {
			return fmt.Errorf("%q is not a time such as 2026-11-16T00:00:00Z", v)
		}
		r.epoch = t.Unix()
		return nil
	}},
	{name: "show", set: func(r *runCmd, v string) error {
		r.showJobs = v
		if valid := []string{"auto", "jobs", "series", "sums"}; cluster.Nearest(v, valid) != v {
			return cluster.Unknown("form", v, valid)
		}
		return nil
	}},
}

func (p *parser) run(args []string) error {
	r := &runCmd{line: p.line, holdAfter: engine.DefaultHoldAfter, policies: []string{"fifo"},
		places: []string{"best-fit"}, backfills: []string{""},
		traffic: []string{""}, until: defaultUntil, seed: 1, depth: 0, showJobs: "auto"}
	if err := apply(r, runKeys, args); err != nil {
		return err
	}
	if len(p.set.spec.Nodes) == 0 {
		return errors.New("no cluster is described above")
	}
	if len(p.set.jobs) == 0 {
		return errors.New("no jobs are described above")
	}
	for _, v := range []struct {
		what  string
		list  []string
		check func(string) error
	}{
		{"policies", r.policies, func(s string) error { _, err := policy.New(s); return err }},
		{"place", r.places, func(s string) error { _, err := place.New(s); return err }},
		{"backfill", r.backfills, func(s string) error {
			if s == "" {
				return nil
			}
			_, err := engine.ParseBackfill(s)
			return err
		}},
		{"traffic", r.traffic, func(s string) error {
			if s == "" {
				return nil
			}
			if p.set.spec.Network == nil {
				return errors.New("traffic: the cluster has no network: describe one with `cluster yaml`")
			}
			_, err := traffic.New(s)
			return err
		}},
	} {
		if len(v.list) == 0 {
			return fmt.Errorf("%s: the list is empty", v.what)
		}
		for _, s := range v.list {
			if err := v.check(s); err != nil {
				return err
			}
		}
	}
	if r.preempt != "" {
		if _, err := engine.ParseHow(r.preempt); err != nil {
			return err
		}
	}
	if err := r.protect(); err != nil {
		return err
	}
	if r.seed < 0 || r.until > cluster.Time(math.MaxInt64/4) {
		return errors.New("seed must not be negative, until not beyond 70 years")
	}
	if err := p.set.checkNames(); err != nil {
		return err
	}
	r.combine()
	r.set = p.set.freeze()
	if r.epoch != 0 {
		r.set.spec.Epoch = r.epoch
	}
	p.last = r
	p.cmds = append(p.cmds, command{line: p.line, run: r, out: p.block()})
	return nil
}

// protect sets the times in which no job is moved.
func (r *runCmd) protect() error {
	if len(r.protected) == 0 && r.zone == "" {
		return nil
	}
	w, err := config.ParseWeekly(r.protected, cmp.Or(r.zone, "UTC"))
	switch {
	case err != nil:
		return err
	case r.defrag == nil:
		return errors.New("protected: without defragment= no job is moved at any time")
	case r.epoch == 0:
		return errors.New("protected: epoch= says when the run begins, such as 2026-11-16T00:00:00Z")
	}
	r.defrag.Protected = w
	return nil
}

// combine lists the variants. A label names the policy, and every setting with several values.
func (r *runCmd) combine() {
	for _, po := range r.policies {
		for _, pl := range r.places {
			for _, b := range r.backfills {
				for _, t := range r.traffic {
					v := variant{label: po, policy: po, place: pl, backfill: b, traffic: t}
					if len(r.places) > 1 {
						v.label += " " + pl
					}
					if len(r.backfills) > 1 {
						v.label += " " + b
					}
					if len(r.traffic) > 1 {
						v.label += " " + t
					}
					r.variants = append(r.variants, v)
				}
			}
		}
	}
}

// checkNames checks the names that job lines refer to.
func (s *setup) checkNames() error {
	var queues []string
	for i := range s.spec.Queues {
		queues = append(queues, s.spec.Queues[i].Name)
	}
	for i := range s.jobs {
		d := &s.jobs[i]
		if q := d.entry.Job.Queue; q != "" && queues != nil && !within(queues, q) {
			return &Error{s.file, d.line, cluster.Unknown("queue", q, queues)}
		}
		for _, r := range d.after {
			if _, err := s.lookup(r.name); err != nil {
				return &Error{s.file, d.line, err}
			}
		}
	}
	return nil
}

func within(names []string, name string) bool {
	for _, n := range names {
		if n == name {
			return true
		}
	}
	return false
}
