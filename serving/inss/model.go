// Package inss plans inference services that share GPUs under MPS: which GPU each gets, how much of it, and how many
// requests it computes together, with a model of what neighbours do to its latency (InSS: Han et al., TPDS 2024).
// InSS' code is not public: the latency model has the form of iGniter's (Xu et al., TPDS 2023), and instead of learnt
// agents a deterministic solver decides.
package inss

import (
	"math"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/service"
)

// Activity is how long a GPU computes batches of a model that has it for itself, in milliseconds:
// (Square*b² + Each*b + Fixed)/(x + Offset) + Floor for b requests on the part x of the GPU.
type Activity struct{ Square, Each, Fixed, Offset, Floor float64 }

// At is how long a batch takes on a part of a GPU, 0 to 1, in milliseconds.
func (a *Activity) At(batch int, part float64) float64 {
	b := float64(batch)
	return (float64(a.Square*b*b)+float64(a.Each*b)+a.Fixed)/(part+a.Offset) + a.Floor
}

// Use is what a model uses on a whole GPU, and further for each request of a batch; on a part of a GPU, that part of
// it.
type Use struct{ Whole, Each float64 }

func (u Use) at(batch int, part float64) float64 {
	return float64(part * (u.Whole + float64(u.Each*float64(batch))))
}

// Model is what the latency of a model's batches depends on. None of the numbers is negative.
type Model struct {
	Activity    Activity
	Measured    service.Profile // how long batches take alone, instead of Activity; larger ones are not computed
	Launches    int             // kernels in a batch
	Launch      float64         // milliseconds that the start of a kernel takes
	Queued      float64         // part by which it takes longer for each neighbour
	Sensitivity float64         // part by which computing takes longer next to neighbours that use the whole cache
	Cache       Use             // of a GPU's cache: 0 to 1
	Power       Use             // watts
	In, Out     float64         // bytes of a request and of its answer
	Memory      int64           // MiB
}

// GPU is what all GPUs of a plan have.
type GPU struct {
	Memory   int64   // MiB; 0: not counted
	Bus      float64 // bytes per second that requests and answers take to and from it; 0: not counted
	Idle     float64 // watts when it computes nothing
	Limit    float64 // watts beyond which it becomes slower; 0: never
	Throttle float64 // part of its speed that each watt beyond the limit costs
	Slowest  float64 // part of its speed that it always keeps; with a limit above 0
}

// Load is what a model's neighbours on a GPU do, all together.
type Load struct {
	Services     int
	Cache, Power float64
}

func (l Load) plus(o Load) Load {
	return Load{l.Services + o.Services, l.Cache + o.Cache, l.Power + o.Power}
}

// Load is what a model does to its neighbours while it computes batches of a size on a part of a GPU.
func (m *Model) Load(batch int, part float64) Load {
	return Load{1, m.Cache.at(batch, part), m.Power.at(batch, part)}
}

// Stages are the times of a batch.
type Stages struct{ Load, Execute, Return time.Duration }

// Latency is how long the whole of a batch takes.
func (s Stages) Latency() time.Duration { return s.Load + s.Execute + s.Return }

// Takes is how long a batch takes on a part of a GPU, 0 to 1, next to neighbours (iGniter, section 3, TPDS 2023).
func (m *Model) Takes(g *GPU, batch int, part float64, beside Load) Stages {
	launching := float64(m.Launch * float64(m.Launches) * (1 + float64(m.Queued*float64(beside.Services))))
	computing := float64(m.alone(batch, part) * (1 + float64(m.Sensitivity*beside.Cache)))
	speed := g.speed(g.Idle + m.Power.at(batch, part) + beside.Power)
	s := Stages{Execute: milliseconds((launching + computing) / speed)}
	if g.Bus > 0 {
		s.Load = milliseconds(m.In * float64(batch) / g.Bus * 1e3)
		s.Return = milliseconds(m.Out * float64(batch) / g.Bus * 1e3)
	}
	return s
}

// alone is how long computing a batch takes without neighbours, in milliseconds.
func (m *Model) alone(batch int, part float64) float64 {
	switch {
	case len(m.Measured) == 0:
		return m.Activity.At(batch, part)
	case batch > m.Measured.MaxBatch():
		return math.Inf(1)
	}
	return m.Measured.Takes(cluster.Milli(math.Round(part*float64(cluster.Whole))), batch).Seconds() * 1e3
}

// speed is the part of its speed that a GPU keeps at a power.
func (g *GPU) speed(watts float64) float64 {
	if g.Limit == 0 || watts <= g.Limit {
		return 1
	}
	return max(g.Slowest, 1-float64(g.Throttle*(watts-g.Limit)))
}

// never is longer than any goal: 104 days. Longer times are cut to it, so that sums do not overflow.
const never = time.Duration(1 << 53)

// milliseconds rounds to whole nanoseconds: integers decide.
func milliseconds(ms float64) time.Duration {
	return time.Duration(min(math.Round(ms*float64(time.Millisecond)), float64(never)))
}
