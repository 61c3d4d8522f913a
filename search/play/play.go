// Package play plays hyper-parameter searches in the simulator, beside a workload or alone: several methods, each with
// several numbers of runs at once, under several setups.
package play

import (
	"fmt"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/search"
	"github.com/muster-gpu/muster/search/tuner"
	"github.com/muster-gpu/muster/sim"
)

// User submits the runs of the searches.
const User = "search"

// Options says what is compared.
type Options struct {
	Methods []string    // "": the file's
	AtOnce  []int       // runs at once; nil: as the file says
	Job     cluster.Job // of a run, fitted to the cluster
	Seed    uint64
	Unknown bool // the scheduler does not know how long runs take
}

// Play is a search under a setup.
type Play struct {
	sim.Setup
	Method string
	AtOnce int
}

// Plays makes of each setup one for each method and number of runs at once.
func Plays(file *tuner.File, o Options, setups []sim.Setup) (all []Play, err error) {
	curves, begin, err := model(file, o.Seed)
	if err != nil {
		return nil, err
	}
	atOnce := o.AtOnce
	if atOnce == nil {
		atOnce = []int{file.AtOnce}
	}
	for _, set := range setups {
		for _, name := range o.Methods {
			m, err := file.As(name)
			if err != nil {
				return nil, err
			}
			for _, n := range atOnce {
				s, err := search.New(m)
				if err != nil {
					return nil, err
				}
				one := set
				one.World.Search = &sim.Searching{Search: s, Scale: m.Scale, AtOnce: n, Job: o.Job, After: begin,
					Unknown: o.Unknown, Curves: curves}
				all = append(all, Play{one, tuner.MethodText(&m), n})
			}
		}
	}
	return all, nil
}

// model is how trials of a file learn, and when its search begins.
func model(file *tuner.File, seed uint64) (c sim.Curves, begin time.Duration, err error) {
	m := &file.Model
	step, err := cluster.ParseDuration(m.Step)
	if err != nil || step <= 0 {
		return c, 0, fmt.Errorf("%s: simulate.step: %q is not a time such as 30s", file.Path, m.Step)
	}
	begin, err = cluster.ParseDuration(m.Begin)
	if err != nil || begin < 0 {
		return c, 0, fmt.Errorf("%s: simulate.begin: %q is not a time such as 1d", file.Path, m.Begin)
	}
	if !(m.Spread >= 0 && m.Spread < 5 && m.Noise >= 0 && m.Noise < 5 && m.Scaled > 0 &&
		m.Scaled <= 1 && m.Fused >= 0 && m.Fused <= 100) {
		return c, 0, fmt.Errorf(
			"%s: simulate: spread and noise are 0 or more, scaled is above 0 and at most 1, fused 0 or more", file.Path)
	}
	return sim.Curves{Params: file.Params, Seed: seed, Unit: file.Method.Min, Step: step, Spread: m.Spread,
		Noise: m.Noise, Scaled: m.Scaled, Fused: m.Fused}, begin, nil
}

// Row is what came of a search. Loss is what the best trial is worth at full size after the whole budget, Optimum what
// the best of all configurations would be.
type Row struct {
	Method   string  `json:"method"`
	AtOnce   int     `json:"at_once"`
	Policy   string  `json:"policy"`
	Placer   string  `json:"placer"`
	Trials   int     `json:"trials"`
	Runs     int     `json:"runs"`
	Steps    int64   `json:"steps"`
	GPUHours float64 `json:"gpu_hours"`
	Makespan float64 `json:"makespan_s"`
	Reported float64 `json:"best_reported"`
	Loss     float64 `json:"best_loss"`
	Optimum  float64 `json:"least_loss"`
	Others   float64 `json:"others_mean_jct_s,omitempty"`
	Partial  bool    `json:"partial,omitempty"`
	Hash     string  `json:"hash"`
}

// RowOf is what came of a search; an error says why no trial came to a report.
func RowOf(file *tuner.File, p *Play, out *sim.Outcome) (Row, error) {
	if out.Err != nil {
		return Row{}, fmt.Errorf("%s: %w", out.Label, out.Err)
	}
	s := out.Setup.World.Search
	if !s.Found.Known {
		why := "they wait for ever"
		if s.Found.Refused > 0 {
			why = fmt.Sprintf("the cluster cannot run what the job of %s asks for", file.Path)
		}
		return Row{}, fmt.Errorf("%s, %s: no trial ran to a report: %s", p.Method, out.Label, why)
	}
	return Row{Method: p.Method, AtOnce: p.AtOnce, Policy: out.Label, Placer: out.Setup.Placer,
		Trials: s.Search.Trials(), Runs: s.Found.Runs, Steps: s.Found.Steps, GPUHours: s.Found.GPUHours,
		Makespan: s.Found.End.Sub(s.Found.Begin).Seconds(), Reported: s.Found.Best.Metric, Loss: s.Found.Loss,
		Optimum: s.Found.Optimum, Others: othersJCT(out), Partial: !s.Found.Done,
		Hash: fmt.Sprintf("%016x", out.Hash)}, nil
}

// othersJCT is the mean time from submission to end of the jobs besides the search, in seconds.
func othersJCT(out *sim.Outcome) float64 {
	sum, n := 0.0, 0
	for i, j := range out.Run.Jobs {
		if r := &out.Run.Records[i]; j.User != User && r.End != cluster.Never {
			sum, n = sum+r.End.Sub(r.Submit).Seconds(), n+1
		}
	}
	return sum / float64(max(1, n))
}
