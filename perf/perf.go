// Package perf models how fast a job runs on a placement: relative speeds of GPU models, the cost
// of distance between a gang's tasks, and interference of jobs on one GPU. Speeds are in parts per
// million of the job's recorded speed, so that everything downstream uses integers.
package perf

import (
	"fmt"
	"math/bits"
	"sort"
	"strings"

	"github.com/muster-gpu/muster/cluster"
)

// Million is the recorded speed in ppm.
const Million = 1_000_000

// Placement is what a job's speed depends on.
type Placement struct {
	GPU      string        // model
	GPUs     int           // devices
	Tasks    int           // running tasks
	Want     int           // requested tasks
	Nodes    int           // nodes
	Level    cluster.Level // tightest level that contains the gang; beyond fabric: none
	Share    cluster.Milli // of each device; 1000: whole
	Profile  string        // MIG instance that it has in place of the requested whole GPU; "": none
	Partners []string      // models of the other jobs on its devices, sorted
	MPS      bool          // it computes at the same time as its partners; otherwise they take turns
}

// Model gives the speed of a job on a placement.
type Model interface {
	Rate(j *cluster.Job, p Placement) int64
}

// Pair is a job model and that of its partner. In files it is "a/b".
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

// Belief is a scheduler's knowledge of speeds: a model, applied to gangs that have whole GPUs to
// themselves and are as close together as possible.
type Belief struct{ Model Model }

// Speed implements sched.Speeds.
func (b Belief) Speed(j *cluster.Job, gpu string, tasks int) int64 {
	want := j.NumTasks()
	first := &j.Tasks[0]
	return b.Model.Rate(j, Placement{GPU: gpu, GPUs: j.GPUs() + (tasks-first.Count)*first.Request.GPUs,
		Tasks: want + tasks - first.Count, Want: want, Nodes: 1, Level: cluster.LevelNode, Share: cluster.Whole})
}

// Beside implements sched.Speeds.
func (b Belief) Beside(j *cluster.Job, gpu string, others []*cluster.Job) int64 {
	p := Placement{GPU: gpu, GPUs: j.GPUs(), Tasks: j.NumTasks(), Want: j.NumTasks(), Nodes: 1,
		Level: cluster.LevelNode, Share: cluster.Whole}
	alone := b.Model.Rate(j, p)
	for _, o := range others {
		p.Partners = append(p.Partners, o.Model)
	}
	sort.Strings(p.Partners)
	return b.Model.Rate(j, p) * Million / max(1, alone)
}

// Pair implements speed.Pairs.
func (b Belief) Pair(model, beside string) int64 {
	// turns are covered by Turns
	j, p := cluster.Job{Model: model},
		Placement{GPUs: 1, Tasks: 1, Want: 1, Nodes: 1, Level: cluster.LevelNode, Share: 1, MPS: true}
	alone := b.Model.Rate(&j, p)
	p.Partners = []string{beside}
	return b.Model.Rate(&j, p) * Million / max(1, alone)
}

// Slice implements sched.Speeds.
func (b Belief) Slice(j *cluster.Job, gpu, profile string, part int64) int64 {
	return b.Model.Rate(j,
		Placement{GPU: gpu, GPUs: 1, Tasks: 1, Want: 1, Nodes: 1, Level: cluster.LevelNode, Share: part,
			Profile: profile})
}

// Table is a Model made of tables. What it does not list runs at the recorded speed.
type Table struct {
	// Speed is the speed of a job model on a GPU model, in ppm of that on the reference GPU; the
	// job model "*" stands for all that are not listed. The GPU model "A100-40GB/3g.20gb" is a MIG
	// instance, for jobs that request a whole GPU; the speed of an instance that is not listed is
	// in proportion to its compute slices.
	Speed map[string]map[string]int64
	// Distance is the factor, in ppm, for a gang whose tasks are as far apart as the level, by job
	// model or for "*". Closer levels that are not listed cost nothing.
	Distance map[string]map[cluster.Level]int64
	// Pairs is the factor, in ppm, for a job (first) next to another (second) on the same GPU, when
	// both use as much of it as their shares allow. Jobs that are not listed do not interfere in
	// their shares, and take turns where both have the whole GPU.
	Pairs map[Pair]int64
	// Stages is the time that an iteration of a job model spends on each resource in turn (storage,
	// CPU, GPU, network), in one unit for all. Jobs that are all listed interleave on the same
	// whole GPUs, whatever Pairs says.
	Stages map[string][]int64
	// Scale is the speed of an elastic job at a number of tasks, in ppm of that at the requested
	// number; missing: linear.
	Scale map[string]map[int]int64

	// Slicing describes how processes on one GPU take turns without MPS. It applies to jobs that
	// all state their duty, whatever Pairs says; nil: to none.
	Slicing *TimeSlicing `json:",omitempty"`

	// Use is what job models use of a GPU of their own. Pairs are estimated from it, too.
	Use map[string]Use

	Speeds, Beside Error       // errors of estimated entries of Speed and Pairs
	Ways           []PairError `json:",omitempty"` // errors of the ways to estimate pairs, in the order of PairWays
	Given          *Table      `json:",omitempty"` // the stated entries if others are estimated; nil: none are
}

// Rate returns the product of all applicable factors, at least 1 ppm.
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

// beside is the rate that is left next to the job's partners.
func (t *Table) beside(rate int64, model string, p *Placement) int64 {
	if len(p.Partners) == 0 {
		return rate
	}
	if alone, together, ok := t.interleaved(model, p); ok {
		hi, lo := bits.Mul64(uint64(rate), uint64(alone))
		rate, _ := bits.Div64(hi, lo, uint64(together)) // no overflow: alone is at most together
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

// slice is the speed on a MIG instance of a GPU, given the speed on the whole one.
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
		for l > cluster.LevelAny { // a level that is not listed costs as much as the next closer one
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
		for gpu, v := range t.Speed[m] { // map order does not matter: any invalid one will do
			if err := bad("speed of "+m+" on "+gpu, v); err != nil {
				return err
			}
		}
	}
	for m, levels := range t.Distance { // map order does not matter: any invalid one will do
		for l, v := range levels { // map order does not matter: any invalid one will do
			if err := bad("distance of "+m+" at "+l.String(), v); err != nil {
				return err
			}
		}
	}
	for m, u := range t.Use { // map order does not matter: any invalid one will do
		if min(u.Compute, u.Memory) < 0 || max(u.Compute, u.Memory) > Million || u == (Use{}) {
			return fmt.Errorf("use of %s: compute %g, memory %g; parts of a GPU are between 0 and 1, and not both 0", m,
				float64(u.Compute)/Million, float64(u.Memory)/Million)
		}
	}
	if t.Slicing != nil {
		if err := t.Slicing.check(); err != nil {
			return fmt.Errorf("time_slicing: %w", err)
		}
	}
	for m, stages := range t.Stages { // map order does not matter: any invalid one will do
		if err := checkStages(stages); err != nil {
			return fmt.Errorf("stages of %s: %w", m, err)
		}
	}
	for p, v := range t.Pairs { // map order does not matter: any invalid one will do
		if err := bad("pair "+p[0]+" beside "+p[1], v); err != nil {
			return err
		}
	}
	return nil
}

// Apart implements sched.Distances.
func (b Belief) Apart(j *cluster.Job, gpu string, l cluster.Level) int64 {
	n := j.NumTasks()
	p := Placement{GPU: gpu, GPUs: j.GPUs(), Tasks: n, Want: n, Nodes: 1, Level: cluster.LevelNode,
		Share: cluster.Whole}
	near := b.Model.Rate(j, p)
	p.Nodes, p.Level = 2, l
	return b.Model.Rate(j, p) * Million / max(near, 1)
}

// Origin says where the table has a pair from: listed, estimated, or listed for any; "": it is not there.
func (t *Table) Origin(p Pair) string {
	listed := t.Pairs
	if t.Given != nil {
		listed = t.Given.Pairs
	}
	if _, ok := listed[p]; ok {
		return "listed"
	}
	if _, ok := t.Pairs[p]; ok {
		return "estimated"
	}
	for _, q := range []Pair{{p[0], "*"}, {"*", p[1]}, {"*", "*"}} {
		if _, ok := t.Pairs[q]; ok {
			return "listed for any"
		}
	}
	return ""
}
