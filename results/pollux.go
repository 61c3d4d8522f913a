package results

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/muster-gpu/muster/sim/compat"
)

// Pollux replays the workloads of Pollux in the world of its simulator.
func Pollux(ctx context.Context, traces string) (Table, error) {
	t := Table{Title: "Pollux: Tiresias and Optimus, 64 GPUs", Tolerance: 1e-9,
		About: "Mean JCT in seconds, as published with the artifact of Pollux (OSDI'21), at half, the whole and one and a half of its load; ours are equal, " +
			"under Tiresias for each of the 640 jobs at the whole load. Our engine decides who runs and on how many GPUs, under our `tiresias-l` and `optimus`; the world " +
			"is that of the published simulator, a profile of `sim/compat`: rounds of a minute, 16 nodes of 4 T4, measured step times (those of five and " +
			"more nodes from the companion table), progress by the gradient statistics of each epoch, half a minute of standstill after every start, epochs that end at " +
			"whole seconds. Inside a level of `tiresias-l` the order is that simulator's, first come, first served; who runs stays where it is, others are placed by the world, on the " +
			"nodes with most free GPUs. `optimus` is told the step times and the steps left that the published one reads. Pollux itself is not replayed yet."}
	dir := filepath.Join(traces, "pollux")
	apps, err := compat.ReadPolluxApps(dir)
	if err != nil {
		return t, err
	}
	published, err := readFigures(filepath.Join(dir, "expected", "avg_jct.csv"))
	if err != nil {
		return t, err
	}
	for _, load := range []struct{ load, folder string }{{"0.5", "workloads-0.5"}, {"1.0", "workloads"}, {"1.5", "workloads-1.5"}} {
		for n := 1; n <= 4; n++ {
			name := fmt.Sprintf("workload-%d", n)
			for _, theirs := range []string{"tiresias", "optimus"} {
				want, ok := published[theirs+"/"+load.load+"/"+name]
				if !ok {
					return t, fmt.Errorf("%s: no row for %s, load %s, %s", dir, theirs, load.load, name)
				}
				w, err := compat.RunPollux(ctx, apps, filepath.Join(dir, load.folder, name+".csv"), theirs == "optimus")
				if err != nil {
					return t, fmt.Errorf("%s, %s: %w", theirs, name, err)
				}
				sum, jct := 0, w.JCT()
				for _, s := range jct {
					sum += s
				}
				t.Rows = append(t.Rows, Row{Case: fmt.Sprintf("%s, load %s, %s (ours: %s)", name, load.load, theirs, w.Policy()), Figure: "mean JCT",
					Published: want, Ours: float64(sum) / float64(len(jct))})
			}
		}
	}
	return t, nil
}
