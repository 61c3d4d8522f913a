package compat

import (
	"fmt"
	"math"
)

// distTargets are the published targets.
var distTargets = map[string]DistTarget{"opt-13b": {200, 100}, "opt-66b": {400, 100}}

// DistExpectedRun is a published run with its figures as printed.
type DistExpectedRun struct {
	Workload, Model string
	Layout          DistLayout
	Rate            float64 // requests per second
	Target          DistTarget
	Published       DistFigures
}

// layoutOf is the layout of the columns TP and PP of prefill and decode.
func layoutOf(engine string, n []float64) DistLayout {
	l := DistLayout{Together: engine == "vllm", Prefill: DistParallel{int(n[0]), int(n[1])}}
	if !l.Together {
		l.Decode = DistParallel{int(n[2]), int(n[3])}
	}
	return l
}

// ReadDistRuns reads published runs.
func ReadDistRuns(path string) (list []DistExpectedRun, err error) {
	rows, err := table(path, 3, "workload", "engine", "model", "tp_prefill", "pp_prefill", "tp_decode", "pp_decode",
		"rate", "slo_ttft_ms", "slo_tpot_ms", "ttft_attain_pct", "tpot_attain_pct", "both_attain_pct", "p90_ttft_ms",
		"p90_tpot_ms", "mean_ttft_ms", "mean_tpot_ms", "last_exit_ms")
	if err != nil {
		return nil, err
	}
	for _, r := range rows {
		n := r.n
		list = append(list, DistExpectedRun{Workload: r.text[0], Model: r.text[2], Layout: layoutOf(r.text[1], n[3:]),
			Rate: n[7], Target: DistTarget{n[8], n[9]},
			Published: DistFigures{n[10], n[11], n[12], n[13], n[14], n[15], n[16], n[17]}})
	}
	return list, nil
}

// Run plays a published run and returns its figures, rounded to the published digits.
func (x *DistExpectedRun) Run(d *DistServe, load []DistRequest) (DistFigures, error) {
	m, ok := d.Machine(x.Model, x.Layout)
	if !ok {
		return DistFigures{}, fmt.Errorf("%s: nothing was measured of %v", x.Model, x.Layout)
	}
	times, err := m.Run(load, DistArrivals(load, x.Rate))
	if err != nil {
		return DistFigures{}, err
	}
	return x.Target.Figures(times).Printed(), nil
}

// Printed is figures with the digits that are published: four after the point of per cent, six of milliseconds, three
// of the end.
func (f DistFigures) Printed() DistFigures {
	round := func(v float64, unit float64) float64 { return math.Round(v*unit) / unit }
	for _, v := range []*float64{&f.TTFT, &f.TPOT, &f.Both} {
		*v = round(*v, 1e4)
	}
	for _, v := range []*float64{&f.P90TTFT, &f.P90TPOT, &f.MeanTTFT, &f.MeanTPOT} {
		*v = round(*v, 1e6)
	}
	f.End = round(f.End, 1e3)
	return f
}

// DistExpectedSearch is a search of the best layout with what it found.
type DistExpectedSearch struct {
	Workload, Model string
	Together        bool
	Cluster         DistCluster
	Published       []DistCandidate
	Best            int // of them
}

// Target is the published target for the search's model.
func (x *DistExpectedSearch) Target() DistTarget { return distTargets[x.Model] }

func (x *DistExpectedSearch) String() string {
	return fmt.Sprintf("%s, %s, %s, %v", x.Workload, x.Model, DistLayout{Together: x.Together}.engine(), x.Cluster)
}

func (c DistCluster) String() string {
	text := fmt.Sprintf("%d x %d GPUs", c.Nodes, c.PerNode)
	switch {
	case c.Nodes == 1:
		return text
	case c.Fast:
		return text + ", fast links"
	}
	return text + ", slow links"
}

// ReadDistSearches reads searches. Of one instance that does all there is neither a second nor a crossing pipeline;
// what was not measured has no rate.
func ReadDistSearches(path string) (list []DistExpectedSearch, err error) {
	rows, err := table(path, 8, "workload", "engine", "model", "affinity", "pp_cross", "tp_decode", "pp_decode",
		"best_rate_per_gpu", "tp_prefill", "pp_prefill", "nodes", "gpus_per_node", "gpus", "chosen")
	if err != nil {
		return nil, err
	}
	for _, r := range rows {
		n := r.n
		x := DistExpectedSearch{Workload: r.text[0], Model: r.text[2], Together: r.text[1] == "vllm",
			Cluster: DistCluster{int(n[10]), int(n[11]), r.text[3] == "high"}}
		if last := len(list) - 1; last < 0 || list[last].String() != x.String() {
			list = append(list, x)
		}
		s := &list[len(list)-1]
		if n[13] == 1 {
			s.Best = len(s.Published)
		}
		s.Published = append(s.Published, DistCandidate{Cross: max(1, int(n[4])),
			Layout: layoutOf(r.text[1], []float64{n[8], n[9], n[5], n[6]}), GPUs: int(n[12]),
			Measured: r.text[7] != "", Rate: n[7]})
	}
	return list, nil
}
