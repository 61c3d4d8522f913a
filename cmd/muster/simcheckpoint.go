package main

import (
	"fmt"
	"time"

	"github.com/muster-gpu/muster/cluster"
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
	c := sim.Checkpoints{Cost: cluster.Checkpoint{Interval: every, Cost: cost, Restart: restart, Suspend: suspend},
		Auto: f.ckptEvery == "auto"}
	if err := f.saving(&c); err != nil {
		return err
	}
	own, waste := c.Give(entries)
	if own > 0 {
		f.saves = fmt.Sprintf("checkpoints: %d jobs write them as often as loses least; in the mean %.1f %% of their time is expected to go to them, and to failures\n", own, 100*waste)
	}
	return nil
}

// saving reads how often checkpoints are to be written, and how far apart preemptions of a job are.
func (f *simFlags) saving(c *sim.Checkpoints) error {
	if f.ckptEvery != "auto" && f.ckptMin+f.ckptMax+f.preemptEvery == "" {
		return nil
	}
	base, err := f.baseSetup()
	if err != nil {
		return err
	}
	s := &c.Saving
	s.Node, s.GPU, c.Stop = base.World.NodeMTBF, base.World.GPUMTBF, base.Config.Stop
	for _, x := range []struct {
		name, text string
		to         *time.Duration
	}{{"checkpoint-min", f.ckptMin, &s.Min}, {"checkpoint-max", f.ckptMax, &s.Max},
		{"preemption-every", f.preemptEvery, &c.Preempted}} {
		if x.text == "" {
			continue
		}
		if *x.to, err = durationFlag(x.name, x.text); err != nil {
			return err
		}
	}
	if err := s.Check(); err != nil {
		return fmt.Errorf("--checkpoint-min, --checkpoint-max: %w", err)
	}
	if c.Auto && (c.Cost.Cost == 0 || s.Node+s.GPU+c.Preempted == 0) {
		return fmt.Errorf(
			"--checkpoint-every auto needs --checkpoint-cost, and --node-mtbf, --gpu-mtbf or --preemption-every")
	} else if !c.Auto && (s.Min > 0 || c.Preempted > 0) {
		return fmt.Errorf("--checkpoint-min and --preemption-every are for --checkpoint-every auto only")
	}
	return nil
}
