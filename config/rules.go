package config

import (
	"fmt"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/engine/sched"
	"github.com/muster-gpu/muster/network/traffic"
	"github.com/muster-gpu/muster/perf"
	"github.com/muster-gpu/muster/place"
	"github.com/muster-gpu/muster/policy"
)

// Rules are what an engine follows, in every place where one runs: the cluster, the policy with its knobs, and
// further limits. A journal begins with them.
type Rules struct {
	Spec       cluster.Spec        `json:"spec"`
	Policy     string              `json:"policy"` // with its knobs
	Placer     string              `json:"placer"`
	Backfill   string              `json:"backfill,omitempty"` // empty: the policy's own
	Depth      int                 `json:"depth,omitempty"`
	Reserve    int                 `json:"reserve,omitempty"`
	MinRuntime time.Duration       `json:"min_runtime,omitempty"`
	Starvation time.Duration       `json:"starvation,omitempty"`
	HoldAfter  time.Duration       `json:"hold_after,omitempty"` // absent: nothing is held
	Launches   int                 `json:"launches,omitempty"`
	Unshared   bool                `json:"unshared,omitempty"` // whole GPUs are handed out only once
	Stop       *[3]engine.StopRule `json:"stop,omitempty"`     // absent: the default
	Defrag     *engine.Defrag      `json:"defrag,omitempty"`   // absent: no job is moved
	Perf       *perf.Table         `json:"perf,omitempty"`     // speeds known to policies that plan; absent: none
	// how the network treats jobs' traffic; absent: nothing does
	Traffic string `json:"traffic,omitempty"`
}

// Config is the configuration of an engine under these rules.
func (r *Rules) Config() (engine.Config, error) {
	cfg := engine.Config{Spec: r.Spec, Depth: r.Depth, Reserve: r.Reserve, MinRuntime: r.MinRuntime,
		Starvation: r.Starvation, HoldAfter: r.HoldAfter, Launches: r.Launches, Unshared: r.Unshared, Stop: r.Stop,
		Defrag: r.Defrag}
	if r.Perf != nil {
		cfg.Speeds = perf.Belief{Model: r.Perf}
	}
	var err error
	if cfg.Policy, err = policy.New(r.Policy); err != nil {
		return cfg, err
	}
	if cfg.Placer, err = place.New(r.Placer); err != nil {
		return cfg, err
	}
	if r.Traffic != "" {
		if cfg.Traffic, err = traffic.New(r.Traffic); err != nil {
			return cfg, err
		}
	}
	if r.Backfill != "" {
		m, err := engine.ParseBackfill(r.Backfill)
		if err != nil {
			return cfg, err
		}
		cfg.Backfill = &m
	}
	return cfg, nil
}

// NewEngine makes an engine under these rules that knows no jobs.
func (r *Rules) NewEngine() (*engine.Engine, error) {
	cfg, err := r.Config()
	if err != nil {
		return nil, err
	}
	return engine.New(cfg)
}

// Restore makes an engine in the state of a snapshot, with the snapshot's queues, which may have changed since
// the rules were written.
func (r *Rules) Restore(snap *engine.Snapshot) (*engine.Engine, error) {
	cfg, err := r.Config()
	if err != nil {
		return nil, err
	}
	if snap.Queues != nil {
		cfg.Spec.Queues = snap.Queues
	}
	return engine.Restore(cfg, snap)
}

// Check reports errors in the rules, including a policy or a placer that needs what the cluster does not have.
// It does not apply to replays: an existing journal replays all the same.
func (r *Rules) Check() error {
	cfg, err := r.Config()
	if err != nil {
		return err
	}
	if p, ok := cfg.Policy.(sched.Fitter); ok {
		if err := p.Fits(&r.Spec); err != nil {
			return fmt.Errorf("policy %s: %w", cfg.Policy.Name(), err)
		}
	}
	return place.Fits(r.Placer, &r.Spec)
}

// Pin names the weights of a learned policy or placer by their digest, the shipped ones included, so that a
// replay with others is refused. Digests that are named already stay.
func (r *Rules) Pin() {
	if p, err := policy.New(r.Policy); err == nil {
		if p, ok := p.(policy.Pinned); ok {
			r.Policy = p.Pinned()
		}
	}
	if p, err := place.New(r.Placer); err == nil {
		if p, ok := p.(policy.Pinned); ok {
			r.Placer = p.Pinned()
		}
	}
}
