package compat

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
)

// gavelModels are the GPU models of Gavel's cluster, with our and Gavel's names, in the order in
// which its workers are numbered.
var gavelModels = [3]struct{ ours, theirs string }{{"K80-12GB", "k80"}, {"P100-16GB", "p100"}, {"V100-16GB", "v100"}}

const gavelV100 = 2 // index in gavelModels: the reference

// Throughputs is Gavel's table: steps per second by GPU model (index in gavelModels), for a kind of
// job on a number of GPUs.
type Throughputs struct {
	rate   map[string]map[int][3]float64
	beside map[gavelPair][3]float64 // of the first one; missing or 0: not possible together
}

// gavelPair is two kinds of jobs on the same GPUs.
type gavelPair struct {
	model, other string
	gpus         int
}

// ReadThroughputs reads Gavel's simulation_throughputs.json: GPU model, then "('Model', GPUs)",
// then "null" for the job alone or the partner for a pair. Every kind of job that the generator
// draws must be there alone.
func ReadThroughputs(r io.Reader) (*Throughputs, error) {
	var file map[string]map[string]map[string]json.RawMessage
	if err := json.NewDecoder(r).Decode(&file); err != nil {
		return nil, fmt.Errorf("throughputs: %w", err)
	}
	t := &Throughputs{rate: map[string]map[int][3]float64{}, beside: map[gavelPair][3]float64{}}
	for _, template := range gavelTemplates() {
		t.rate[template.model] = map[int][3]float64{}
		for _, gpus := range []int{1, 2, 4, 8} {
			if gpus > 1 && !template.distributed {
				continue
			}
			var rate [3]float64
			for k, m := range gavelModels {
				key := fmt.Sprintf("('%s', %d)", template.model, gpus)
				row := file[m.theirs][key]
				if v := perSecond(row["null"]); len(v) == 1 {
					rate[k] = v[0]
				} else {
					return nil, fmt.Errorf(
						"throughputs: %s, %s: no steps per second under \"null\"; 0 or more are possible", m.theirs,
						key)
				}
				for _, other := range gavelTemplates() {
					if v := perSecond(row[fmt.Sprintf("('%s', %d)", other.model, gpus)]); len(v) == 2 {
						pair := gavelPair{template.model, other.model, gpus}
						both := t.beside[pair]
						both[k] = v[0]
						t.beside[pair] = both
					}
				}
			}
			if rate[gavelV100] == 0 {
				return nil, fmt.Errorf("throughputs: %s on %d V100: 0 steps per second; durations are told on that",
					template.model, gpus)
			}
			t.rate[template.model][gpus] = rate
		}
	}
	return t, nil
}

// perSecond reads steps per second: of one job, or of two in brackets; nil: invalid.
func perSecond(raw json.RawMessage) []float64 {
	var one float64
	var two []float64
	if json.Unmarshal(raw, &one) == nil {
		two = []float64{one}
	} else if json.Unmarshal(raw, &two) != nil {
		return nil
	}
	for _, v := range two {
		if !(v >= 0) || math.IsInf(v, 0) {
			return nil
		}
	}
	return two
}

// gavelTemplate is a kind of job.
type gavelTemplate struct {
	model       string
	distributed bool // it may run on several GPUs
}

// gavelTemplates is the generator's table in the order used for the published figures; the released
// generator has A3C after Recommendation.
func gavelTemplates() (list []gavelTemplate) {
	add := func(model string, distributed bool, batches ...int) {
		for _, b := range batches {
			list = append(list, gavelTemplate{model + " (batch size " + strconv.Itoa(b) + ")", distributed})
		}
	}
	add("ResNet-18", true, 16, 32, 64, 128, 256)
	add("ResNet-50", true, 16, 32, 64, 128)
	add("Transformer", true, 16, 32, 64, 128, 256)
	list = append(list, gavelTemplate{model: "A3C"})
	add("LM", true, 5, 10, 20, 40, 80)
	add("Recommendation", false, 512, 1024, 2048, 4096, 8192)
	return append(list, gavelTemplate{model: "CycleGAN"})
}

// gavelDraw is a job as it is drawn.
type gavelDraw struct {
	gpus     int
	model    string
	duration float64 // seconds on V100
	arrival  float64 // seconds
}

// gavelGenerator draws Gavel's continuous workload (Gavel's simulator, section 3): one random
// stream for jobs, one for the times between them.
type gavelGenerator struct {
	jobs, gaps *twister
	templates  []gavelTemplate
	several    bool    // GPUs per job; otherwise one
	rate       float64 // jobs per hour
	clock      float64
}

func newGavelGenerator(seed uint32, several bool, rate float64) *gavelGenerator {
	return &gavelGenerator{jobs: newTwister(seed + 2), gaps: newTwister(seed + 3), templates: gavelTemplates(),
		several: several, rate: rate}
}

// next draws a job; the first arrives at 0.
func (g *gavelGenerator) next() gavelDraw {
	d := gavelDraw{gpus: 1, arrival: g.clock}
	g.clock += -math.Log(1-g.gaps.random()) * 3600 / g.rate
	r := g.jobs.uniform(0, 1) // drawn for single GPUs, too
	switch {
	case !g.several || r < 0.7:
	case r <= 0.8:
		d.gpus = 2
	case r <= 0.95:
		d.gpus = 4
	default:
		d.gpus = 8
	}
	if g.jobs.random() >= 0.8 {
		d.duration = 60 * math.Pow(10, g.jobs.uniform(3, 4))
	} else {
		d.duration = 60 * math.Pow(10, g.jobs.uniform(1.5, 3))
	}
	t := g.templates[g.jobs.below(len(g.templates))]
	for d.gpus > 1 && !t.distributed {
		t = g.templates[g.jobs.below(len(g.templates))]
	}
	d.model = t.model
	return d
}
