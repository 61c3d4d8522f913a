//go:build linux

package local

import (
	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/perf"
)

// Speeds is what jobs' progress told of their speeds.
func (m *Machine) Speeds() api.Speeds {
	m.mu.RLock()
	paces, pairs := m.eng.Paces(), m.eng.Measured()
	m.mu.RUnlock()
	s := api.Speeds{Paces: []api.Pace{}, Pairs: []api.Pair{}}
	for _, r := range paces {
		unit := "steps"
		if r.Unit == engine.PaceSamples {
			unit = "samples"
		}
		s.Paces = append(s.Paces, api.Pace{Model: r.Model, GPU: r.GPU, GPUs: int(r.Per / cluster.Whole), Tasks: r.Tasks, Pace: float64(r.Pace) / perf.Million, Unit: unit, Runs: r.Runs})
	}
	for _, r := range pairs {
		s.Pairs = append(s.Pairs, api.Pair{Model: r.Model, Beside: r.Beside, Speed: float64(r.Speed) / perf.Million})
	}
	return s
}
