package policy

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/sched"
)

var tiresiasG = Info{
	Name:   "tiresias-g",
	About:  "2D-Gittins: levels of attained GPU service, inside a level the job most likely to end soon, judging by earlier jobs; preemptive",
	Source: "Tiresias (NSDI'19): discretised 2D-Gittins",
	Needs:  "how much GPU time earlier jobs took: the cluster's own, or a file",
	Trials: []Trial{
		{},
		{Knobs: "thresholds=3600/36000/360000"},
	},
	Knobs: []Knob{
		{"thresholds", "36000", "GPU-seconds at which levels end, e.g. 3250/7200/18000"},
		{"samples", "", "file with the GPU-seconds of earlier jobs, one a line; none: the last 1000 that completed here"},
		{"learn", "1h", "interval at which the history of completed jobs is read"},
		{"steps", "16", "how often per level the index of a running job is recomputed"},
		promoteKnob,
	},
	New: newTiresiasG,
}

type tiresiasGPolicy struct {
	name string
	levels
	promotion
	steps int64
	learn time.Duration
	table *sched.Past // nil: the cluster's own history
}

func newTiresiasG(k *Knobs) sched.Policy {
	p := &tiresiasGPolicy{name: k.label(), levels: k.levels("thresholds"), promotion: k.promotion(),
		steps: k.int("steps", 1, 1000), learn: k.learn()}
	if file := k.text("samples"); file != "" {
		var err error
		p.table, err = readSamples(file)
		k.check(err)
		p.learn = 0
	}
	return p
}

// learn reads the knob "learn": the interval at which the history of completed jobs is read.
func (k *Knobs) learn() time.Duration { return k.duration("learn", time.Second) }

// mostSamples bounds the number of samples in a file.
const mostSamples = 1 << 20

// ReadFile reads the files that knobs name. Policies do no I/O themselves: a program with access to
// files sets it before it creates policies.
var ReadFile func(name string) ([]byte, error)

// readSamples reads GPU-seconds, one per line; the first line may be a heading.
func readSamples(file string) (*sched.Past, error) {
	if ReadFile == nil {
		return nil, errors.New("samples: this program reads no files for policies")
	}
	content, err := ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("samples: %w", err)
	}
	var list []int64
	n := 0
	for text := range strings.Lines(string(content)) {
		n++
		text = strings.TrimSpace(text)
		s, err := strconv.ParseFloat(text, 64)
		switch {
		case text == "" || err != nil && n == 1:
			continue
		case err != nil || !(s >= 0) || s > 1e12:
			return nil, fmt.Errorf("samples=%s: line %d is not a number of GPU-seconds between 0 and 1e12", file, n)
		case len(list) == mostSamples:
			return nil, fmt.Errorf("samples=%s: more than %d lines", file, mostSamples)
		}
		list = append(list, int64(s*gpuSecond))
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("samples=%s: no number in it; want a heading and then GPU-seconds, one a line", file)
	}
	p := sched.NewPast(list, nil)
	return &p, nil
}

func (p *tiresiasGPolicy) Name() string { return p.name }

func (p *tiresiasGPolicy) Traits() sched.Traits {
	return sched.Traits{Preempts: true, Backfill: sched.Skip, Learns: p.learn}
}

func (p *tiresiasGPolicy) past(v sched.View) *sched.Past {
	if p.table != nil {
		return p.table
	}
	return v.Past()
}

// Key is the level, then the index in descending order; ties go by submission.
func (p *tiresiasGPolicy) Key(v sched.View, j sched.JobView) sched.Key {
	service, _ := j.Executed()
	past := p.past(v)
	from, _, quantum := p.step(past, service)
	return sched.Key{int64(p.of(service))<<indexBits + 1<<indexBits - 1 - gittins(past, from, quantum)}
}

// NextChange is when the index is next recomputed or the level ends.
func (p *tiresiasGPolicy) NextChange(v sched.View, j sched.JobView) cluster.Time {
	service, _ := j.Executed()
	_, to, _ := p.step(p.past(v), service)
	return until(j, service, to)
}

// step is the part of a level in which the index is constant: the service at which it begins (for
// which the index is computed), and at which it ends. The quantum of service is the upper limit of
// the level; in the last level it is the largest sample.
func (p *tiresiasGPolicy) step(past *sched.Past, service int64) (from, to, quantum int64) {
	low, end := int64(0), p.end(service)
	if i := p.of(service); i > 0 {
		low = p.levels[i-1]
	}
	quantum = end
	width := end - low
	if end == math.MaxInt64 {
		quantum = 0
		if n := len(past.Services); n > 0 {
			quantum = past.Services[n-1]
		}
		width = quantum
	}
	width = max(1, width/p.steps)
	from = low + (service-low)/width*width
	if end == math.MaxInt64 && from >= quantum {
		return from, end, quantum // no sample is that long: nothing more is known
	}
	return from, min(from+width, end), quantum
}

// indexBits is the width of a Gittins index.
const indexBits = 57

// gittins is the Gittins index of a job with attained service a, for a quantum d (Tiresias,
// NSDI'19): the probability that it ends within d more, over the mean service until then, both
// among the samples that exceed a:
//
//	P = Pr[S - a <= d | S > a], E = mean(min(S - a, d) | S > a), G = P/E
//
// in 2^-57 per milli-GPU-millisecond; 0 if no sample exceeds a or none ends within d.
func gittins(past *sched.Past, a, d int64) int64 {
	s, n := past.Services, len(past.Services)
	after := func(x int64) int { return sort.Search(n, func(i int) bool { return s[i] > x }) }
	lo, hi := after(a), n
	if d < math.MaxInt64-a {
		hi = after(a + d)
	}
	ends := int64(hi - lo)
	if ends == 0 {
		return 0
	}
	sum := past.Sums[hi] - past.Sums[lo] - a*ends
	if hi < n {
		sum += d * int64(n-hi)
	}
	// sum >= ends, as each sample counts at least 1: the quotient is at most 2^57.
	h, l := bits.Mul64(uint64(ends), 1<<indexBits)
	g, _ := bits.Div64(h, l, uint64(sum))
	return int64(min(g, 1<<indexBits-1))
}
