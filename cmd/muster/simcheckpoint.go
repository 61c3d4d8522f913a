package main

import (
	"fmt"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/perf"
	"github.com/muster-gpu/muster/sim"
	"github.com/muster-gpu/muster/trace"
)

// checkpoints gives jobs that state nothing the costs of the flags.
func (f *simFlags) checkpoints(entries []trace.Entry) error {
	every, err := time.Duration(0), error(nil)
	if f.ckptEvery != "auto" {
		if every, err = durationFlag("checkpoint-every", f.ckptEvery); err != nil {
			return err
		}
	}
	cost, err := durationFlag("checkpoint-cost", f.ckptCost)
	if err != nil {
		return err
	}
	restart, err := durationFlag("restart-cost", f.restart)
	if err != nil {
		return err
	}
	suspend, err := durationFlag("suspend-cost", f.suspendCost)
	if err != nil {
		return err
	}
	saving, lost, err := f.saving(cost)
	if err != nil {
		return err
	}
	c := sim.Checkpoints{Cost: cluster.Checkpoint{Interval: every, Cost: cost, Restart: restart, Suspend: suspend},
		Auto: f.ckptEvery == "auto", Saving: saving, Lost: lost}
	own, waste := c.Give(entries)
	if own > 0 {
		f.saves = fmt.Sprintf("checkpoints: %d jobs write them as often as loses least; in the mean %.1f %% of their time is expected to go to them, and to failures\n", own, 100*waste)
	}
	return nil
}

// saving reads how often checkpoints are to be written, and how far apart preemptions of a job are
// that lose its work: those that leave no time to write a checkpoint.
func (f *simFlags) saving(cost time.Duration) (s perf.Saving, lost func(*cluster.Job) time.Duration, err error) {
	if f.ckptEvery != "auto" && f.ckptMin+f.ckptMax+f.preemptEvery == "" {
		return s, nil, nil
	}
	base, err := f.baseSetup()
	if err != nil {
		return s, nil, err
	}
	s.Node, s.GPU = base.World.NodeMTBF, base.World.GPUMTBF
	var preempted time.Duration
	for _, x := range []struct {
		name, text string
		to         *time.Duration
	}{{"checkpoint-min", f.ckptMin, &s.Min}, {"checkpoint-max", f.ckptMax, &s.Max},
		{"preemption-every", f.preemptEvery, &preempted}} {
		if x.text == "" {
			continue
		}
		if *x.to, err = durationFlag(x.name, x.text); err != nil {
			return s, nil, err
		}
	}
	if err := s.Check(); err != nil {
		return s, nil, fmt.Errorf("--checkpoint-min, --checkpoint-max: %w", err)
	}
	if auto := f.ckptEvery == "auto"; auto && (cost == 0 || s.Node+s.GPU+preempted == 0) {
		return s, nil, fmt.Errorf(
			"--checkpoint-every auto needs --checkpoint-cost, and --node-mtbf, --gpu-mtbf or --preemption-every")
	} else if !auto && (s.Min > 0 || preempted > 0) {
		return s, nil, fmt.Errorf("--checkpoint-min and --preemption-every are for --checkpoint-every auto only")
	}
	stop := engine.DefaultStop
	if base.Config.Stop != nil {
		stop = *base.Config.Stop
	}
	return s, func(j *cluster.Job) time.Duration {
		if how := stop[j.Tier]; how.How == engine.Suspend || how.How == engine.Checkpoint && how.Grace >= cost {
			return 0
		}
		return preempted
	}, nil
}
