package service

import (
	"errors"
	"fmt"

	"github.com/muster-gpu/muster/cluster"
)

// What a language model's GPUs are chosen for where nothing is known of its requests: tokens of a prompt and an answer.
const (
	usualPrompt = 1024
	usualOutput = 256
	mostAuto    = 8 // GPUs of a replica
)

// Choose chooses what a replica of a variant holds: of what meets the service's goal, that which does most on each GPU.
// A model that computes batches gets one of the parts of a GPU that were measured, a language model 1, 2, 4 or 8 GPUs.
func (v *Variant) Choose(s *Service) error {
	if v.Language != nil {
		return v.chooseGPUs(s)
	}
	if v.Measure || len(v.Profile) == 0 {
		return errors.New("gpus: auto chooses among the parts of a GPU in the profile, and there is none")
	}
	best, most := cluster.Milli(0), 0.0
	for i := range v.Profile { // by share
		share := v.Profile[i].Share
		if _, rate := v.Profile.Sustained(share, s.MaxBatch(v), s.Goal.Latency); rate/float64(share) >= most &&
			rate > 0 {
			best, most = share, rate/float64(share)
		}
	}
	if best == 0 {
		return fmt.Errorf("gpus: auto finds no measured part of a GPU that sustains requests within %v", s.Goal.Latency)
	}
	v.Request.GPUs, v.Auto = 1, true
	if v.Request.Share = best; best == cluster.Whole {
		v.Request.Share = 0
	}
	return nil
}

// chooseGPUs chooses how many GPUs each stage of a language model has, with which each of the models that it may get
// meets the goal.
func (v *Variant) chooseGPUs(s *Service) error {
	if len(v.GPUTypes) == 0 {
		return errors.New("gpus: auto of a language model needs gpu_types")
	}
	most, stages := 0.0, max(1, v.Language.Engine.Stages)
	if _, err := v.Language.Layout(stages); err != nil {
		return err
	}
	for n := stages; n <= max(mostAuto, stages); n *= 2 {
		least := -1.0
		for _, gpu := range v.GPUTypes {
			if rate := v.Language.Sustained(gpu, n, s.Goal, usualPrompt, usualOutput); least < 0 || rate < least {
				least = rate
			}
		}
		if least/float64(n) > most {
			most, v.Request.GPUs = least/float64(n), n
		}
	}
	if most == 0 {
		return fmt.Errorf("gpus: auto finds no number of GPUs up to %d that meets the goal for prompts of %d tokens and answers of %d",
			mostAuto, usualPrompt, usualOutput)
	}
	return nil
}
