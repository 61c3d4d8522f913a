package results

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"github.com/muster-gpu/muster/experiments/compat"
)

// gavelOrder is the order in which that simulator visits the GPU models.
const gavelOrder = ",solve=resets,order=V100-16GB/P100-16GB/K80-12GB"

// gavelRow is a published row that we replay.
type gavelRow struct {
	name, theirs string
	x            compat.Gavel
	rates        []string // as published
	reason       string   // why figures differ
	fair         bool     // the published ratios of finish-time fairness are replayed, too
}

// gavelCell is what is run for a figure.
type gavelCell struct {
	runs []compat.Gavel // the figure is their mean
	row  int
	fair int // the row of ratios over isolated, of the same run; 0: none
}

// gavelSpan is a row of published makespans that we replay.
type gavelSpan struct {
	name, theirs string
	x            compat.Gavel
	jobs         []int
	reason       string // why figures differ
}

// gavelSpanSeeds are the seeds of the published makespans, which are means: their table gives the
// seeds' mean, 1. Rounds of 1,920 s and these seeds reproduce FIFO's and Gandiva's to the last
// printed digit.
var gavelSpanSeeds = []uint32{0, 1, 2}

const gavelSpanRound = 1920 // seconds

var gavelSpans = []gavelSpan{
	{"FIFO (ours: the simulator's own)", "FIFO", compat.Gavel{}, gavelSpanJobs, ""},
	{"Gandiva (ours: the simulator's own)", "Gandiva", compat.Gavel{Own: "gandiva"}, gavelSpanJobs, ""},
	{"Gavel makespan (ours: gavel:objective=makespan)", "Gavel",
		compat.Gavel{Policy: "gavel:objective=makespan,round=32m" + gavelOrder, Tells: true}, gavelSpanJobs, ""},
	{"Gavel makespan with space sharing (ours: gavel:objective=makespan,space_sharing=true)", "Gavel w/ SS",
		compat.Gavel{Policy: "gavel:objective=makespan,space_sharing=true,round=32m" + gavelOrder, Tells: true},
		[]int{100, 300, 500, 700}, gavelSpanPacks},
}

var gavelSpanJobs = []int{100, 200, 300, 400, 500, 600, 700}

var (
	gavelAll = []string{"0.40", "0.80", "1.20", "1.60", "2.00", "2.40", "2.80", "3.20", "3.60", "4.00", "4.40",
		"4.80", "5.20", "5.60", "6.00"}
	gavelFew   = []string{"2.00", "4.00", "4.80"} // the programs take long
	gavelTo52  = []string{"0.80", "1.60", "2.00", "2.80", "3.60", "4.00", "4.40", "4.80", "5.20"}
	gavelLarge = []string{"0.20", "0.40", "0.60", "0.80", "1.00", "1.20", "1.40", "1.60", "1.80", "2.00", "2.20",
		"2.40", "2.60", "2.80", "3.00"}
)

const gavelAbout = "Mean completion time in hours of jobs 4000 to 4999, by jobs that arrive per hour, as printed by the published evaluation (OSDI'20): one seed, 0. " +
	"FIFO and FIFO-het. match the printed digits in all 58 cells. Our engine and our policies decide; jobs, arrivals and the world are those of " +
	"the published simulator, a profile of `experiments/compat`: rounds of at most 360 s in which every job makes whole steps, ends and arrivals " +
	"are processed when the slowest job of a round is done, moving is free. With `solve=resets` the program is solved at most every 32 minutes, as " +
	"there; `order` visits the models as there. What is particular to that simulator is in the profile: a job that was not there at the last " +
	"solution may keep a GPU from others, but does not run; and FIFO without heterogeneity, which draws models at random, with a defect. A job that makes no steps on K80 is skipped there, in both. " +
	"So are its AlloX, Gandiva and FIFO with space sharing, which equal the printed digits in all 69 cells (and the ratios of finish-time fairness of the first two, which are over the completion times under equal parts of all GPUs): AlloX takes the one of several optimal assignments that Munkres' method finds on doubles, and under Gandiva two jobs that were not drawn as a pair may share unused GPUs. " +
	"And its LAS, by its programs and the method of the solver that it used (ECOS: an interior-point method on the self-dual embedding), which finds the same one among many optimal divisions. " +
	"Our policies of these names, with other rules, are next to them. The makespan is of jobs that all arrive at 0, in rounds of at most 1,920 s, as the mean of seeds 0, 1 and 2: FIFO and Gandiva equal all 14 printed values to the last digit. With space sharing two jobs on the same GPUs both make the steps that the published table says of the two, to the end of the slower one's round."

// gavelLeft says which published cells are not replayed, and why.
const gavelLeft = " Not replayed: water filling, priorities and the hierarchical experiment (published as shares over time, not as means), " +
	"the sweep over cluster sizes (same programs), the ratios of finish-time fairness of policies that solve programs; and of the other rows those rates at which the cluster is so overloaded that neither the specification's own replay nor the published runs agree with each other " +
	"(finish-time fairness from 5.6 jobs/h) or that say the same as their neighbours."

const (
	gavelDigits      = "printed to two digits; ours are the same"
	gavelSpanPacks   = "ours has the 64 jobs with most work left share; published: the solver's centre over all pairs"
	gavelOursReason  = "not the same rules: "
	gavelPackReason  = "ours pairs only jobs that get more done together than in turns, and uses what max-min leaves open where most is done; published: the solver's centre over all pairs"
	gavelLASReason   = "theirs draws the order of the models each round (the rows of the simulator's own do, too), our policy takes them in turn"
	gavelSlackReason = "where jobs have slack, many divisions are best, and the solver decides for one: by the method of theirs (the rows of the simulator's own) the printed digits come out, ours takes the centre"
	gavelTiesReason  = "all jobs have the same part of each model, and where there are more jobs than GPUs they tie; theirs go by the last digits of the solver, ours by what they had and by arrival"
	gavelFTFReason   = "not known: of the released rules and the solver's method, nearly the same comes at any accuracy (the rows of the simulator's own), so the published rules must have been different"
	gavelAlikeReason = "where there are more jobs than GPUs, jobs tie, and the last digits of the solver decide"
)

// gavelRows are the published rows by our policies.
var gavelRows = []gavelRow{
	{"FIFO (ours: the simulator's own)", "fifo", compat.Gavel{}, gavelAll[:13], "", false},
	{"FIFO-het. (ours: gavel:objective=fifo)", "fifo_perf", compat.Gavel{Policy: "gavel:objective=fifo" + gavelOrder},
		gavelAll, "", false},
	{"FIFO-het., packed (ours: the simulator's own)", "fifo_packed", compat.Gavel{Own: "fifo-packed"}, gavelAll, "",
		false},
	{"Gavel LAS (ours: gavel)", "max_min_fairness_perf", compat.Gavel{Policy: "gavel:objective=las" + gavelOrder},
		gavelAll, gavelSlackReason, false},
	{"Gavel LAS with space sharing (ours: gavel:space_sharing=true)", "max_min_fairness_packed",
		compat.Gavel{Policy: "gavel:space_sharing=true" + gavelOrder}, []string{"2.00", "4.00", "4.80", "5.20", "6.00"},
		gavelPackReason, false},
	{"Gavel LAS (ours: the simulator's own)", "max_min_fairness_perf", compat.Gavel{Own: "max-min"},
		[]string{"0.80", "1.60", "2.00", "2.40", "2.80", "3.20", "3.60", "4.00", "4.40", "4.80", "5.20"}, "", false},
	{"LAS (ours: the simulator's own)", "max_min_fairness", compat.Gavel{Own: "las"}, gavelAll[:14], gavelTiesReason,
		false},
	{"LAS (ours: gavel:heterogeneity=false)", "max_min_fairness",
		compat.Gavel{Policy: "gavel:heterogeneity=false,solve=resets"}, gavelTo52, gavelLASReason, false},
	{"AlloX (ours: the simulator's own)", "allox", compat.Gavel{Own: "allox"}, gavelAll[:14], "", true},
	{"AlloX (ours: allox)", "allox", compat.Gavel{Policy: "allox", Tells: true}, gavelFew,
		gavelOursReason + "ours plans for busy GPUs, too, and starts no job beyond its plan", false},
	{"Gandiva (ours: the simulator's own)", "gandiva", compat.Gavel{Own: "gandiva"}, gavelAll[:14], "", true},
	{"Gandiva (ours: gandiva)", "gandiva", compat.Gavel{Policy: "gandiva:round=6m,probe=6m", Tells: true}, gavelFew[:2],
		gavelOursReason + "ours knows no models, and takes any GPU that is idle; theirs fills V100 first", false},
	{"Gavel FTF (ours: gavel:objective=ftf)", "finish_time_fairness_perf",
		compat.Gavel{Policy: "gavel:objective=ftf" + gavelOrder, Tells: true}, gavelTo52, gavelFTFReason, false},
	{"Gavel FTF (ours: the simulator's own, as released)", "finish_time_fairness_perf", compat.Gavel{Own: "ftf"},
		[]string{"2.00", "4.00", "4.80"}, gavelFTFReason, false},
	{"FTF (ours: gavel:objective=ftf,heterogeneity=false)", "finish_time_fairness",
		compat.Gavel{Policy: "gavel:objective=ftf,heterogeneity=false,solve=resets", Tells: true},
		[]string{"2.00", "4.00", "4.40", "4.80"}, gavelFTFReason, false},
	{"FIFO (ours: the simulator's own)", "fifo", compat.Gavel{Several: true}, gavelLarge, "", false},
	{"FIFO-het. (ours: gavel:objective=fifo)", "fifo_perf",
		compat.Gavel{Several: true, Policy: "gavel:objective=fifo" + gavelOrder}, gavelLarge, "", false},
	{"FIFO-het., packed (ours: the simulator's own)", "fifo_packed", compat.Gavel{Several: true, Own: "fifo-packed"},
		gavelLarge[:13], "", false},
	{"Gavel LAS (ours: gavel)", "max_min_fairness_perf",
		compat.Gavel{Several: true, Policy: "gavel:objective=las" + gavelOrder},
		[]string{"0.40", "1.00", "1.60", "2.00", "2.40", "2.60"}, gavelSlackReason, false},
	{"Gavel LAS (ours: the simulator's own)", "max_min_fairness_perf", compat.Gavel{Several: true, Own: "max-min"},
		[]string{"0.40", "1.00", "1.60", "2.00", "2.40", "2.60"}, "", false},
	{"Gavel LAS with space sharing (ours: gavel:space_sharing=true)", "max_min_fairness_packed",
		compat.Gavel{Several: true, Policy: "gavel:space_sharing=true" + gavelOrder}, []string{"2.00", "2.60"},
		gavelPackReason, false},
	{"LAS (ours: gavel:heterogeneity=false)", "max_min_fairness",
		compat.Gavel{Several: true, Policy: "gavel:heterogeneity=false,solve=resets"},
		[]string{"0.40", "1.00", "1.60", "2.00", "2.40"}, gavelLASReason, false},
	{"LAS (ours: the simulator's own)", "max_min_fairness", compat.Gavel{Several: true, Own: "max-min-alike"},
		[]string{"0.40", "1.00", "1.60", "2.00", "2.40"}, gavelAlikeReason, false},
	{"Gandiva (ours: the simulator's own)", "gandiva", compat.Gavel{Several: true, Own: "gandiva"}, gavelLarge[:13], "",
		true},
	{"Gavel FTF (ours: gavel:objective=ftf)", "finish_time_fairness_perf",
		compat.Gavel{Several: true, Policy: "gavel:objective=ftf" + gavelOrder, Tells: true},
		[]string{"0.40", "1.00", "2.00"}, gavelFTFReason, false},
	{"FTF (ours: gavel:objective=ftf,heterogeneity=false)", "finish_time_fairness",
		compat.Gavel{Several: true, Policy: "gavel:objective=ftf,heterogeneity=false,solve=resets", Tells: true},
		[]string{"1.00", "2.00"}, gavelFTFReason, false},
}

// Gavel replays the continuous workload of Gavel in the world of its simulator.
func Gavel(ctx context.Context, traces string) (Table, error) {
	return gavelTable(ctx, traces, gavelRows, gavelSpans)
}

func gavelTable(ctx context.Context, traces string, rows []gavelRow, spans []gavelSpan) (Table, error) {
	t := Table{Title: "Gavel: continuous workload, 36 V100, 36 P100, 36 K80", Tolerance: 0.005,
		About: gavelAbout + gavelLeft}
	table, err := readThroughputs(filepath.Join(traces, "gavel", "simulation_throughputs.json.gz"))
	if err != nil {
		return t, err
	}
	published, err := readGavel(filepath.Join(traces, "gavel", "expected", "avg_jct_tables.csv"))
	if err != nil {
		return t, err
	}
	lengths, err := readGavelSpans(filepath.Join(traces, "gavel", "expected", "makespan.txt"))
	if err != nil {
		return t, err
	}
	var cells []gavelCell
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
				return t, fmt.Errorf("gavel: no published value of %s, %s at %s jobs per hour", workload, r.theirs,
					rate)
			}
			x := r.x
			if x.Rate, err = strconv.ParseFloat(rate, 64); err != nil {
				return t, fmt.Errorf("gavel: rate %q: %w", rate, err)
			}
			cells = append(cells, gavelCell{runs: []compat.Gavel{x}, row: len(t.Rows)})
			t.Rows = append(t.Rows,
				Row{Case: gpus + ", " + r.name, Figure: rate + " jobs/h", Published: want, Reason: r.reason})
			if ratio := published[workload+"/"+r.theirs+"/"+rate+gavelFair]; r.fair && ratio > 0 {
				cells[len(cells)-1].fair = len(t.Rows)
				t.Rows = append(t.Rows,
					Row{Case: gpus + ", " + r.name, Figure: rate + " jobs/h, over isolated", Published: ratio,
						Reason: gavelDigits})
			}
		}
	}
	for i := range spans {
		more, err := spans[i].cells(lengths, &t)
		if err != nil {
			return t, err
		}
		cells = append(cells, more...)
	}
	if err := replayGavel(ctx, table, cells, t.Rows); err != nil {
		return t, err
	}
	t.Rows = append(t.Rows, gavelGains(t.Rows)...)
	for i := range t.Rows {
		r := &t.Rows[i]
		same := fmt.Sprintf("%.2f", r.Ours) == fmt.Sprintf("%.2f", r.Published)
		if math.Abs(r.Off()) <= t.Tolerance || r.Reason == gavelDigits && !same {
			r.Reason = ""
		}
	}
	return t, nil
}

// cells returns the runs of the row, and adds its figures to the table.
func (m *gavelSpan) cells(published map[string]float64, t *Table) (cells []gavelCell, err error) {
	for _, n := range m.jobs {
		want, ok := published[m.theirs+"/"+strconv.Itoa(n)]
		if !ok {
			return nil, fmt.Errorf("gavel: no published makespan of %s with %d jobs", m.theirs, n)
		}
		cell := gavelCell{row: len(t.Rows)}
		for _, seed := range gavelSpanSeeds {
			x := m.x
			x.Seed, x.Several, x.Static, x.Round = seed, true, n, gavelSpanRound
			cell.runs = append(cell.runs, x)
		}
		cells = append(cells, cell)
		t.Rows = append(t.Rows,
			Row{Case: "1 to 8 GPUs, " + m.name, Figure: fmt.Sprintf("makespan of %d jobs", n), Published: want,
				Reason: m.reason})
	}
	return cells, nil
}

// gavelGains compares each row with space sharing with the one without, where both are replayed.
func gavelGains(rows []Row) (gains []Row) {
	const with = " with space sharing"
	for _, r := range rows {
		name, policy, ok := strings.Cut(r.Case, with)
		if !ok {
			continue
		}
		for _, base := range rows {
			if rest, ok := strings.CutPrefix(base.Case, name+" (ours: "); ok && base.Figure == r.Figure &&
				!strings.Contains(rest, "space_sharing") {
				gains = append(gains,
					Row{Case: name + ", with space sharing over without" +
						strings.ReplaceAll(policy, ",space_sharing=true", ""), Figure: r.Figure,
						Published: r.Published / base.Published, Ours: r.Ours / base.Ours, Reason: r.Reason})
			}
		}
	}
	return gains
}

// replayGavel runs experiments in parallel: first, once each, those that ratios are relative to.
func replayGavel(ctx context.Context, table *compat.Throughputs, cells []gavelCell, rows []Row) error {
	var alone []compat.Gavel
	at := map[compat.Gavel]int{}
	isolated := func(c *gavelCell) compat.Gavel {
		return compat.Gavel{Own: "isolated", Rate: c.runs[0].Rate, Several: c.runs[0].Several}
	}
	for i := range cells {
		if x := isolated(&cells[i]); cells[i].fair > 0 && at[x] == 0 {
			alone = append(alone, x)
			at[x] = len(alone)
		}
	}
	took := make([][]float64, 1+len(alone))
	run := func(x compat.Gavel, row *Row) (compat.GavelFigures, error) {
		f, err := compat.RunGavel(ctx, x, table)
		if err != nil {
			err = fmt.Errorf("%s, %s: %w", row.Case, row.Figure, err)
		}
		return f, err
	}
	if err := beside(len(alone), func(i int) error {
		f, err := run(alone[i], &Row{Case: "isolated", Figure: fmt.Sprintf("%g jobs/h", alone[i].Rate)})
		took[1+i] = f.Took
		return err
	}); err != nil {
		return err
	}
	return beside(len(cells), func(i int) error {
		c := &cells[i]
		sum := 0.0
		for _, x := range c.runs {
			f, err := run(x, &rows[c.row])
			if err != nil {
				return err
			}
			if x.Static > 0 {
				f.Hours = f.Span
			}
			if sum += f.Hours; c.fair > 0 {
				for k, seconds := range f.Took {
					rows[c.fair].Ours += seconds / took[at[isolated(c)]][k] / float64(len(f.Took))
				}
			}
		}
		rows[c.row].Ours = sum / float64(len(c.runs))
		return nil
	})
}

// beside does n things in parallel, one per core.
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

// gavelFair ends the key of a ratio of finish-time fairness: the mean, over the measured jobs, of
// the completion time relative to that when all jobs have equal parts of all GPUs.
const gavelFair = "/fair"

// readGavel reads mean completion times by workload, policy and rate. In sections 7 and 8 the file
// also has ratios of finish-time fairness. Of several equal keys the first counts.
func readGavel(path string) (map[string]float64, error) {
	out := map[string]float64{}
	return out, eachRow(path, func(_, r []string) error {
		if len(r) != 5 {
			return errors.New("want workload, section, policy, rate, value")
		}
		key := r[0] + "/" + r[2] + "/" + r[3]
		if strings.HasPrefix(r[0], "continuous_jobs") && (r[1] == "7" || r[1] == "8") {
			key += gavelFair
		}
		v, err := strconv.ParseFloat(r[4], 64)
		if out[key] == 0 {
			out[key] = v
		}
		return err
	})
}

// readGavelSpans reads makespans in hours, by policy and number of jobs. A line has a number of
// jobs, hours and the mean of the seeds; the first one of a policy begins with its name.
func readGavelSpans(path string) (map[string]float64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	out, name := map[string]float64{}, ""
	for _, line := range strings.Split(string(text), "\n") {
		words := strings.Fields(line)
		n := len(words) - 3
		if n < 0 {
			continue
		}
		jobs, err := strconv.ParseFloat(words[n], 64)
		hours, bad := strconv.ParseFloat(words[n+1], 64)
		if err != nil || bad != nil {
			continue // a heading
		}
		if n > 0 {
			name = strings.Join(words[:n], " ")
		}
		out[name+"/"+strconv.Itoa(int(jobs))] = hours
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: no makespan; want lines of a policy, a number of jobs, hours and a seed", path)
	}
	return out, nil
}
