package config

import (
	"fmt"
	"slices"

	"github.com/muster-gpu/muster/cluster"
)

// Sharing says how the GPUs of this machine are shared.
type Sharing struct {
	Shares  string // auto, mps, time-slicing
	MIG     string // static, instances, dynamic: how GPUs are partitioned
	Program string // the control program of MPS
	// warn, throttle, stop: for jobs that use more memory than their share's where no limit is enforced
	OverMemory string
	MinSpeed   int64 // least part of its speed that a job accepts in a share, if it states none, ppm; 0: any
}

type sharingFile struct {
	Shares     string  `yaml:"shares"`
	MIG        string  `yaml:"mig"`
	Program    string  `yaml:"mps_program"`
	OverMemory string  `yaml:"over_memory"`
	MinSpeed   float64 `yaml:"min_speed"`
}

// OverMemories are the values of Sharing.OverMemory, in the order of the constants of package local.
var OverMemories = []string{"warn", "throttle", "stop"}

// mpsProgram is the name of NVIDIA's program.
const mpsProgram = "nvidia-cuda-mps-control"

// minSpeed reads a fraction of a job's speed.
func minSpeed(v float64) (ppm int64, err error) {
	if !(v >= 0 && v <= 1) {
		return 0, fmt.Errorf("min_speed: %g is not a part of a job's speed, between 0 and 1", v)
	}
	return millionths(v), nil
}

// sharing checks the settings and fills in defaults.
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
	}{{"mig", f.MIG, &s.MIG, cluster.MIGWays}, {"shares", f.Shares, &s.Shares, []string{"auto", "mps", "time-slicing"}},
		{"over_memory", f.OverMemory, &s.OverMemory, OverMemories},
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
