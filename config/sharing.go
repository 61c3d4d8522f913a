package config

import (
	"fmt"
	"slices"

	"github.com/muster-gpu/muster/cluster"
)

// Sharing says how the GPUs of this machine are shared.
type Sharing struct {
	Shares     string // auto, mps, time-slicing
	MIG        string // static, instances, dynamic: who partitions GPUs
	Program    string // that controls MPS
	OverMemory string // warn, throttle, stop: jobs that use more memory than their share's where nothing keeps them from it
	MinSpeed   int64  // least part of its speed that a job accepts in a share, if it states none, ppm; 0: any
}

type sharingFile struct {
	Shares     string  `yaml:"shares"`
	MIG        string  `yaml:"mig"`
	Program    string  `yaml:"mps_program"`
	OverMemory string  `yaml:"over_memory"`
	MinSpeed   float64 `yaml:"min_speed"`
}

// OverMemories are what Sharing's OverMemory can be, in the order of package local's.
var OverMemories = []string{"warn", "throttle", "stop"}

// mpsProgram is NVIDIA's.
const mpsProgram = "nvidia-cuda-mps-control"

// minSpeed reads a part of a job's speed.
func minSpeed(v float64) (ppm int64, err error) {
	if !(v >= 0 && v <= 1) {
		return 0, fmt.Errorf("min_speed: %g is not a part of a job's speed, between 0 and 1", v)
	}
	return millionths(v), nil
}

// sharing checks the part of the file and fills in what it does not say.
func (f *sharingFile) sharing() (Sharing, error) {
	s := Sharing{"auto", "static", mpsProgram, "warn", 0}
	if f == nil {
		return s, nil
	}
	var err error
	if s.MinSpeed, err = minSpeed(f.MinSpeed); err != nil {
		return s, err
	}
	for _, v := range []struct {
		name, text string
		to         *string
		of         []string
	}{{"mig", f.MIG, &s.MIG, cluster.MIGWays}, {"shares", f.Shares, &s.Shares, []string{"auto", "mps", "time-slicing"}}, {"over_memory", f.OverMemory, &s.OverMemory, OverMemories},
		{"mps_program", f.Program, &s.Program, nil}} {
		if v.text == "" {
			continue
		}
		if v.of != nil && !slices.Contains(v.of, v.text) {
			return s, fmt.Errorf("%s: %w", v.name, cluster.Unknown("way", v.text, v.of))
		}
		*v.to = v.text
	}
	return s, nil
}
