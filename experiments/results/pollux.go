package results

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/muster-gpu/muster/experiments/compat"
)

// Pollux replays the workloads of Pollux in the world of its simulator.
func Pollux(ctx context.Context, traces string) (Table, error) {
	t := Table{Title: "Pollux: Tiresias and Optimus, 64 GPUs", Tolerance: 1e-9,
		About: "Mean JCT in seconds, as published with the artifact of Pollux (OSDI'21), at half, the whole and one and a half of its load; ours are equal, " +
			"under Tiresias for each of the 640 jobs at the whole load. Our engine decides which jobs run and on how many GPUs, under our `tiresias-l` and `optimus`; the world " +
			"is that of the published simulator, a profile of `experiments/compat`: rounds of a minute, 16 nodes of 4 T4, measured step times (those of five and " +
			"more nodes from the companion table), progress by the gradient statistics of each epoch, a pause of half a minute after every start, epochs that end at " +
			"whole seconds. Inside a level of `tiresias-l` the order is that simulator's, first come, first served; running jobs stay in place, others are placed by the world, on the " +
			"nodes with most free GPUs. `optimus` gets the step times and remaining steps that the published one reads."}
	err := t.polluxRows(ctx, traces, []string{"tiresias", "optimus"}, polluxLoads)
	return t, err
}

// PolluxItself replays them under our pollux.
func PolluxItself(ctx context.Context, traces string) (Table, error) {
	return polluxItself(ctx, traces, polluxLoads)
}

func polluxItself(ctx context.Context, traces string, loads []polluxLoad) (Table, error) {
	t := Table{Title: "Pollux: Pollux itself, 64 GPUs", Tolerance: 0.05,
		About: "The same workloads in the same world under our `pollux`. Batch sizes adapt there: each job keeps the step times that it has seen and its gradient statistics, " +
			"fits the seven parameters of the published model, and takes the batch of most goodput when it starts, is resized, and at the end of each epoch. Our policy is told goodput by " +
			"size, as learned so far, and nothing else; it chooses sizes each minute, exactly, where the published search is genetic and random, so that its figures are one draw " +
			"(an independent implementation of its rules comes within 2 % at the whole load, and within 5 % at half of it). The world chooses the nodes: the fewest that hold a job; jobs are moved, " +
			"which costs them half a minute as any start, where that brings others together. " +
			"At half the load workload 3 is the most sensitive: with a fit that is stopped early it comes to 7 to 9 % more than published, since some of its long jobs misjudge larger sizes after one try. " +
			"With such a fit, and jobs on the nodes with most free GPUs as under Optimus, the workloads at the whole load came to 0.6 to 10.7 % more."}
	err := t.polluxRows(ctx, traces, []string{"pollux"}, loads)
	return t, err
}

type polluxLoad struct {
	load, folder string
	workloads    int // of the folder, from the first on
}

var polluxLoads = []polluxLoad{{"0.5", "workloads-0.5", 4}, {"1.0", "workloads", 4}, {"1.5", "workloads-1.5", 4}}

// polluxRows adds the rows of schedulers of the artifact.
func (t *Table) polluxRows(ctx context.Context, traces string, schedulers []string, loads []polluxLoad) error {
	dir := filepath.Join(traces, "pollux")
	apps, err := compat.ReadPolluxApps(dir)
	if err != nil {
		return err
	}
	published, err := readFigures(filepath.Join(dir, "expected", "avg_jct.csv"))
	if err != nil {
		return err
	}
	for _, load := range loads {
		for n := 1; n <= load.workloads; n++ {
			name := fmt.Sprintf("workload-%d", n)
			for _, theirs := range schedulers {
				want, ok := published[theirs+"/"+load.load+"/"+name]
				if !ok {
					return fmt.Errorf("%s: no row for %s, load %s, %s", dir, theirs, load.load, name)
				}
				w, err := compat.RunPollux(ctx, apps, filepath.Join(dir, load.folder, name+".csv"), theirs)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", theirs, name, err)
				}
				sum, jct := 0, w.JCT()
				for _, s := range jct {
					sum += s
				}
				t.Rows = append(t.Rows,
					Row{Case: fmt.Sprintf("%s, load %s, %s (ours: %s)", name, load.load, theirs, w.Policy()),
						Figure:    "mean JCT",
						Published: want, Ours: float64(sum) / float64(len(jct))})
			}
		}
	}
	return nil
}
