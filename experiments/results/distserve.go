package results

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/muster-gpu/muster/experiments/compat"
	"github.com/muster-gpu/muster/serving/llm"
)

// distChunk is the tokens of a step with chunked prompts.
const distChunk = 512

// The kinds of step of which times are compared: about the mean prompt, and a moderate load.
const (
	distPrompt  = 700
	distDecodes = 20
	distContext = 900 // of each of them
)

// Instances of ours: one by the rules and step times of the published program, and two as our engine has them.
const (
	distSame   = "same rules"
	distWhole  = "whole prompts"
	distChunks = "chunked prompts"
)

var distReasons = map[string]string{
	distSame:   "theirs gives a decode step at most 50,000 tokens of context; ours has no such bound",
	distWhole:  "step times by the roofline instead of fits, and a bounded KV memory",
	distChunks: "step times by the roofline instead of fits, a bounded KV memory, and prompts in chunks",
}

// DistServe replays the published runs and searches of DistServe's simulator in its world, and what one instance does
// there on instances of ours.
func DistServe(ctx context.Context, traces string) (Table, error) {
	t := Table{Title: "DistServe: 300 requests for a language model on A100-80GB"}
	dir := filepath.Join(traces, "distserve-profiles")
	d, err := compat.ReadDistServe(dir)
	if err != nil {
		return t, err
	}
	x := distReplay{Table: &t, world: d, loads: map[string][]compat.DistRequest{}}
	for _, name := range []string{"azconv300", "sharegpt300"} {
		if x.loads[name], err = compat.ReadDistRequests(filepath.Join(dir, "workload-"+name+".csv")); err != nil {
			return t, err
		}
	}
	runs, err := compat.ReadDistRuns(filepath.Join(dir, "expected", "runs.csv"))
	if err != nil {
		return t, err
	}
	searches, err := compat.ReadDistSearches(filepath.Join(dir, "expected", "search.csv"))
	if err != nil {
		return t, err
	}
	if err := x.searches(ctx, searches); err != nil {
		return t, err
	}
	if err := x.ours(ctx, runs); err != nil {
		return t, err
	}
	if err := x.steps(); err != nil {
		return t, err
	}
	if err := x.runs(ctx, runs); err != nil {
		return t, err
	}
	t.About = fmt.Sprintf("A language model on two instances, of which one computes prompts and the other the tokens that follow (`distserve`), or on one that does both, prompts first (`vllm`): the world of DistServe's released simulator (OSDI'24; `experiments/compat`), with its fits of step times that were measured on A100-80GB. "+
		"Nothing bounds the KV memory there, moving it from one instance to the other takes no time, and an answer has one token more than the workload says. "+
		"The workloads are 300 requests of Azure's conversation trace (azconv300) and 300 of ShareGPT (sharegpt300), the same ones at every rate. TTFT is the time to the first token, TPOT the mean time of each one after it; the targets are 200 ms and 100 ms for OPT-13B, 400 ms and 100 ms for OPT-66B. "+
		"A layout is the tensor and pipeline parallelism of the instance for prompts, then of the one for tokens: `distserve 2,1,1,2` is one on two GPUs that share each layer and one on two that share the layers out.\n\n"+
		"All figures that the published program printed for %d runs are equal in every digit (per cent to four decimals, milliseconds to six; here three are shown). What is expected of the searches is from a second program that agrees with the published one on those runs, bit for bit; 23 of its 202 rates were computed by the published one as well, and are the same. "+
		"Not reproduced: the 1.56 requests/s and GPU on `distserve 2,1,1,1` of the published README. Its workload is not published; on these two that layout sustains 0.9375.",
		len(runs))
	return t, nil
}

// distReplay fills the table.
type distReplay struct {
	*Table
	world *compat.DistServe
	loads map[string][]compat.DistRequest
}

// exact is a number with all of its digits.
func exact(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// searches searches the best layouts, and the best number of GPUs for one instance of ours.
func (x *distReplay) searches(ctx context.Context, list []compat.DistExpectedSearch) error {
	s := Section{Title: "Searches",
		About: "The highest rate of requests per second and GPU, to the 0.15625 of a bisection, at which the 90th percentiles of TTFT and of TPOT are each below their targets: weaker than 90 % of requests within both. Slow links: what the two instances exchange must stay within a node, so that each node holds some stages of both. " +
			"Layouts without measurements are skipped. \"Ours\" is one instance of our engine on the number of GPUs that is best for it, by tensor parallelism, beside `vllm`'s best layout; the next section says what it is, and why its rates are higher. 4.84375 is the highest rate that the search tries; 300 requests are over within half a minute there, before queues have grown.",
		Head: []string{"GPUs", "model", "workload", "layouts", "of them measured", "the best", "its rate",
			"ours, " + distWhole, "ours, " + distChunks}}
	for i := range list {
		q := &list[i]
		if err := ctx.Err(); err != nil {
			return err
		}
		got, err := x.world.Search(q.Cluster, q.Model, q.Together, x.loads[q.Workload], q.Target())
		if err != nil {
			return err
		}
		if len(got) != len(q.Published) {
			return fmt.Errorf("%v: %d layouts, want %d", q, len(got), len(q.Published))
		}
		measured := 0
		for k := range got {
			if got[k].Measured {
				measured++
				x.Rows = append(x.Rows, Row{fmt.Sprintf("%v: %v", q, got[k]), "requests/s and GPU", q.Published[k].Rate,
					got[k].Rate, ""})
			}
		}
		at := compat.DistBest(got)
		x.Rows = append(x.Rows, Row{q.String(), "number of the chosen layout", float64(q.Best), float64(at), ""})
		best := &got[at]
		cells := []string{q.Cluster.String(), q.Model, q.Workload, fmt.Sprint(len(got)), fmt.Sprint(measured),
			best.String(), exact(best.Rate)}
		for _, name := range []string{distWhole, distChunks} {
			text := ""
			if q.Together {
				rate, tp, err := x.searchOurs(q, name)
				if err != nil {
					return err
				}
				x.Rows = append(x.Rows, Row{fmt.Sprintf("%v (ours: %s)", q, name), "requests/s and GPU", best.Rate,
					rate, distReasons[name]})
				text = fmt.Sprintf("%s on %d", exact(rate), tp)
			}
			cells = append(cells, text)
		}
		s.Cells = append(s.Cells, cells)
	}
	x.Sections = append(x.Sections, s)
	return nil
}

// searchOurs finds the number of GPUs on which one instance of ours sustains the highest rate for each.
func (x *distReplay) searchOurs(q *compat.DistExpectedSearch, name string) (best float64, tp int, err error) {
	for n := 1; n <= q.Cluster.Nodes*q.Cluster.PerNode; n++ {
		o, ok := distInstance(name, q.Model, n)
		if !ok {
			continue
		}
		rate, err := q.Target().Sustained(n, func(rate float64) ([]compat.DistTimes, error) {
			return o.Run(x.loads[q.Workload], compat.DistArrivals(x.loads[q.Workload], rate))
		})
		if err != nil {
			return 0, 0, err
		}
		if rate > best {
			best, tp = rate, n
		}
	}
	return best, tp, nil
}

func distInstance(name, model string, tp int) (compat.DistOurs, bool) {
	if name == distChunks {
		return compat.NewDistOurs(model, tp, distChunk)
	}
	return compat.NewDistOurs(model, tp, 0)
}

// ours plays the runs of one instance of a single stage on instances of ours.
func (x *distReplay) ours(ctx context.Context, runs []compat.DistExpectedRun) error {
	s := Section{Title: "One instance of our engine",
		Head: []string{"workload", "model", "GPUs", "requests/s", "published, %", distSame + ", %", distWhole + ", %",
			"P90 TTFT", "P90 TPOT", distChunks + ", %", "P90 TTFT", "P90 TPOT"}}
	equal, apart := 0, 0.0
	for i := range runs {
		r := &runs[i]
		if err := ctx.Err(); err != nil {
			return err
		}
		m, _ := x.world.Machine(r.Model, r.Layout)
		same, ok := m.Ours()
		if !ok {
			continue
		}
		o, tp := same, r.Layout.GPUs()
		cells := []string{r.Workload, r.Model, fmt.Sprint(tp), num(r.Rate), num(r.Published.Both)}
		for _, name := range []string{distSame, distWhole, distChunks} {
			if name != distSame {
				o, ok = distInstance(name, r.Model, tp)
				if !ok {
					return fmt.Errorf("%s: our engine has no instance on %d GPUs", r.Model, tp)
				}
			}
			times, err := o.Run(x.loads[r.Workload], compat.DistArrivals(x.loads[r.Workload], r.Rate))
			if err != nil {
				return fmt.Errorf("%s: %s: %w", distCase(r), name, err)
			}
			f := r.Target.Figures(times).Printed()
			if name == distWhole {
				same.Timer = o.Timer
				rules, err := same.Run(x.loads[r.Workload], compat.DistArrivals(x.loads[r.Workload], r.Rate))
				if err != nil {
					return err
				}
				apart = max(apart, math.Abs(r.Target.Figures(rules).Both-f.Both))
			}
			row := Row{distCase(r) + " (ours: " + name + ")", "both met, %", r.Published.Both, f.Both, ""}
			if row.Off() != 0 {
				row.Reason = distReasons[name]
			}
			x.Rows, cells = append(x.Rows, row), append(cells, num(f.Both))
			switch {
			case name != distSame:
				cells = append(cells, num(f.P90TTFT), num(f.P90TPOT))
			case row.Reason == "":
				equal++
			}
		}
		s.Cells = append(s.Cells, cells)
	}
	s.About = fmt.Sprintf("Requests that meet both targets, in per cent, and 90th percentiles in milliseconds, where the published program has `vllm` on one GPU or on several by tensor parallelism.\n\n"+
		"- %s: our engine (`serving/llm`) with the step times and the rules of the published program. %d of %d are equal. In the others, requests hold more than 50,000 tokens of context together, which the published program does not decode in one step: the rest takes turns. Without that bound it gives each request the times of our engine.\n"+
		"- %s: our engine as it is. Steps take what the roofline of an A100 allows (60 %% of its operations, 80 %% of its bandwidth) where the published ones are fits of two programs with their overheads; the next section has both. That is why more requests meet their targets here: the roofline with the published rules comes within %.1f points of each figure. It is an estimate where the fits are measurements. KV memory is bounded by what 0.9 of the GPUs' memory leaves beside the weights, and an answer has as many tokens as the workload says.\n"+
		"- %s: the same, but each step has room for %d tokens: first those of requests that have begun to answer, then prompts, in chunks. Tokens come more steadily (a lower P90 TPOT), first tokens later (a higher P90 TTFT). These targets are tight for first tokens and wide for the others, so whole prompts meet them as often or more often.\n\n"+
		"Our engine has neither pipelines nor pairs of instances; those layouts have no row.",
		distSame, equal, len(s.Cells), distWhole, math.Ceil(10*apart)/10, distChunks, distChunk)
	x.Sections = append(x.Sections, s)
	return nil
}

// steps compares how long steps take.
func (x *distReplay) steps() error {
	s := Section{Title: "How long a step takes",
		About: fmt.Sprintf("Milliseconds on GPUs by tensor parallelism: a prompt of %d tokens; the next tokens of %d requests with a context of %d each.",
			distPrompt, distDecodes, distContext),
		Head: []string{"model", "GPUs", "prompt: distserve's fit", "vllm's fit", "our roofline",
			"decode: distserve's fit", "vllm's fit", "our roofline"}}
	var prompt, decode llm.Step
	prompt.Add(distPrompt, 0)
	for range distDecodes {
		decode.Add(1, distContext)
	}
	for _, c := range []struct {
		model string
		tp    int
	}{{"opt-13b", 1}, {"opt-13b", 2}, {"opt-13b", 4}, {"opt-66b", 4}, {"opt-66b", 8}} {
		p := compat.DistParallel{TP: c.tp, PP: 1}
		two, ok1 := x.world.Machine(c.model, compat.DistLayout{Prefill: p, Decode: p})
		one, ok2 := x.world.Machine(c.model, compat.DistLayout{Together: true, Prefill: p})
		own, ok3 := compat.NewDistOurs(c.model, c.tp, 0)
		if !ok1 || !ok2 || !ok3 {
			return fmt.Errorf("%s on %d GPUs: no step times", c.model, c.tp)
		}
		cells := []string{c.model, fmt.Sprint(c.tp)}
		for _, step := range []*llm.Step{&prompt, &decode} {
			for _, takes := range []llm.Timer{two.Timer(), one.Timer(), own.Timer} {
				cells = append(cells, fmt.Sprintf("%.1f", takes(step).Seconds()*1000))
			}
		}
		s.Cells = append(s.Cells, cells)
	}
	x.Sections = append(x.Sections, s)
	return nil
}

// runs plays the published runs.
func (x *distReplay) runs(ctx context.Context, runs []compat.DistExpectedRun) error {
	s := Section{Title: "The published runs", About: "Requests that meet the targets, in per cent; times in milliseconds.",
		Head: []string{"workload", "model", "layout", "requests/s", "TTFT met", "TPOT met", "both met", "P90 TTFT",
			"P90 TPOT", "mean TTFT", "mean TPOT", "end, s"}}
	for i := range runs {
		r := &runs[i]
		if err := ctx.Err(); err != nil {
			return err
		}
		got, err := r.Run(x.world, x.loads[r.Workload])
		if err != nil {
			return err
		}
		cells := []string{r.Workload, r.Model, r.Layout.String(), num(r.Rate)}
		for _, f := range []struct {
			name            string
			published, ours float64
		}{{"TTFT met, %", r.Published.TTFT, got.TTFT}, {"TPOT met, %", r.Published.TPOT, got.TPOT},
			{"both met, %", r.Published.Both, got.Both}, {"P90 TTFT, ms", r.Published.P90TTFT, got.P90TTFT},
			{"P90 TPOT, ms", r.Published.P90TPOT, got.P90TPOT}, {"mean TTFT, ms", r.Published.MeanTTFT, got.MeanTTFT},
			{"mean TPOT, ms", r.Published.MeanTPOT, got.MeanTPOT}, {"end, s", r.Published.End / 1000, got.End / 1000}} {
			x.Rows = append(x.Rows, Row{distCase(r), f.name, f.published, f.ours, ""})
			cells = append(cells, num(f.ours))
		}
		s.Cells = append(s.Cells, cells)
	}
	x.Sections = append(x.Sections, s)
	return nil
}

func distCase(r *compat.DistExpectedRun) string {
	return strings.Join([]string{r.Workload, r.Model, r.Layout.String(), num(r.Rate) + "/s"}, ", ")
}
