package results

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/muster-gpu/muster/experiments/compat"
)

// slotCell is a cluster, or some jobs of its trace, and the share of deadlines that the released
// simulator meets there on the released traces (ElasticFlow's simulator, section 12); 0: unknown.
type slotCell struct {
	cluster  string
	from, to int // jobs, counted from 0; 0 and 0: all
	rerun    float64
}

// slotClusters are ElasticFlow's clusters. For cluster 2, and for the first jobs of cluster 5 under
// ElasticFlow, only the values of an independent implementation are known.
func slotClusters(rerun ...float64) (list []slotCell) {
	for i, name := range []string{"cluster01", "cluster02", "cluster03", "cluster05", "cluster06", "cluster10"} {
		list = append(list, slotCell{cluster: name, rerun: rerun[i]})
	}
	return list
}

// slotRow is a published policy with its counterpart.
type slotRow struct {
	theirs, ours string
	x            compat.Flow // without a world: Tiresias' world
	cells        []slotCell
	reason       string
}

var (
	slotEDF     = slotClusters(0.1868338558, 0.244721, 0.1026237131, 0.4045191513, 0.1076794658, 0.7769230769)
	slotGandiva = slotClusters(0.1623824451, 0.319834, 0.3324476918, 0.2485533205, 0.3919031720, 0.3307692308)
)

var slotRows = []slotRow{
	{"Tiresias", compat.SlotPolicy, compat.Flow{},
		slotClusters(0.4934169279, 0.487020, 0.4310860179, 0.4816753927, 0.4816360601, 0.4769230769), ""},
	{"EDF", "the simulator's own", compat.Flow{World: "edf"}, slotEDF, ""},
	{"EDF", "edf, gangs of the largest size", compat.Flow{World: "edf", Policy: "edf", Largest: true}, slotEDF,
		"a gang has its full size or waits; theirs also runs with fewer GPUs"},
	{"EDF", "edf, elastic jobs", compat.Flow{World: "edf", Policy: "edf"}, slotEDF,
		"theirs gives the job with the earliest deadline all GPUs that it may have, up to 64, although 16 are often faster; ours runs every job that fits, and grows jobs into GPUs for which no job waits"},
	{"Gandiva", "the simulator's own", compat.Flow{World: "gandiva"}, slotGandiva, ""},
	{"Gandiva", "gandiva:pack=false", compat.Flow{World: "gandiva", Policy: "gandiva:pack=false"}, slotGandiva,
		"theirs learns of ends only at arrivals, and holds whole nodes for jobs of one size in the meantime; ours runs the job with the least time next, on any free GPUs, every minute"},
	{"ElasticFlow", "the simulator's own", compat.Flow{World: "elasticflow"}, []slotCell{
		{"cluster01", 0, 0, 0.8476489028}, {"cluster02", 0, 0, 0}, {"cluster03", 0, 0, 0}, {"cluster05", 0, 0, 0},
		{"cluster06", 0, 0, 0}, {"cluster10", 0, 0, 0.9615384615}, {"cluster01", 0, 250, 0.76},
		{"cluster02", 0, 200, 0.93}, {"cluster02", 0, 450, 0.8266666667},
		{"cluster03", 0, 220, 0.6636363636}, {"cluster05", 0, 600, 0.8116666667}, {"cluster06", 0, 220, 0.6727272727},
		{"cluster06", 300, 800, 0.426}}, ""},
	{"ElasticFlow", "elasticflow", compat.Flow{World: "elasticflow", Policy: "elasticflow"},
		[]slotCell{{"cluster01", 0, 250, 0.76}, {"cluster10", 0, 0, 0.9615384615}},
		"theirs declines all jobs that arrive within a minute if one of them does not fit, and drops them; it gives spare GPUs to the jobs for which they cost most GPU time, even if the job gets slower. Ours answers each job separately, runs declined jobs without a promise, and gives spare GPUs where they save most"},
	{"Themis", "themis", compat.Flow{World: "themis", Policy: "themis"}, slotClusters(0, 0, 0, 0, 0, 0),
		"another rule: theirs divides the GPUs every minute by a convex program without a unique optimum, ours are the paper's auctions and leases; what was printed was probably made with costs of starts, of which that world has none under Themis"},
	{"Chronus", "chronus", compat.Flow{World: "chronus", Policy: "chronus"}, slotClusters(0, 0, 0, 0, 0, 0),
		"another rule: in theirs a commercial solver assigns the leases, within 5 s; ours packs leases greedily, and gives idle GPUs to other jobs, the least work first"},
}

const slotPrinted = "the released code and traces do not give what was printed"

// ElasticFlow replays the deadline traces of ElasticFlow in the world of its simulator.
func ElasticFlow(ctx context.Context, traces string) (Table, error) {
	return elasticFlowOn(ctx, traces, slotRows)
}

// elasticFlowOn replays some of the rows.
func elasticFlowOn(ctx context.Context, traces string, rows []slotRow) (Table, error) {
	t := Table{Title: "ElasticFlow: deadlines met", Tolerance: 0.002,
		About: "Share of the deadlines that are met, Figure 8b (ASPLOS'23): as its released simulator computes it on the released traces (\"re-run\"), and as printed. " +
			"The world is that of the simulator, profiles of `experiments/compat`: arrivals and ends within a minute are merged. Under Tiresias our engine and our `tiresias-l` decide; demotions are merged, too, " +
			"a start costs 7 seconds, plus two for every doubling of GPUs (only if another event happens before the end), and all jobs restart at each sixtieth event; " +
			"service counts without starts, and the order within a level is that of the simulator's lists. EDF there plans all jobs to their ends, with as many GPUs as fit, up to 64 or one per sample, " +
			"at measured speeds, and a change of size costs nothing: no policy of ours has these rules (\"the simulator's own\"), so they are part of the world, and the engine books the GPUs of each job; the figures of our `edf` in the same world are next to them. " +
			"The same holds for Gandiva's rules: jobs of one size take turns on groups of whole nodes, which sizes get by the demand of their jobs; at each arrival all jobs lose the cost of a start. " +
			"Under our `gandiva` only starting jobs lose it, and all jobs at each sixtieth event; the scheduler also runs at ends and every minute. " +
			"ElasticFlow there admits an arrival if all jobs then have plans that keep every deadline, with the smallest sizes, as late as possible; each event costs all jobs 7 seconds, or the cost of a start in a place where no job of the size ran since the last restart; " +
			"declined jobs are dropped. The released simulator was run on two whole traces, and on the first jobs of others; for those as a whole the printed share is given. Under our `elasticflow`, which runs every minute, a minute without arrivals or ends costs only jobs that are resized. " +
			"Themis' and Chronus' rules there cannot be reproduced without their solvers, and their shares are known only as printed; the rows are our `themis` and `chronus`, with the sizes and run times of the trace; starts cost nothing under Themis, and under Chronus half a second plus half a second for every doubling of GPUs. " +
			"With those sizes and run times, which Gandiva and Tiresias also have, no policy can keep more than 0.500, 0.501, 0.489, 0.504, 0.503 and 0.477 of the deadlines of the six clusters, in their order: the others would be missed on an empty cluster."}
	dir := filepath.Join(traces, "elasticflow-itp")
	printed, err := readFigure8b(filepath.Join(dir, "expected_fig8b_deadline_satisfaction.csv"))
	if err != nil {
		return t, err
	}
	var cells []slotCell
	var of []*slotRow // row of each cell
	for i := range rows {
		for _, c := range rows[i].cells {
			cells, of = append(cells, c), append(of, &rows[i])
		}
	}
	shares := make([]float64, len(cells))
	if err := beside(len(cells), func(i int) (err error) {
		if shares[i], err = of[i].replay(ctx, dir, cells[i]); err != nil {
			return fmt.Errorf("%s, %s: %w", cells[i].label(), of[i].ours, err)
		}
		return nil
	}); err != nil {
		return t, err
	}
	for i := range cells {
		r, c := of[i], &cells[i]
		name := fmt.Sprintf("%s, %s (ours: %s)", c.label(), r.theirs, r.ours)
		if c.rerun > 0 {
			t.Rows = append(t.Rows,
				Row{Case: name, Figure: "share met, re-run", Published: c.rerun, Ours: shares[i], Reason: r.reason})
		}
		if c.to > 0 || c.rerun > 0 && r.reason != "" {
			continue
		}
		paper, ok := printed[r.theirs+"/"+c.cluster]
		if !ok {
			return t, fmt.Errorf("%s: no figure of %s for %s", dir, r.theirs, c.cluster)
		}
		t.Rows = append(t.Rows,
			Row{Case: name, Figure: "share met, printed", Published: paper, Ours: shares[i],
				Reason: cmp.Or(r.reason, slotPrinted)})
	}
	return t, nil
}

// label names a cell.
func (c *slotCell) label() string {
	switch {
	case c.to == 0:
		return c.cluster
	case c.from == 0:
		return fmt.Sprintf("%s, first %d jobs", c.cluster, c.to)
	}
	return fmt.Sprintf("%s, jobs %d to %d", c.cluster, c.from+1, c.to)
}

// replay is the share of deadlines met.
func (r *slotRow) replay(ctx context.Context, dir string, c slotCell) (float64, error) {
	path, nodes := filepath.Join(dir, "deadline", c.cluster+".csv"), 64
	if c.cluster == "cluster10" {
		nodes = 32
	}
	var w interface{ Met() (met, jobs int) }
	var err error
	if r.x.World == "" {
		w, err = compat.RunSlots(ctx, path, nodes)
	} else {
		x := r.x
		x.Trace, x.Profiles, x.Nodes, x.From, x.To = path, filepath.Join(dir, "profiles", "throughputs_A100"), nodes,
			c.from, c.to
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
	out := map[string]float64{}
	return out, eachRow(path, func(head, r []string) (err error) {
		for i := 1; i < len(r) && err == nil; i++ {
			out[r[0]+"/"+head[i]], err = strconv.ParseFloat(r[i], 64)
		}
		return err
	})
}
