package trace

import (
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// synthEpoch is Monday, 1 January 2024, 00:00 UTC: a synthetic workload starts with a week.
const synthEpoch = 1704067200

// Presets lists the names that SynthPreset knows.
func Presets() []string {
	return []string{"small-team", "philly-like", "helios-like", "inference-mix"}
}

// SynthPreset returns a named starting point.
func SynthPreset(name string) (SynthSpec, error) {
	s := SynthSpec{
		Name: name, Seed: 1, Jobs: 1000, GPUs: 64, Load: 0.9,
		CV: 1, Weekend: 1, Peak: 15, Epoch: synthEpoch,
		Durations: Dist{{Weight: 1, Kind: "lognormal", Args: []float64{1800, 1.8}}},
		Max:       14 * 24 * time.Hour,
		Gangs:     []Weighted[int]{{1, 70}, {2, 10}, {4, 9}, {8, 8}, {16, 2}, {32, 1}},
		Shares:    []Weighted[int]{{250, 1}, {500, 1}},
		CPU:       8000, RAM: 64 * 1024,
		Users: 20, UserSkew: 1, Queues: 4, QueueSkew: 0.8,
		Error: 0.5, Slack: 1,
		Checkpoint: cluster.Checkpoint{Interval: 30 * time.Minute, Cost: 20 * time.Second, Restart: time.Minute},
		Kinds:      []Weighted[cluster.Kind]{{cluster.Training, 1}},
		Tiers:      []Weighted[cluster.Tier]{{cluster.Standard, 1}},
	}
	switch name {
	case "":
		s.Name = "synth"
	case "small-team":
		s.smallTeam()
	case "philly-like":
		s.phillyLike()
	case "helios-like":
		s.heliosLike()
	case "inference-mix":
		s.inferenceMix()
	default:
		return s, cluster.Unknown("preset", name, Presets())
	}
	return s, nil
}

// smallTeam is a research group with four nodes of eight GPUs over about two weeks: notebooks by
// day, training overnight, an occasional deadline.
func (s *SynthSpec) smallTeam() {
	s.Jobs, s.GPUs, s.Load = 400, 32, 0.85
	s.CV, s.Daily, s.Weekend = 1.5, 0.7, 0.4
	s.Durations = Dist{
		{Weight: 0.35, Kind: "lognormal", Args: []float64{300, 1}},
		{Weight: 0.5, Kind: "lognormal", Args: []float64{2 * 3600, 1.2}},
		{Weight: 0.15, Kind: "pareto", Args: []float64{6 * 3600, 4 * 24 * 3600, 1}},
	}
	s.Max = 5 * 24 * time.Hour
	s.Gangs = []Weighted[int]{{1, 55}, {2, 15}, {4, 14}, {8, 12}, {16, 4}}
	s.Fraction = 0.15
	s.Users, s.UserSkew, s.Queues, s.QueueSkew = 9, 0.8, 3, 0.5
	s.Kinds = []Weighted[cluster.Kind]{{cluster.Training, 75}, {cluster.Interactive, 15}, {cluster.Batch, 10}}
	s.Tiers = []Weighted[cluster.Tier]{{cluster.Critical, 5}, {cluster.Standard, 75}, {cluster.BestEffort, 20}}
	s.Estimates, s.Limits, s.Deadlines, s.Elastic, s.NoState = 0.5, 0.8, 0.05, 0.2, 0.15
	s.Failed, s.Cancelled = 0.12, 0.08
}

// phillyLike follows the processed Philly list: 93 % one-GPU jobs, half of all jobs under 20
// minutes, a tail of weeks, large gangs that run longer, bursts. The numbers are rounded from an
// analysis of that list.
func (s *SynthSpec) phillyLike() {
	s.Jobs, s.GPUs, s.Load = 10000, 512, 0.9
	s.CV, s.Daily, s.Weekend = 6, 0.3, 0.5
	s.Durations = Dist{{Weight: 1, Kind: "quantiles",
		Points: [][2]float64{{0, 5}, {0.1, 60}, {0.3, 210}, {0.5, 1100}, {0.7, 2500},
			{0.9, 9000}, {0.95, 30000}, {0.99, 150000}, {1, 1.5e6}}}}
	s.Stretch, s.Max = 0.8, 50*24*time.Hour
	s.Gangs = []Weighted[int]{{1, 93.2}, {2, 2.2}, {4, 2.3}, {8, 2}, {16, 0.22}, {32, 0.08}}
	s.Users, s.UserSkew, s.Queues, s.QueueSkew = 300, 1.1, 15, 1.2
	s.Failed, s.Cancelled = 0.1, 0.15
}

// heliosLike follows the published description of the Helios clusters (Hu et al., SC'21): GPU jobs
// with a median of 206 s and a mean of 6,652 s, over half with one GPU, a strong daily cycle, a few
// users with most of the GPU time.
func (s *SynthSpec) heliosLike() {
	s.Jobs, s.GPUs, s.Load = 20000, 1024, 0.8
	s.CV, s.Daily, s.Weekend = 3, 0.5, 0.7
	s.Durations = Dist{{Weight: 1, Kind: "lognormal", Args: []float64{206, 2.6}}}
	s.Gangs = []Weighted[int]{{1, 55}, {2, 8}, {4, 10}, {8, 19}, {16, 4.5}, {32, 2.5}, {64, 1}}
	s.Users, s.UserSkew, s.Queues, s.QueueSkew = 200, 1.4, 20, 0.9
	s.Failed, s.Cancelled = 0.17, 0.2
}

// inferenceMix is half services on parts of GPUs, which stay for hours to days, and half batch
// inference and training.
func (s *SynthSpec) inferenceMix() {
	s.Jobs, s.GPUs, s.Load = 2000, 128, 0.8
	s.CV, s.Daily, s.Weekend = 1.5, 0.5, 0.8
	s.Durations = Dist{
		{Weight: 0.5, Kind: "lognormal", Args: []float64{6 * 3600, 1.2}},
		{Weight: 0.5, Kind: "lognormal", Args: []float64{900, 1.5}},
	}
	s.Max = 7 * 24 * time.Hour
	s.Gangs = []Weighted[int]{{1, 85}, {2, 8}, {4, 5}, {8, 2}}
	s.Fraction = 0.7
	s.Shares = []Weighted[int]{{100, 2}, {200, 3}, {300, 2}, {500, 3}}
	s.Kinds = []Weighted[cluster.Kind]{{cluster.Service, 50}, {cluster.Batch, 30}, {cluster.Training, 20}}
	s.Tiers = []Weighted[cluster.Tier]{{cluster.Critical, 30}, {cluster.Standard, 50}, {cluster.BestEffort, 20}}
	s.Users, s.UserSkew, s.Queues, s.QueueSkew = 40, 1, 8, 0.8
}
