package results

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/internal/csvfile"
	"github.com/muster-gpu/muster/perf"
	"github.com/muster-gpu/muster/sim"
	"github.com/muster-gpu/muster/trace"
)

// MISO's own simulation: eight GPUs, one arrival per minute on average and two while the first
// third arrives, and half a minute for each move.
const (
	misoGPUs  = 8
	misoModel = "A100-40GB"
	misoGap   = 60.0
	misoSeeds = 10
)

var misoMove = cluster.Checkpoint{Cost: 10 * time.Second, Restart: 20 * time.Second}

// The published figures: mean JCT 49 % below that of whole GPUs, and 16 % below that of the best
// static geometry (SoCC'22, abstract).
const misoWhole, misoStatic = 0.51, 0.84

const misoReason = "theirs is measured, with arrivals that are not published, and time lost to profiling"

// MISO replays the 100 jobs of MISO's trace on whole GPUs, on each static geometry and under policy
// miso.
func MISO(ctx context.Context, traces string) (Table, error) { return misoOn(ctx, traces, misoSeeds) }

// misoOn replays with so many orders of arrival.
func misoOn(ctx context.Context, traces string, seeds int) (Table, error) {
	t := Table{Title: "MISO: 100 jobs on 8 A100", Tolerance: 0.05}
	m, err := readMISO(filepath.Join(traces, "miso-mig"))
	if err != nil {
		return t, err
	}
	full, _, err := m.mean(ctx, "fifo", "", seeds)
	if err != nil {
		return t, err
	}
	divided, moves, err := m.mean(ctx, "miso", "", seeds)
	if err != nil {
		return t, err
	}
	static, best, tried := math.Inf(1), "", 0
	for _, mig := range m.geometries() {
		jct, _, err := m.mean(ctx, "miso", mig, seeds)
		if err != nil {
			return t, err
		}
		if tried++; jct < static {
			static, best = jct, mig
		}
	}
	t.About = fmt.Sprintf("Mean JCT of policy `miso`, which divides each GPU by the mix of its jobs, over that of whole GPUs (`fifo`) and of the best static geometry "+
		"(the same policy on instances that stay as they are, `mig:` of the cluster file, the same on each GPU). Published: measured on eight GPUs (SoCC'22). Ours: the trace's jobs and run times, "+
		"their speeds on instances from its iteration times, the memory they need from the smallest instance on which they were measured; arrivals by the published program's rule (Poisson gaps of %.0f s, "+
		"half as long for the first third, jobs in random order), %d seeds; %v for a checkpoint and %v for a restart. Speeds are known, so nothing is profiled. "+
		"Whole GPUs %s s, the best of %d static geometries that can run every job (%s) %s s, `miso` %s s with %.1f moves per job.",
		misoGap, seeds, misoMove.Cost, misoMove.Restart, whole(full), tried, best, whole(static), whole(divided),
		moves)
	t.Rows = []Row{{"miso over whole GPUs", "mean JCT", misoWhole, divided / full, misoReason},
		{"miso over the best static geometry", "mean JCT", misoStatic, divided / static, misoReason}}
	return t, nil
}

// misoTrace is MISO's trace.
type misoTrace struct {
	jobs    []trace.Entry // by number, without arrivals
	table   *perf.Table
	largest cluster.MiB // the most memory that a job needs
}

func readMISO(dir string) (*misoTrace, error) {
	m := &misoTrace{table: &perf.Table{Speed: map[string]map[string]int64{}}}
	rows, err := csvfile.Read(filepath.Join(dir, "mig_iter_time.csv"))
	if err != nil {
		return nil, err
	}
	gpu, _ := cluster.FindModel(misoModel)
	seconds, memory := map[[2]string]float64{}, map[string]cluster.MiB{} // looked up, never iterated
	for _, r := range rows[1:] {
		s, err := strconv.ParseFloat(r[5], 64)
		p, ok := gpu.Profile(r[2])
		if err != nil || !ok || !(s > 0) {
			return nil, fmt.Errorf("%s: row %v: want a profile of a %s and seconds", dir, r, misoModel)
		}
		job := r[0] + r[1]
		seconds[[2]string{job, p.Name}] = s
		if memory[job] == 0 || p.Memory < memory[job] {
			memory[job] = p.Memory
		}
	}
	var runs map[string]float64
	var models map[string]string
	if err := readJSON(filepath.Join(dir, "trace_100.json"), &runs); err != nil {
		return nil, err
	}
	if err := readJSON(filepath.Join(dir, "job_models.json"), &models); err != nil {
		return nil, err
	}
	for i := range len(runs) {
		key := strconv.Itoa(i)
		model := strings.Replace(models[key], "_train", "", 1)
		full := seconds[[2]string{model, "7g.40gb"}]
		if runs[key] <= 0 || full == 0 {
			return nil, fmt.Errorf("%s: job %s, a %q: no run time, or no speed on a whole GPU", dir, key, model)
		}
		if m.table.Speed[model] == nil {
			m.table.Speed[model] = map[string]int64{}
			for k := range gpu.Profiles {
				if s, ok := seconds[[2]string{model, gpu.Profiles[k].Name}]; ok {
					m.table.Speed[model][misoModel+"/"+gpu.Profiles[k].Name] = int64(
						math.Round(full / s * perf.Million))
				}
			}
		}
		e := trace.Entry{Run: time.Duration(runs[key] * float64(time.Second))}
		e.Job = cluster.Job{Name: key, Model: model, Tier: cluster.Standard, Checkpoint: misoMove,
			Tasks: []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: 1, Memory: memory[model]}}}}
		m.jobs = append(m.jobs, e)
		m.largest = max(m.largest, memory[model])
	}
	return m, m.table.Check()
}

func readJSON(path string, into any) error {
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// arrivals is the trace in a random order, with random gaps.
func (m *misoTrace) arrivals(seed uint64) *trace.Workload {
	r := rand.New(rand.NewPCG(seed, 0x6d69736f))
	wl, now := &trace.Workload{}, 0
	for n, i := range r.Perm(len(m.jobs)) {
		gap := misoGap
		if n <= len(m.jobs)/3 {
			gap /= 2
		}
		now += poisson(r, gap)
		e := m.jobs[i]
		e.Job.ID, e.Job.Submit = cluster.JobID(n), cluster.Time(now)*cluster.Time(time.Second)
		wl.Jobs = append(wl.Jobs, e)
	}
	return wl
}

// poisson draws from the Poisson distribution (Knuth's product of uniform numbers).
func poisson(r *rand.Rand, mean float64) int {
	k, p := 0, r.Float64()
	for p > math.Exp(-mean) {
		k, p = k+1, p*r.Float64()
	}
	return k
}

// geometries lists the ways to divide all GPUs alike on which each job can run: only maximal ones,
// each once.
func (m *misoTrace) geometries() (list []string) {
	gpu, _ := cluster.FindModel(misoModel)
	var profiles []*cluster.SliceProfile
	for _, name := range []string{"1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"} {
		p, _ := gpu.Profile(name)
		profiles = append(profiles, p)
	}
	var seen []string
	for _, layout := range gpu.FullLayouts(profiles) {
		var names []string
		most := cluster.MiB(0)
		for _, in := range layout {
			p, _ := gpu.Profile(in.Profile)
			names, most = append(names, p.Name), max(most, p.Memory)
		}
		slices.Sort(names)
		if sort := strings.Join(names, "+"); most >= m.largest && !slices.Contains(seen, sort) {
			seen = append(seen, sort)
			list = append(list, cluster.GeometryText([][]cluster.Instance{layout}))
		}
	}
	return list
}

// mean replays the trace with so many seeds and returns the mean JCT in seconds, and the number of
// moves per job. mig is the geometry of each GPU.
func (m *misoTrace) mean(ctx context.Context, policy, mig string, seeds int) (jct, moves float64, err error) {
	spec := &cluster.Spec{}
	for i := range misoGPUs {
		spec.Nodes = append(spec.Nodes,
			cluster.Node{Name: fmt.Sprintf("n%d", i+1), Model: misoModel, GPUs: 1, MIG: mig})
	}
	strict := engine.Strict
	for seed := range uint64(seeds) {
		wl := m.arrivals(seed)
		o := sim.Run(ctx, spec, sim.Prepare(wl, spec, sim.Estimates{From: sim.NoEstimates}, sim.PerGPU),
			sim.Setup{Policy: policy, Placer: "best-fit", Backfill: &strict, World: sim.Options{Model: m.table}})
		if o.Err != nil {
			return 0, 0, fmt.Errorf("%s, %s: %w", policy, mig, o.Err)
		}
		s := o.Run.Summarise()
		if s.Completed != s.Jobs {
			return 0, 0, fmt.Errorf("%s, %s: %d of %d jobs completed", policy, mig, s.Completed, s.Jobs)
		}
		jct += s.JCT.Mean / float64(seeds)
		moves += float64(s.Preemptions) / float64(s.Jobs) / float64(seeds)
	}
	return jct, moves, nil
}
