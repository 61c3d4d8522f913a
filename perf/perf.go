// Package perf says how fast a job runs where: relative speeds of GPU models,
// what distance between the tasks of a gang costs, and what jobs on one GPU do
// to each other. Speeds are in parts per million of the job's recorded speed,
// so that everything downstream stays in integers.
package perf

import (
	"fmt"
	"math/bits"
	"sort"
	"strings"

	"github.com/muster-gpu/muster/cluster"
)

// Million is the recorded speed: ppm of itself.
const Million = 1_000_000

// Placement is what a job's speed depends on.
type Placement struct {
	GPU      string        // model
	GPUs     int           // devices
	Tasks    int           // tasks that run, of those asked for
	Want     int           // tasks asked for
	Nodes    int           // nodes
	Level    cluster.Level // tightest level that holds the gang; beyond fabric: none
	Share    cluster.Milli // of each device; 1000: whole
	Profile  string        // of the MIG instance that it has instead of the whole GPU that it asks for; "": none
	Partners []string      // models of the other jobs on its devices, sorted
	MPS      bool          // its processes and theirs compute at once; else they take turns
}

// Model says how fast a job runs on what it got.
type Model interface {
	Rate(j *cluster.Job, p Placement) int64
}

// Pair is a job model, and that of the job beside it. In files it is "a/b".
type Pair [2]string

// MarshalText writes "a/b".
func (p Pair) MarshalText() ([]byte, error) { return []byte(p[0] + "/" + p[1]), nil }

// UnmarshalText reads "a/b".
func (p *Pair) UnmarshalText(text []byte) error {
	a, b, ok := strings.Cut(string(text), "/")
	if !ok {
		return fmt.Errorf("pair %q: want job/neighbour", text)
	}
	*p = Pair{a, b}
	return nil
}

// Belief is what a scheduler knows of speeds: a model, asked about gangs that
// have whole GPUs for themselves and are as near together as can be.
type Belief struct{ Model Model }

// Speed implements engine.Speeds.
func (b Belief) Speed(j *cluster.Job, gpu string, tasks int) int64 {
	want := j.NumTasks()
	first := &j.Tasks[0]
	return b.Model.Rate(j, Placement{GPU: gpu, GPUs: j.GPUs() + (tasks-first.Count)*first.Request.GPUs,
		Tasks: want + tasks - first.Count, Want: want, Nodes: 1, Level: cluster.LevelNode, Share: cluster.Whole})
}

// Beside implements engine.Speeds.
func (b Belief) Beside(j *cluster.Job, gpu string, others []*cluster.Job) int64 {
	p := Placement{GPU: gpu, GPUs: j.GPUs(), Tasks: j.NumTasks(), Want: j.NumTasks(), Nodes: 1, Level: cluster.LevelNode, Share: cluster.Whole}
	alone := b.Model.Rate(j, p)
	for _, o := range others {
		p.Partners = append(p.Partners, o.Model)
	}
	sort.Strings(p.Partners)
	return b.Model.Rate(j, p) * Million / max(1, alone)
}

// Pair implements engine.Pairs.
func (b Belief) Pair(model, beside string) int64 {
	j, p := cluster.Job{Model: model}, Placement{GPUs: 1, Tasks: 1, Want: 1, Nodes: 1, Level: cluster.LevelNode, Share: 1, MPS: true} // turns say Turns
	alone := b.Model.Rate(&j, p)
	p.Partners = []string{beside}
	return b.Model.Rate(&j, p) * Million / max(1, alone)
}

// Slice implements engine.Speeds.
func (b Belief) Slice(j *cluster.Job, gpu, profile string, part int64) int64 {
	return b.Model.Rate(j, Placement{GPU: gpu, GPUs: 1, Tasks: 1, Want: 1, Nodes: 1, Level: cluster.LevelNode, Share: part, Profile: profile})
}

// Table is a Model made of tables. What it does not list runs as recorded.
type Table struct {
	// Speed is the speed of a job model on a GPU model, in ppm of that on the
	// reference GPU; the job model "*" stands for all that are not listed. The
	// GPU model "A100-40GB/3g.20gb" is a MIG instance of one, for jobs that ask
	// for a whole GPU; one that is not listed is as fast as it has compute slices.
	Speed map[string]map[string]int64
	// Distance is the factor, in ppm, of a gang whose tasks are as far apart as
	// the level; it holds for job model "*" or one of its own. Nearer levels
	// that are not listed cost nothing.
	Distance map[string]map[cluster.Level]int64
	// Pairs is the factor, in ppm, of a job (first) beside another (second) on
	// the same GPU, when both use it as much as their share allows. Jobs that are
	// not listed do not disturb each other in their shares, and take turns where
	// both have the whole GPU.
	Pairs map[Pair]int64
	// Stages is what an iteration of a job model takes of one resource after the
	// other (storage, CPU, GPU, network), in one unit for all. Jobs that are all
	// listed interleave where they have the same whole GPUs, whatever Pairs says.
	Stages map[string][]int64
	// Scale is the speed of an elastic job at a number of tasks, in ppm of that
	// at the tasks asked for; missing: linear.
	Scale map[string]map[int]int64

	// Slicing is how processes on one GPU take turns, where that is not by MPS. Jobs of
	// which all state their duty go by it, whatever Pairs says; nil: nobody does.
	Slicing *TimeSlicing `json:",omitempty"`

	// Use is what job models use of a GPU that they have to themselves. Pairs are
	// estimated from it, too.
	Use map[string]Use

	Speeds, Beside Error       // of what was estimated of Speed and Pairs, if it was
	Ways           []PairError `json:",omitempty"` // of the ways to estimate pairs, in the order of PairWays
	Given          *Table      `json:",omitempty"` // what was stated of a table of which the rest is estimated; nil: nothing is
}

// Rate returns the product of the factors that apply. It is at least 1 ppm.
func (t *Table) Rate(j *cluster.Job, p Placement) int64 {
	rate := t.speed(j.Model, p.GPU)
	if p.Profile != "" {
		rate = t.slice(j.Model, p, rate)
	}
	if p.Nodes > 1 {
		rate = mul(rate, t.distance(j.Model, p.Level))
	}
	rate = t.beside(rate, j.Model, &p)
	if p.Tasks != p.Want && p.Want > 0 {
		if f, ok := t.Scale[j.Model][p.Tasks]; ok {
			rate = mul(rate, f)
		} else {
			rate = rate * int64(p.Tasks) / int64(p.Want)
		}
	}
	return max(1, rate)
}

// beside is what is left of a rate in the company of others.
func (t *Table) beside(rate int64, model string, p *Placement) int64 {
	if len(p.Partners) == 0 {
		return rate
	}
	if alone, together, ok := t.interleaved(model, p); ok {
		hi, lo := bits.Mul64(uint64(rate), uint64(alone))
		rate, _ := bits.Div64(hi, lo, uint64(together)) // it does not overflow: alone is not more than together
		return int64(rate)
	}
	if part, ok := t.sliced(model, p); ok {
		return mul(rate, part)
	}
	turns := int64(1)
	for _, other := range p.Partners {
		if f, ok := t.pair(model, other); ok {
			rate = mul(rate, f)
		} else if p.Share == cluster.Whole {
			turns++
		}
	}
	return rate / turns
}

func mul(a, ppm int64) int64 { return a * ppm / Million }

func (t *Table) speed(model, gpu string) int64 {
	for _, m := range []string{model, "*"} {
		if v, ok := t.Speed[m][gpu]; ok {
			return v
		}
	}
	return Million
}

// slice is the speed on a MIG instance of a GPU on which it is whole.
func (t *Table) slice(model string, p Placement, whole int64) int64 {
	for _, m := range []string{model, "*"} {
		if v, ok := t.Speed[m][p.GPU+"/"+p.Profile]; ok {
			return v
		}
	}
	return whole * p.Share / cluster.Whole
}

func (t *Table) distance(model string, l cluster.Level) int64 {
	for _, m := range []string{model, "*"} {
		levels, ok := t.Distance[m]
		if !ok {
			continue
		}
		for l > cluster.LevelAny { // a level that is not listed costs what the next nearer one does
			if v, ok := levels[l]; ok {
				return v
			}
			l--
		}
		return Million
	}
	return Million
}

func (t *Table) pair(a, b string) (ppm int64, ok bool) {
	for _, k := range []Pair{{a, b}, {a, "*"}, {"*", b}, {"*", "*"}} {
		if v, ok := t.Pairs[k]; ok {
			return v, true
		}
	}
	return Million, false
}

// Check validates the table: factors between 1 and 100,000,000 ppm.
func (t *Table) Check() error {
	bad := func(what string, v int64) error {
		if v < 1 || v > 100*Million {
			return fmt.Errorf("%s: factor %g; between 0.000001 and 100 are possible", what, float64(v)/Million)
		}
		return nil
	}
	var models []string
	for m := range t.Speed { // sorted below
		models = append(models, m)
	}
	sort.Strings(models)
	for _, m := range models {
		for gpu, v := range t.Speed[m] { // order does not matter: any bad one will do
			if err := bad("speed of "+m+" on "+gpu, v); err != nil {
				return err
			}
		}
	}
	for m, levels := range t.Distance { // order does not matter: any bad one will do
		for l, v := range levels { // order does not matter: any bad one will do
			if err := bad("distance of "+m+" at "+l.String(), v); err != nil {
				return err
			}
		}
	}
	for m, u := range t.Use { // order does not matter: any bad one will do
		if min(u.Compute, u.Memory) < 0 || max(u.Compute, u.Memory) > Million || u == (Use{}) {
			return fmt.Errorf("use of %s: compute %g, memory %g; parts of a GPU are between 0 and 1, and not both 0", m, float64(u.Compute)/Million, float64(u.Memory)/Million)
		}
	}
	if t.Slicing != nil {
		if err := t.Slicing.check(); err != nil {
			return fmt.Errorf("time_slicing: %w", err)
		}
	}
	for m, stages := range t.Stages { // order does not matter: any bad one will do
		if err := checkStages(stages); err != nil {
			return fmt.Errorf("stages of %s: %w", m, err)
		}
	}
	for p, v := range t.Pairs { // order does not matter: any bad one will do
		if err := bad("pair "+p[0]+" beside "+p[1], v); err != nil {
			return err
		}
	}
	return nil
}

// Apart implements engine.Distances.
func (b Belief) Apart(j *cluster.Job, gpu string, l cluster.Level) int64 {
	n := j.NumTasks()
	p := Placement{GPU: gpu, GPUs: j.GPUs(), Tasks: n, Want: n, Nodes: 1, Level: cluster.LevelNode, Share: cluster.Whole}
	near := b.Model.Rate(j, p)
	p.Nodes, p.Level = 2, l
	return b.Model.Rate(j, p) * Million / max(near, 1)
}
