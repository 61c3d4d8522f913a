package results

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/muster-gpu/muster/internal/csvfile"
	"github.com/muster-gpu/muster/sim/compat"
)

// slotClusters are ElasticFlow's clusters: nodes, and the share of deadlines that
// its released simulator meets on the released traces under Tiresias
// (G-elasticflow-simulator, section 12). Of cluster 2 only an independent
// implementation's value is known.
var slotClusters = []struct {
	name  string
	nodes int
	rerun float64
}{
	{"cluster01", 64, 0.4934169279}, {"cluster02", 64, 0.487020}, {"cluster03", 64, 0.4310860179},
	{"cluster05", 64, 0.4816753927}, {"cluster06", 64, 0.4816360601}, {"cluster10", 32, 0.4769230769},
}

// ElasticFlow replays the deadline traces of ElasticFlow in the world of its simulator.
func ElasticFlow(ctx context.Context, traces string) (Table, error) {
	t := Table{Title: "ElasticFlow: deadlines met under Tiresias", Tolerance: 0.002,
		About: "Share of the deadlines that are met, of Figure 8b (ASPLOS'23): as its released simulator gives it on the released traces (\"re-run\"), and as it was printed. " +
			"Our engine and our `tiresias-l` decide; the world is that of the simulator, a profile of `sim/compat`: arrivals, ends and demotions within a minute are taken " +
			"together, a start costs 7 seconds and two for every doubling of GPUs (only if something else happens before the end), everybody restarts at each sixtieth event; " +
			"service counts without starts, and the order inside a level is that of the simulator's lists. EDF, Gandiva, Themis, Chronus and ElasticFlow itself are not replayed in this world yet."}
	dir := filepath.Join(traces, "elasticflow-itp")
	printed, err := readFigure8b(filepath.Join(dir, "expected_fig8b_deadline_satisfaction.csv"))
	if err != nil {
		return t, err
	}
	for _, c := range slotClusters {
		w, err := compat.RunSlots(ctx, filepath.Join(dir, "deadline", c.name+".csv"), c.nodes)
		if err != nil {
			return t, err
		}
		paper, ok := printed["Tiresias/"+c.name]
		if !ok {
			return t, fmt.Errorf("%s: no figure of Tiresias for %s", dir, c.name)
		}
		met, n := w.Met()
		name := fmt.Sprintf("%s, Tiresias (ours: %s)", c.name, compat.SlotPolicy)
		t.Rows = append(t.Rows, Row{Case: name, Figure: "share met, re-run", Published: c.rerun, Ours: float64(met) / float64(n)},
			Row{Case: name, Figure: "share met, printed", Published: paper, Ours: float64(met) / float64(n), Reason: "the released code and traces do not give what was printed"})
	}
	return t, nil
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
