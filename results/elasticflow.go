package results

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/muster-gpu/muster/internal/csvfile"
	"github.com/muster-gpu/muster/sim/compat"
)

// slotClusters are ElasticFlow's clusters, and their nodes.
var slotClusters = []struct {
	name  string
	nodes int
}{{"cluster01", 64}, {"cluster02", 64}, {"cluster03", 64}, {"cluster05", 64}, {"cluster06", 64}, {"cluster10", 32}}

// slotRerun is the share of deadlines that the released simulator meets on the
// released traces (G-elasticflow-simulator, section 12), in the order of the clusters.
// Of cluster 2 only an independent implementation's values are known.
var slotRerun = map[string][]float64{
	"Tiresias": {0.4934169279, 0.487020, 0.4310860179, 0.4816753927, 0.4816360601, 0.4769230769},
	"EDF":      {0.1868338558, 0.244721, 0.1026237131, 0.4045191513, 0.1076794658, 0.7769230769},
	"Gandiva":  {0.1623824451, 0.319834, 0.3324476918, 0.2485533205, 0.3919031720, 0.3307692308},
}

// slotRow is a published policy, and who stands for it.
type slotRow struct {
	theirs, ours string
	x            compat.Flow // without a world: Tiresias'
	reason       string
}

var slotRows = []slotRow{
	{"Tiresias", compat.SlotPolicy, compat.Flow{}, ""},
	{"EDF", "the simulator's own", compat.Flow{World: "edf"}, ""},
	{"EDF", "edf, gangs of the largest size", compat.Flow{World: "edf", Policy: "edf", Largest: true},
		"a gang has its size or waits; theirs runs with what is left, too"},
	{"EDF", "edf, elastic jobs", compat.Flow{World: "edf", Policy: "edf"},
		"theirs gives the earliest deadline all that it may have, up to 64 GPUs, where 16 are often faster; ours has everybody run who can, and grow into what nobody waits for"},
	{"Gandiva", "the simulator's own", compat.Flow{World: "gandiva"}, ""},
	{"Gandiva", "gandiva:pack=false", compat.Flow{World: "gandiva", Policy: "gandiva:pack=false"},
		"theirs learns of ends only when somebody comes, and holds whole nodes for jobs of one size meanwhile; in ours who had least time runs next, on whatever is free, every minute"},
}

const slotPrinted = "the released code and traces do not give what was printed"

// ElasticFlow replays the deadline traces of ElasticFlow in the world of its simulator.
func ElasticFlow(ctx context.Context, traces string) (Table, error) {
	return elasticFlowOn(ctx, traces)
}

// elasticFlowOn replays some of the clusters only, or, if none are named, all.
func elasticFlowOn(ctx context.Context, traces string, only ...string) (Table, error) {
	t := Table{Title: "ElasticFlow: deadlines met", Tolerance: 0.002,
		About: "Share of the deadlines that are met, of Figure 8b (ASPLOS'23): as its released simulator gives it on the released traces (\"re-run\"), and as it was printed. " +
			"The world is that of the simulator, profiles of `sim/compat`: arrivals and ends within a minute are taken together. Under Tiresias our engine and our `tiresias-l` decide; demotions are taken together, too, " +
			"a start costs 7 seconds and two for every doubling of GPUs (only if something else happens before the end), everybody restarts at each sixtieth event; " +
			"service counts without starts, and the order inside a level is that of the simulator's lists. EDF there plans everybody to the end, with as many GPUs as fit, up to 64 or one per sample, " +
			"at speeds that were measured, and a change of size costs nothing: rules that no policy of ours has (\"the simulator's own\"), so the world has them, and the engine books who runs on how many GPUs; beside them stands what our `edf` comes to in the same world. " +
			"Gandiva's rules there are of that kind, too: jobs of one size take turns on groups of whole nodes, which sizes get by what their jobs ask for; at each arrival everybody loses what a start costs. " +
			"Under our `gandiva` only those lose it who start, and at each sixtieth event everybody; the scheduler is asked at ends and every minute, too. " +
			"Themis, Chronus and ElasticFlow itself are not replayed yet."}
	dir := filepath.Join(traces, "elasticflow-itp")
	printed, err := readFigure8b(filepath.Join(dir, "expected_fig8b_deadline_satisfaction.csv"))
	if err != nil {
		return t, err
	}
	for _, r := range slotRows {
		for i, c := range slotClusters {
			if len(only) > 0 && !slices.Contains(only, c.name) {
				continue
			}
			ours, err := r.replay(ctx, dir, c.name, c.nodes)
			if err != nil {
				return t, fmt.Errorf("%s, %s: %w", c.name, r.ours, err)
			}
			name := fmt.Sprintf("%s, %s (ours: %s)", c.name, r.theirs, r.ours)
			t.Rows = append(t.Rows, Row{Case: name, Figure: "share met, re-run", Published: slotRerun[r.theirs][i], Ours: ours, Reason: r.reason})
			if r.reason != "" {
				continue
			}
			paper, ok := printed[r.theirs+"/"+c.name]
			if !ok {
				return t, fmt.Errorf("%s: no figure of %s for %s", dir, r.theirs, c.name)
			}
			t.Rows = append(t.Rows, Row{Case: name, Figure: "share met, printed", Published: paper, Ours: ours, Reason: slotPrinted})
		}
	}
	return t, nil
}

// replay is the share of deadlines met on a cluster.
func (r *slotRow) replay(ctx context.Context, dir, name string, nodes int) (float64, error) {
	path := filepath.Join(dir, "deadline", name+".csv")
	var w interface{ Met() (met, jobs int) }
	var err error
	if r.x.World == "" {
		w, err = compat.RunSlots(ctx, path, nodes)
	} else {
		x := r.x
		x.Trace, x.Profiles, x.Nodes = path, filepath.Join(dir, "profiles", "throughputs_A100"), nodes
		w, err = compat.RunFlow(ctx, x)
	}
	if err != nil {
		return 0, err
	}
	met, n := w.Met()
	return float64(met) / float64(n), nil
}

// readFigure8b reads the printed shares by policy and cluster.
func readFigure8b(path string) (map[string]float64, error) {
	rows, err := csvfile.Read(path)
	if err != nil {
		return nil, err
	}
	out := map[string]float64{}
	for _, r := range rows[1:] {
		for i := 1; i < len(r); i++ {
			v, err := strconv.ParseFloat(r[i], 64)
			if err != nil {
				return nil, fmt.Errorf("%s: row %v: %q is not a share", path, r, r[i])
			}
			out[r[0]+"/"+rows[0][i]] = v
		}
	}
	return out, nil
}
