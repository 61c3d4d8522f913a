package progress

import (
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/perf"
	"github.com/muster-gpu/muster/show"
)

// Speeds returns the speeds that an engine learned from progress reports (Engine.Paces,
// Engine.Measured).
func Speeds(e *engine.Engine) show.Speeds {
	s := show.Speeds{Paces: []show.Pace{}, Pairs: []show.Pair{}}
	for _, r := range e.Paces() {
		unit := "steps"
		if r.Unit == job.PaceSamples {
			unit = "samples"
		}
		s.Paces = append(s.Paces,
			show.Pace{Model: r.Model, GPU: r.GPU, GPUs: int(r.Per / cluster.Whole), Tasks: r.Tasks,
				Pace: float64(r.Pace) / perf.Million, Unit: unit, Runs: r.Runs})
	}
	for _, r := range e.Measured() {
		s.Pairs = append(s.Pairs, show.Pair{Model: r.Model, Beside: r.Beside, Speed: float64(r.Speed) / perf.Million})
	}
	return s
}
