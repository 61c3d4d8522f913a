package results

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/csvfile"
	"github.com/muster-gpu/muster/serving"
)

// parvaSets is the number of SLO sets with published deployments.
const parvaSets = 4

// parvaPlay is the simulated time, parvaSeeds the number of runs with random arrivals.
const (
	parvaPlay  = time.Minute
	parvaSeeds = 3
)

// ParvaGPU plans the services of ParvaGPU's SLO sets on A100, and simulates requests against the
// plans.
func ParvaGPU(ctx context.Context, traces string) (Table, error) {
	t := Table{Title: "ParvaGPU: SLO sets 1 to 4, A100-80GB", Tolerance: 0,
		About: fmt.Sprintf("GPUs that carry the inference services of each set at their rates and within their latencies (SC'24: the released deployments), planned from the published measurements "+
			"(instance, batch size, processes, requests per second, latency) by `muster mig plan --slo`; and requests that were late when simulated against the plan for %v, at equal distances and with "+
			"Poisson arrivals (%d seeds). The publication says that no promise is broken. A batch may take half of the promised time; among plans with equally few GPUs the one counts in which the service with the least slack has most.", parvaPlay, parvaSeeds)}
	err := eachParvaSet(ctx, traces, func(p *parvaPlan) error {
		services, plan, set := p.services, p.plan, p.set
		name := fmt.Sprintf("set %d, %d services", set, len(services))
		t.Rows = append(t.Rows,
			Row{name, fmt.Sprintf("GPUs (by compute slices no fewer than %d)", plan.Least), float64(p.want),
				float64(plan.GPUs), ""})
		t.late(name, "", func(a serving.Arrivals, seed uint64) []serving.Served {
			return serving.Play(plan, services, a, seed, parvaPlay)
		})
		return nil
	})
	return t, err
}

// parvaPlan is an SLO set, the GPUs of its released deployment, and our plan on instances.
type parvaPlan struct {
	set, want int
	model     cluster.GPUModel
	services  []serving.Service
	plan      *serving.Plan
}

// eachParvaSet calls f for each of the SLO sets.
func eachParvaSet(ctx context.Context, traces string, f func(*parvaPlan) error) error {
	m, _ := cluster.FindModel("A100-80GB")
	for set := 1; set <= parvaSets; set++ {
		services, want, err := parvaSet(ctx, filepath.Join(traces, "parvagpu-mig"), set)
		if err != nil {
			return err
		}
		plan, err := serving.Make(&m, services, 1)
		if err == nil {
			err = f(&parvaPlan{set, want, m, services, plan})
		}
		if err != nil {
			return fmt.Errorf("set %d: %w", set, err)
		}
	}
	return nil
}

// ParvaShares plans the services of the SLO sets on parts of GPUs instead, as in gpulet.
func ParvaShares(ctx context.Context, traces string) (Table, error) {
	t := Table{Title: "ParvaGPU's SLO sets on parts of GPUs, A100-80GB", Tolerance: 0,
		About: fmt.Sprintf("The same services on gpulets (ATC'22): parts of GPUs under MPS, of 20, 40, 50, 60, 80 per cent, in which services take turns, planned by `muster mps plan`; GPUs beside those of ParvaGPU's released deployments, which are on MIG instances. "+
			"How fast services are on a part is estimated from what was measured on instances and of several processes on a whole GPU (docs/howto/plan-services.md); what different services do to each other was not measured, and is not counted. Requests are played for %v, with Poisson arrivals %d times. "+
			"gpulet plans for the rates as they are; by `--headroom` it has more GPUs, and fewer are late.", parvaPlay,
			parvaSeeds)}
	err := eachParvaSet(ctx, traces, func(p *parvaPlan) error {
		services, set := p.services, p.set
		plan, err := serving.MakeShares(&p.model, services, serving.ShareOptions{})
		if err != nil {
			return err
		}
		turns := 0
		for i := range plan.Gpulets {
			turns += len(plan.Gpulets[i].Turns)
		}
		name := fmt.Sprintf("set %d, %d services: %d gpulets, %d turns", set, len(services), len(plan.Gpulets), turns)
		t.Rows = append(t.Rows,
			Row{name, fmt.Sprintf("GPUs (ours on instances: %d)", p.plan.GPUs), float64(p.want), float64(plan.GPUs),
				""})
		t.late(name, ": a gpulet that is just large enough for its rate is late when more comes by chance",
			func(a serving.Arrivals, seed uint64) []serving.Served {
				return serving.PlayShares(plan, services, a, seed, parvaPlay)
			})
		return nil
	})
	return t, err
}

// ParvaChanges goes from each SLO set to the next and back, step by step.
func ParvaChanges(ctx context.Context, traces string) (Table, error) {
	t := Table{Title: "ParvaGPU's SLO sets one after the other, A100-80GB", Tolerance: 0,
		About: "From the plan for one set of promises to the next and back by the steps of `muster mig plan --slo --from`, each from where the last one ended: GPUs in the end, beside those of the released deployment " +
			"of that set; and by how much any service falls at worst, at any step, below the smaller of its old and its new rate (what an exchange before anything is stopped promises, ParvaGPU, SC'24: nothing). " +
			"The case says how many instances of the new plan stay where they are, what the steps do, and how many GPUs they use beside those of the larger plan."}
	dir := filepath.Join(traces, "parvagpu-mig")
	m, _ := cluster.FindModel("A100-80GB")
	var old *serving.Deployment
	for at, set := range []int{1, 2, 3, 4, 3, 2, 1} {
		if err := ctx.Err(); err != nil {
			return t, err
		}
		services, err := ReadParva(dir, set)
		if err != nil {
			return t, err
		}
		if at == 0 {
			plan, err := serving.Make(&m, services, 1)
			if err != nil {
				return t, fmt.Errorf("set %d: %w", set, err)
			}
			old = serving.Deploy(&m, plan, services)
			continue
		}
		plan, err := serving.MakeNear(&m, services, 1, old)
		if err != nil {
			return t, fmt.Errorf("set %d: %w", set, err)
		}
		c := old.To(&m, plan, services, -1)
		want, err := parvaGPUs(dir, set)
		if err != nil {
			return t, err
		}
		short := 0.0
		for k := range c.Names {
			short = max(short, c.Short(k))
		}
		name := parvaChange(c, set)
		t.Rows = append(t.Rows, Row{name, "GPUs in the end", float64(want), float64(plan.GPUs), ""},
			Row{name, "most requests/s that a service is short of", 0, short, ""})
		old = serving.Deploy(&m, c.Plan, services)
	}
	return t, nil
}

func parvaChange(c *serving.Change, set int) string {
	var done [serving.Delete + 1]int
	for i := range c.Steps {
		done[c.Steps[i].Do]++
	}
	text := fmt.Sprintf("to set %d: %d of %d instances stay", set, c.Keeps, len(c.Plan.Instances))
	for do, n := range done {
		text += fmt.Sprintf(", %d x %v", n, serving.Doing(do))
	}
	return fmt.Sprintf("%s, %d spare GPUs", text, c.Spare)
}

// parvaSet reads a set, and the number of GPUs of its published deployment.
func parvaSet(ctx context.Context, dir string, set int) (services []serving.Service, gpus int, err error) {
	if err = ctx.Err(); err != nil {
		return nil, 0, err
	}
	if services, err = ReadParva(dir, set); err != nil {
		return nil, 0, err
	}
	gpus, err = parvaGPUs(dir, set)
	return services, gpus, err
}

// late adds the number of late requests under a plan, with even and with Poisson arrivals; why, if
// given, explains the latter.
func (t *Table) late(name, why string, play func(serving.Arrivals, uint64) []serving.Served) {
	requests, late := summed(play(serving.Even, 1))
	t.Rows = append(t.Rows, Row{name, fmt.Sprintf("late of %d, even arrivals", requests), 0, float64(late), ""})
	requests, late = 0, 0
	for seed := range uint64(parvaSeeds) {
		n, l := summed(play(serving.Poisson, seed))
		requests, late = requests+n, late+l
	}
	reason := ""
	if why != "" && late > 0 {
		reason = fmt.Sprintf("%.3f %%%s", 100*float64(late)/float64(requests), why)
	}
	t.Rows = append(t.Rows, Row{name, fmt.Sprintf("late of %d, Poisson arrivals", requests), 0, float64(late), reason})
}

func summed(list []serving.Served) (requests, late int) {
	for _, s := range list {
		requests, late = requests+s.Requests, late+s.Late
	}
	return requests, late
}

// ReadParva reads the services of a set, counted from 1: a line of rates and one of latencies in
// milliseconds, by the names of the measurements in order; N/A: not in the set.
func ReadParva(dir string, set int) ([]serving.Service, error) {
	files, err := filepath.Glob(filepath.Join(dir, "prof_data_*.csv"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("%s: no measurements", dir)
	}
	var lines [2][]string
	for i, name := range []string{"SLO_SLO_req_rate.csv", "SLO_SLO_latency.csv"} {
		rows, err := csvfile.Read(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		if set > len(rows) || len(rows[set-1]) != len(files) {
			return nil, fmt.Errorf("%s: no set %d of %d services", name, set, len(files))
		}
		lines[i] = rows[set-1]
	}
	var list []serving.Service
	for k, file := range files { // by name, as Glob sorts them
		rate, ms := strings.TrimSpace(lines[0][k]), strings.TrimSpace(lines[1][k])
		if rate == "N/A" || ms == "N/A" {
			continue
		}
		s := serving.Service{Name: strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), "prof_data_"), ".csv")}
		v, err1 := strconv.ParseFloat(ms, 64)
		if s.Rate, err = strconv.ParseFloat(rate, 64); err != nil || err1 != nil {
			return nil, fmt.Errorf("%s: set %d, %s: %q and %q are not numbers", dir, set, s.Name, rate, ms)
		}
		s.Latency = time.Duration(v * float64(time.Millisecond))
		if err := s.Measure(dir); err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	return list, nil
}

// parvaGPUs counts the GPUs of the released deployment.
func parvaGPUs(dir string, set int) (int, error) {
	path := filepath.Join(dir, fmt.Sprintf("deployment_SLO%d_SLO%d_ParvaGPU_deploy.csv", set, set))
	gpus := map[[2]int]bool{} // a server and its GPU: each server counts from 0
	err := eachRow(path, func(_, r []string) error {
		server, err1 := strconv.Atoi(r[0])
		n, err2 := strconv.Atoi(r[1])
		gpus[[2]int{server, n}] = true
		return errors.Join(err1, err2)
	})
	return len(gpus), err
}
