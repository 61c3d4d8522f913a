package results

import (
	"compress/gzip"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"github.com/muster-gpu/muster/internal/csvfile"
	"github.com/muster-gpu/muster/sim/compat"
)

// gavelOrder is the order in which that simulator goes through the GPU models.
const gavelOrder = ",solve=resets,order=V100-16GB/P100-16GB/K80-12GB"

// gavelRow is a published row that we replay.
type gavelRow struct {
	name, theirs string
	x            compat.Gavel
	rates        []string // as published
	reason       string   // of differences
}

// gavelSpan is a published makespan that we replay.
type gavelSpan struct {
	name, reason string
	x            compat.Gavel
	hours        float64
}

// gavelSpans are the published makespans of 700 jobs, in hours
// (gavel/expected/makespan.txt).
var gavelSpans = []gavelSpan{
	{"FIFO (ours: the simulator's own)", gavelSpanReason, compat.Gavel{}, 619.518289},
	{"Gandiva (ours: the simulator's own)", gavelSpanReason, compat.Gavel{Own: "gandiva"}, 347.335019},
	{"Gavel makespan (ours: gavel:objective=makespan)", gavelSpanReason, compat.Gavel{Policy: "gavel:objective=makespan" + gavelOrder, Tells: true}, 244.231470},
	{"Gavel makespan with space sharing (ours: gavel:objective=makespan,space_sharing=true)", gavelSpanReason + "; ours has the 64 jobs with most work left share",
		compat.Gavel{Policy: "gavel:objective=makespan,space_sharing=true" + gavelOrder, Tells: true}, 226.224546},
}

var (
	gavelAll   = []string{"0.40", "0.80", "1.20", "1.60", "2.00", "2.40", "2.80", "3.20", "3.60", "4.00", "4.40", "4.80", "5.20", "5.60", "6.00"}
	gavelFew   = []string{"2.00", "4.00", "4.80"} // the programs take their time
	gavelTo52  = []string{"0.80", "1.60", "2.00", "2.80", "3.60", "4.00", "4.40", "4.80", "5.20"}
	gavelLarge = []string{"0.20", "0.40", "0.60", "0.80", "1.00", "1.20", "1.40", "1.60", "1.80", "2.00", "2.20", "2.40", "2.60", "2.80", "3.00"}
)

// gavelLeft says which published cells are not replayed, and why.
const gavelLeft = " Not replayed: FIFO with space sharing (no policy of ours), water filling, priorities and the hierarchical experiment (published as shares over time, not as means), " +
	"the sweep over cluster sizes (same programs), the ratios of finish-time fairness; and of the other rows those rates at which the cluster is so overloaded that neither the specification's own replay nor the published runs agree with each other " +
	"(finish-time fairness from 5.6, AlloX and Gandiva from 5.6 jobs/h) or that say the same as their neighbours."

const (
	gavelSpanReason  = "the published list of jobs is not known: this is that of seed 0"
	gavelAlloXReason = "GPUs of a model are alike, so the assignment has ties; which one is taken decides what follows"
	gavelPairsReason = "pairs by lot; why is not known (ours puts no pair that has no part of a model on GPUs that are left)"
	gavelOursReason  = "not the same rules: "
	gavelPackReason  = "ours pairs only those who get more done together than in turns, and gives what max-min leaves open to where most is done; published: the solver's centre over all pairs"
	gavelLASReason   = "theirs draws the order of the models each round (the rows of the simulator's own do, too), our policy takes them in turn"
	gavelSlackReason = "where there are GPUs for all, most jobs have slack, and what they have of it depends on how well the solver centres"
	gavelTiesReason  = "all jobs have the same part of each model, and where there are more jobs than GPUs they tie; theirs go by the last digits of the solver, ours by what they had and by arrival"
	gavelFTFReason   = "not known; few jobs hold the bound, and what the others have is the solver's choice"
	gavelManyGPUs    = "not known; large jobs leave slack, and what the others have depends on how well the solver centres"
)

// gavelRows are the published rows by our policies.
var gavelRows = []gavelRow{
	{"FIFO (ours: the simulator's own)", "fifo", compat.Gavel{}, gavelAll[:13], ""},
	{"FIFO-het. (ours: gavel:objective=fifo)", "fifo_perf", compat.Gavel{Policy: "gavel:objective=fifo" + gavelOrder}, gavelAll, ""},
	{"Gavel LAS (ours: gavel)", "max_min_fairness_perf", compat.Gavel{Policy: "gavel:objective=las" + gavelOrder}, gavelAll, gavelSlackReason},
	{"Gavel LAS with space sharing (ours: gavel:space_sharing=true)", "max_min_fairness_packed", compat.Gavel{Policy: "gavel:space_sharing=true" + gavelOrder}, []string{"2.00", "4.00", "4.80", "5.20", "6.00"}, gavelPackReason},
	{"LAS (ours: the simulator's own)", "max_min_fairness", compat.Gavel{Own: "las"}, gavelAll[:14], gavelTiesReason},
	{"LAS (ours: gavel:heterogeneity=false)", "max_min_fairness", compat.Gavel{Policy: "gavel:heterogeneity=false,solve=resets"}, gavelTo52, gavelLASReason},
	{"AlloX (ours: the simulator's own)", "allox", compat.Gavel{Own: "allox"}, gavelTo52, gavelAlloXReason},
	{"AlloX (ours: allox)", "allox", compat.Gavel{Policy: "allox", Tells: true}, gavelFew, gavelOursReason + "ours plans for GPUs that are busy, too, and starts nobody beyond its plan"},
	{"Gandiva (ours: the simulator's own)", "gandiva", compat.Gavel{Own: "gandiva"}, gavelTo52, gavelPairsReason},
	{"Gandiva (ours: gandiva)", "gandiva", compat.Gavel{Policy: "gandiva:round=6m,probe=6m", Tells: true}, gavelFew[:2], gavelOursReason + "ours knows no models, and takes any GPU that is idle; theirs fills V100 first"},
	{"Gavel FTF (ours: gavel:objective=ftf)", "finish_time_fairness_perf", compat.Gavel{Policy: "gavel:objective=ftf" + gavelOrder, Tells: true}, gavelTo52, gavelFTFReason},
	{"FTF (ours: gavel:objective=ftf,heterogeneity=false)", "finish_time_fairness", compat.Gavel{Policy: "gavel:objective=ftf,heterogeneity=false,solve=resets", Tells: true}, []string{"2.00", "4.00", "4.40", "4.80"}, gavelFTFReason},
	{"FIFO (ours: the simulator's own)", "fifo", compat.Gavel{Several: true}, gavelLarge, ""},
	{"FIFO-het. (ours: gavel:objective=fifo)", "fifo_perf", compat.Gavel{Several: true, Policy: "gavel:objective=fifo" + gavelOrder}, gavelLarge, ""},
	{"Gavel LAS (ours: gavel)", "max_min_fairness_perf", compat.Gavel{Several: true, Policy: "gavel:objective=las" + gavelOrder}, []string{"0.40", "1.00", "1.60", "2.00", "2.40", "2.60"}, gavelManyGPUs},
	{"Gavel LAS with space sharing (ours: gavel:space_sharing=true)", "max_min_fairness_packed", compat.Gavel{Several: true, Policy: "gavel:space_sharing=true" + gavelOrder}, []string{"2.00", "2.60"}, gavelPackReason},
	{"LAS (ours: gavel:heterogeneity=false)", "max_min_fairness", compat.Gavel{Several: true, Policy: "gavel:heterogeneity=false,solve=resets"}, []string{"0.40", "1.00", "1.60", "2.00", "2.40"}, gavelLASReason},
	{"Gandiva (ours: the simulator's own)", "gandiva", compat.Gavel{Several: true, Own: "gandiva"}, []string{"0.40", "1.00", "1.60", "2.00"}, gavelPairsReason},
	{"Gavel FTF (ours: gavel:objective=ftf)", "finish_time_fairness_perf", compat.Gavel{Several: true, Policy: "gavel:objective=ftf" + gavelOrder, Tells: true}, []string{"0.40", "1.00", "2.00"}, gavelManyGPUs},
	{"FTF (ours: gavel:objective=ftf,heterogeneity=false)", "finish_time_fairness", compat.Gavel{Several: true, Policy: "gavel:objective=ftf,heterogeneity=false,solve=resets", Tells: true}, []string{"1.00", "2.00"}, gavelFTFReason},
}

// Gavel replays the continuous workload of Gavel in the world of its simulator.
func Gavel(ctx context.Context, traces string) (Table, error) {
	return gavelTable(ctx, traces, gavelRows, gavelSpans)
}

func gavelTable(ctx context.Context, traces string, rows []gavelRow, spans []gavelSpan) (Table, error) {
	t := Table{Title: "Gavel: continuous workload, 36 V100, 36 P100, 36 K80", Tolerance: 0.005,
		About: "Mean completion time in hours of jobs 4000 to 4999, by jobs that arrive per hour, as printed by the published evaluation (OSDI'20): one seed, 0. " +
			"FIFO and FIFO-het. are equal to the printed digit in all 58 cells. Our engine and our policies decide; jobs, arrivals and the world are those of " +
			"the published simulator, a profile of `sim/compat`: rounds of at most 360 s in which every job makes whole steps, ends and arrivals " +
			"are heard of when the slowest job of a round is done, moving is free. `solve=resets` has the program solved every 32 minutes at most, as " +
			"there; `order` goes through the models as there. What is peculiar to that simulator is in the profile: a job that was not there at the last " +
			"solution may keep a GPU from others, but does not run; and FIFO without heterogeneity, which draws lots for models with a slip. A job that makes no steps on K80 is passed over there, in both. " +
			"So are its AlloX and Gandiva, which equal the printed digits up to 3.6 and 4.0 jobs/h; beside them our policies of these names, by other rules. The makespan is of jobs that all come at 0. With space sharing two jobs on the same GPUs both make the steps that the published table says of the two, to the end of the slower one's round." + gavelLeft}
	table, err := readThroughputs(filepath.Join(traces, "gavel", "simulation_throughputs.json.gz"))
	if err != nil {
		return t, err
	}
	published, err := readGavel(filepath.Join(traces, "gavel", "expected", "avg_jct_tables.csv"))
	if err != nil {
		return t, err
	}
	var cells []compat.Gavel
	for i := range rows {
		r := &rows[i]
		workload := "continuous_jobs"
		gpus := "single GPUs"
		if r.x.Several {
			workload, gpus = "continuous_jobs_multigpu", "1 to 8 GPUs"
		}
		for _, rate := range r.rates {
			want, ok := published[workload+"/"+r.theirs+"/"+rate]
			if !ok {
				return t, fmt.Errorf("gavel: no published value of %s, %s at %s jobs per hour", workload, r.theirs, rate)
			}
			x := r.x
			if x.Rate, err = strconv.ParseFloat(rate, 64); err != nil {
				return t, fmt.Errorf("gavel: rate %q: %w", rate, err)
			}
			cells = append(cells, x)
			t.Rows = append(t.Rows, Row{Case: gpus + ", " + r.name, Figure: rate + " jobs/h", Published: want, Reason: r.reason})
		}
	}
	for _, m := range spans {
		x := m.x
		x.Several, x.Static = true, 700
		cells = append(cells, x)
		t.Rows = append(t.Rows, Row{Case: "1 to 8 GPUs, " + m.name, Figure: "makespan of 700 jobs", Published: m.hours, Reason: m.reason})
	}
	if err := replayGavel(ctx, table, cells, t.Rows); err != nil {
		return t, err
	}
	t.Rows = append(t.Rows, gavelGains(t.Rows)...)
	for i := range t.Rows {
		if r := &t.Rows[i]; r.Off() <= t.Tolerance && r.Off() >= -t.Tolerance {
			r.Reason = ""
		}
	}
	return t, nil
}

// gavelGains sets each row with space sharing over that without, where both are replayed.
func gavelGains(rows []Row) (gains []Row) {
	const with = " with space sharing"
	for _, r := range rows {
		name, policy, ok := strings.Cut(r.Case, with)
		if !ok {
			continue
		}
		for _, base := range rows {
			if rest, ok := strings.CutPrefix(base.Case, name+" (ours: "); ok && base.Figure == r.Figure && !strings.Contains(rest, "space_sharing") {
				gains = append(gains, Row{Case: name + ", with space sharing over without" + strings.ReplaceAll(policy, ",space_sharing=true", ""), Figure: r.Figure,
					Published: r.Published / base.Published, Ours: r.Ours / base.Ours, Reason: r.Reason})
			}
		}
	}
	return gains
}

// replayGavel runs experiments beside each other; each is a row's.
func replayGavel(ctx context.Context, table *compat.Throughputs, cells []compat.Gavel, rows []Row) error {
	return beside(len(cells), func(i int) error {
		f, err := compat.RunGavel(ctx, cells[i], table)
		if err != nil {
			return fmt.Errorf("%s, %s: %w", rows[i].Case, rows[i].Figure, err)
		}
		if rows[i].Ours = f.Hours; cells[i].Static > 0 {
			rows[i].Ours = f.Span
		}
		return nil
	})
}

// beside does n things, as many at once as there are cores.
func beside(n int, do func(i int) error) error {
	errs, next := make([]error, n), make(chan int)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for i := range next {
				errs[i] = do(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	workers.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func readThroughputs(path string) (*compat.Throughputs, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	table, err := compat.ReadThroughputs(z)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return table, nil
}

// readGavel reads mean completion times by workload, policy and rate. The file has
// ratios of finish-time fairness beside them, in later sections: the first counts.
func readGavel(path string) (map[string]float64, error) {
	rows, err := csvfile.Read(path)
	if err != nil {
		return nil, err
	}
	out := map[string]float64{}
	for _, r := range rows[1:] {
		if len(r) != 5 {
			return nil, fmt.Errorf("%s: row %v: want workload, section, policy, rate, value", path, r)
		}
		v, err := strconv.ParseFloat(r[4], 64)
		if err != nil {
			return nil, fmt.Errorf("%s: row %v: %w", path, r, err)
		}
		if key := r[0] + "/" + r[2] + "/" + r[3]; out[key] == 0 {
			out[key] = v
		}
	}
	return out, nil
}
