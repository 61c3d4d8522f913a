package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/perf"
	"github.com/muster-gpu/muster/serving"
)

func newMPS() *cobra.Command {
	c := &cobra.Command{Use: "mps", Short: "How GPUs can be shared (MPS)"}
	c.AddCommand(newMPSPlan())
	return c
}

// mpsOptions are those of muster mps plan.
type mpsOptions struct {
	services       sloOptions
	sizes, weights string
	share          serving.ShareOptions
	json, commands bool
	start          string
}

func newMPSPlan() *cobra.Command {
	var model string
	var o mpsOptions
	c := &cobra.Command{
		Use:   "plan",
		Short: "On how few GPUs services fit in parts under MPS, some of which take turns",
		Long: `Which parts of GPUs under MPS, and which batches, carry inference services at the
rates and latencies that FILE says (CSV: service,rate,latency_ms), on how few GPUs; and
how late requests were when they were played against that. A GPU is whole or in two
parts (gpulets); in each, one service computes or several take turns in a cycle.

How fast services are is measured: DIR/SERVICE.csv or DIR/prof_data_SERVICE.csv has, after
a head, per cent of the GPU (the head of that column is percent; else compute slices of
a MIG instance), batch size, processes, requests per second of each process, seconds per
batch; and, if it is known, use_compute and use_memory, what the service uses of a whole
GPU (0 to 1). From MIG instances it is estimated what a part of a GPU does.

With --interference, services slow each other down on a GPU: the weights of their use of
its computing (own, other's), of its memory (own, other's), and a constant, as gpulet's
linear model has them. Who would be late is planned anew.

Each gpulet is a job in a share of a GPU; the plan says how it is submitted. --commands
prints these command lines alone: muster mps plan ... --commands | sh takes the plan live.`,
		Example: `  muster mps plan --slo services.csv --measured profiles/
  muster mps plan --slo services.csv --measured profiles/ --headroom 1.2 --json
  muster mps plan --slo services.csv --measured profiles/ --interference 0.1,0.2,0.3,0.4,1
  muster mps plan --slo services.csv --measured profiles/ --start './{service} --batch {batch}' --commands | sh`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			m, ok := cluster.FindModel(model)
			if !ok {
				var have []string
				for _, m := range cluster.Models() {
					have = append(have, m.Name)
				}
				return badUsage("--model: %v", cluster.Unknown("GPU model", model, have))
			}
			return planParts(c, &m, &o)
		},
	}
	f := c.Flags()
	f.StringVar(&model, "model", "A100-80GB", "GPU model")
	f.StringVar(&o.services.file, "slo", "", "services to plan for: CSV with the columns service, rate, latency_ms")
	f.StringVar(&o.services.measured, "measured", "", "directory of the services' measurements")
	f.StringVar(&o.sizes, "sizes", "20,40,50,60,80,100", "parts into which a GPU may be divided, in per cent: each with what it leaves")
	f.Float64Var(&o.share.Headroom, "headroom", 1, "plan for so many times the rates")
	f.Float64Var(&o.share.Ignore, "ignore", 0, "leave out what is left of a service's rate beside its saturated gpulets, if it is below so many requests per second (15 in gpulet's code)")
	f.StringVar(&o.weights, "interference", "", "five weights of what services do to each other: c1,c2,c3,c4,c5 (default: nothing)")
	f.Float64Var(&o.share.Enough, "enough", 1, "with --interference: a service has to be able to take this part of its rate (0.85 in gpulet's code); below 1 it may be late")
	f.DurationVar(&o.services.play, "play", time.Minute, "play requests for so long; 0: do not")
	f.Uint64Var(&o.services.seed, "seed", 1, "of the requests' arrivals")
	f.StringVar(&o.start, "start", "./{service}", "what starts a service; {batch} is the size of its batches, {cycle} the longest cycle in ms")
	f.BoolVar(&o.json, "json", false, "print JSON")
	f.BoolVar(&o.commands, "commands", false, "print the gpulets' command lines only, for a shell")
	return c
}

// check says what is wrong with the options, and reads those that are lists.
func (o *mpsOptions) check() error {
	switch {
	case o.services.file == "" || o.services.measured == "":
		return badUsage("--slo and --measured are needed: the services, and the directory of their measurements")
	case !(o.share.Headroom >= 1 && o.share.Headroom <= 100):
		return badUsage("--headroom %g: 1 to 100 are possible", o.share.Headroom)
	case !(o.share.Ignore >= 0 && o.share.Ignore <= 1e9):
		return badUsage("--ignore %g: 0 or more requests per second are possible", o.share.Ignore)
	case !(o.share.Enough > 0 && o.share.Enough <= 1):
		return badUsage("--enough %g: above 0, up to 1 is possible", o.share.Enough)
	case o.json && o.commands:
		return badUsage("--json and --commands: one of them")
	case !strings.Contains(o.start, "{service}"):
		return badUsage("--start %q: {service} is missing", o.start)
	case o.services.play < 0 || o.services.play > time.Hour:
		return badUsage("--play %v: up to an hour is possible", o.services.play)
	}
	for _, word := range strings.Split(o.sizes, ",") {
		p, err := strconv.Atoi(strings.TrimSpace(word))
		if err != nil {
			return badUsage("--sizes %s: %q is not a whole number of per cent", o.sizes, word)
		}
		o.share.Sizes = append(o.share.Sizes, p)
	}
	if o.weights == "" {
		return nil
	}
	var l perf.Linear
	words := strings.Split(o.weights, ",")
	if len(words) != len(l) {
		return badUsage("--interference %s: want %d weights, such as 0.1,0.2,0.3,0.4,1", o.weights, len(l))
	}
	for i, word := range words {
		v, err := strconv.ParseFloat(strings.TrimSpace(word), 64)
		if err != nil || !(v >= -1e3 && v <= 1e3) {
			return badUsage("--interference %s: %q is not a weight; -1000 to 1000 are possible", o.weights, word)
		}
		l[i] = v
	}
	o.share.Slower = func(own, beside serving.Use, share, besideShare float64) float64 {
		use := func(u serving.Use) perf.Use {
			return perf.Use{Compute: int64(u.Compute * perf.Million), Memory: int64(u.Memory * perf.Million)}
		}
		return l.At(use(own), use(beside), share, besideShare)
	}
	return nil
}

// planParts plans services on parts of GPUs, and plays requests against the plan.
func planParts(c *cobra.Command, m *cluster.GPUModel, o *mpsOptions) error {
	if err := o.check(); err != nil {
		return err
	}
	services, err := serving.Promises(o.services.file, o.services.measured)
	if err != nil {
		return err
	}
	if o.share.Slower != nil {
		for i := range services {
			if services[i].Uses == nil {
				return fmt.Errorf("service %s: --interference needs the columns use_compute and use_memory in its measurements", services[i].Name)
			}
		}
	}
	plan, err := serving.MakeShares(m, services, o.share)
	if err != nil {
		return err
	}
	if o.commands {
		o.services.play = 0 // nobody would see it
	}
	if sum := 2 * requests(services) * o.services.play.Seconds(); sum > mostPlayed {
		return badUsage("--play %v: %.3g requests would be played; up to %.0g are possible: a shorter --play, or 0", o.services.play, sum, mostPlayed)
	}
	s := summarise(m, plan, services, o)
	switch {
	case o.commands:
		for i := range s.Gpulets {
			fmt.Fprintln(c.OutOrStdout(), inShell(s.Gpulets[i].Submit))
		}
		return nil
	case o.json:
		e := json.NewEncoder(c.OutOrStdout())
		e.SetIndent("", "  ")
		return e.Encode(s)
	}
	return s.write(c.OutOrStdout(), o)
}

// mostPlayed bounds how many requests are played.
const mostPlayed = 2e8

// requests are those of all services, per second.
func requests(services []serving.Service) (sum float64) {
	for i := range services {
		sum += services[i].Rate
	}
	return sum
}

// sharesPlan is a plan on parts of GPUs as it is printed.
type sharesPlan struct {
	Model    string         `json:"model"`
	GPUs     int            `json:"gpus"`
	Least    int            `json:"at_least"` // GPUs that no plan with these sizes does without
	Rounds   int            `json:"rounds"`   // how often it was planned because of interference
	Notes    []string       `json:"notes"`
	Gpulets  []sharesPart   `json:"gpulets"`
	Services []sharesServed `json:"services"`
}

type sharesPart struct {
	GPU     int          `json:"gpu"`
	Percent int          `json:"percent"`
	CycleMS float64      `json:"cycle_ms"`
	DutyMS  float64      `json:"longest_cycle_ms"`
	Busy    float64      `json:"busy"`
	Slower  float64      `json:"slower"`
	Turns   []sharesTurn `json:"turns"`
	Submit  []string     `json:"submit"`
}

type sharesTurn struct {
	Service  string  `json:"service"`
	Batch    int     `json:"batch"`
	TakesMS  float64 `json:"takes_ms"`
	Rate     float64 `json:"rate"`
	Capacity float64 `json:"capacity"`
}

type sharesServed struct {
	Service   string        `json:"service"`
	Rate      float64       `json:"rate"`
	Capacity  float64       `json:"capacity"`
	Ignored   float64       `json:"ignored"`
	LatencyMS float64       `json:"latency_ms"`
	Even      *sharesPlayed `json:"even,omitempty"`
	Poisson   *sharesPlayed `json:"poisson,omitempty"`
}

type sharesPlayed struct {
	Requests int     `json:"requests"`
	Late     int     `json:"late"`
	WorstMS  float64 `json:"worst_ms"`
	P99MS    float64 `json:"p99_ms"`
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// summarise makes of a plan what is printed, and plays requests against it.
func summarise(m *cluster.GPUModel, plan *serving.SharePlan, services []serving.Service, o *mpsOptions) *sharesPlan {
	s := &sharesPlan{Model: m.Name, GPUs: plan.GPUs, Least: plan.Least, Rounds: plan.Rounds, Notes: []string{}}
	for i := range plan.Gpulets {
		g := &plan.Gpulets[i]
		part := sharesPart{GPU: g.GPU, Percent: g.Percent, CycleMS: millis(g.Cycle()), DutyMS: millis(g.Duty), Busy: g.Busy(), Slower: g.Slower}
		for t := range g.Turns {
			turn := &g.Turns[t]
			part.Turns = append(part.Turns, sharesTurn{services[turn.Service].Name, turn.Batch, millis(g.Takes(turn)), turn.Rate, g.Capacity(turn)})
		}
		part.Submit = part.submit(m.Name, o.start)
		s.Gpulets = append(s.Gpulets, part)
	}
	var even, random []serving.Served
	if o.services.play > 0 {
		even = serving.PlayShares(plan, services, serving.Even, o.services.seed, o.services.play)
		random = serving.PlayShares(plan, services, serving.Poisson, o.services.seed, o.services.play)
	}
	for k := range services {
		v := sharesServed{Service: services[k].Name, Rate: services[k].Rate, Capacity: plan.Capacity[k], Ignored: plan.Ignored[k], LatencyMS: millis(services[k].Latency)}
		if even != nil {
			v.Even, v.Poisson = played(&even[k]), played(&random[k])
		}
		s.Services = append(s.Services, v)
	}
	s.note(services, o)
	return s
}

func played(s *serving.Served) *sharesPlayed {
	return &sharesPlayed{s.Requests, s.Late, millis(s.Worst), millis(s.P99)}
}

// submit is the command line of a gpulet's job. Where one of several services ends, the job
// does, as one that failed: nobody would answer that service's requests.
func (p *sharesPart) submit(model, start string) []string {
	var each, names []string
	for i := range p.Turns {
		t := &p.Turns[i]
		names = append(names, t.Service)
		each = append(each, strings.NewReplacer("{service}", inShell([]string{t.Service}), "{batch}", strconv.Itoa(t.Batch), "{cycle}", strconv.FormatFloat(p.DutyMS, 'f', 3, 64)).Replace(start))
	}
	words := []string{"muster", "submit", "--kind", "service", "--name", strings.Join(names, "+"), "--gpu-type", model, "--gpus"}
	if p.Percent == 100 {
		words = append(words, "1")
	} else {
		words = append(words, strconv.FormatFloat(float64(p.Percent)/100, 'f', -1, 64))
	}
	words = append(words, "--")
	switch {
	case len(each) > 1:
		return append(words, "sh", "-c", "("+strings.Join(each, "; kill $$) & (")+"; kill $$) & wait")
	case strings.ContainsAny(each[0], special):
		return append(words, "sh", "-c", each[0])
	}
	return append(words, strings.FieldsFunc(each[0], func(r rune) bool { return r == ' ' })...)
}

// special is what means something to a shell, but for blanks.
const special = "&'\"$;|<>()\\*?[]!=%`~#{}\t\n"

// inShell is a command line as a shell takes it.
func inShell(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		if quoted[i] = w; w == "" || strings.ContainsAny(w, special+" ") {
			quoted[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(quoted, " ")
}

// note says what is estimated, and what was left out.
func (s *sharesPlan) note(services []serving.Service, o *mpsOptions) {
	var estimated []string
	for k := range services {
		for _, p := range services[k].Points {
			if p.Percent == 0 {
				estimated = append(estimated, services[k].Name)
				break
			}
		}
		if v := s.Services[k].Ignored; v > 0 {
			s.Notes = append(s.Notes, fmt.Sprintf("%s: %.4g of its %g requests/s were left out (--ignore %g)", services[k].Name, v, services[k].Rate, o.share.Ignore))
		}
	}
	if estimated != nil {
		s.Notes = append(s.Notes, fmt.Sprintf("Estimated from MIG instances, not measured under MPS: %s.", strings.Join(estimated, ", ")))
	}
	s.Notes = append(s.Notes, fmt.Sprintf("The measurements in %s are taken as those of %s: they do not say on which model they were made.", o.services.measured, s.Model))
	if o.share.Slower == nil {
		s.Notes = append(s.Notes, "What services on one GPU do to each other is not counted (--interference).")
	}
}

// write prints a plan as tables.
func (s *sharesPlan) write(out io.Writer, o *mpsOptions) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fewest := "no fewer would do"
	if s.GPUs > s.Least {
		fewest = fmt.Sprintf("at least %d are needed", s.Least)
	}
	fmt.Fprintf(w, "%s: %d services in %d gpulets on %d of its GPUs; %s\n\n", s.Model, len(s.Services), len(s.Gpulets), s.GPUs, fewest)
	fmt.Fprintln(w, "GPU\tPERCENT\tSERVICE\tBATCH\tTAKES\tREQUESTS/S\tCYCLE\tAT MOST\tBUSY\tSLOWER")
	ms := func(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) + "ms" }
	for i := range s.Gpulets {
		g := &s.Gpulets[i]
		for t := range g.Turns {
			turn := &g.Turns[t]
			if t > 0 {
				fmt.Fprintf(w, "\t\t%s\t%d\t%s\t%.0f\t\t\t\t\n", turn.Service, turn.Batch, ms(turn.TakesMS), turn.Capacity)
				continue
			}
			fmt.Fprintf(w, "%d\t%d\t%s\t%d\t%s\t%.0f\t%s\t%s\t%.2f\t%.2f\n", g.GPU, g.Percent, turn.Service, turn.Batch, ms(turn.TakesMS), turn.Capacity, ms(g.CycleMS), ms(g.DutyMS), g.Busy, g.Slower)
		}
	}
	fmt.Fprintln(w)
	if o.services.play == 0 {
		fmt.Fprintln(w, "SERVICE\tRATE\tCAPACITY\tPROMISED")
		for i := range s.Services {
			v := &s.Services[i]
			fmt.Fprintf(w, "%s\t%g\t%.0f\t%gms\n", v.Service, v.Rate, v.Capacity, v.LatencyMS)
		}
	} else {
		fmt.Fprintln(w, "\t\t\t\tEVEN ARRIVALS\t\tPOISSON ARRIVALS\t")
		fmt.Fprintln(w, "SERVICE\tRATE\tCAPACITY\tPROMISED\tWORST\tLATE\tWORST\tP99\tLATE")
		for i := range s.Services {
			v := &s.Services[i]
			fmt.Fprintf(w, "%s\t%g\t%.0f\t%gms\t%s\t%d of %d\t%s\t%s\t%d of %d\n", v.Service, v.Rate, v.Capacity, v.LatencyMS,
				ms(v.Even.WorstMS), v.Even.Late, v.Even.Requests, ms(v.Poisson.WorstMS), ms(v.Poisson.P99MS), v.Poisson.Late, v.Poisson.Requests)
		}
	}
	fmt.Fprintln(w)
	for _, n := range s.Notes {
		fmt.Fprintln(w, n)
	}
	fmt.Fprintln(w, "Each gpulet is a job, in this order, under MPS, which limits each process to the part of the GPU; that services of a job take turns, is theirs to keep:")
	for i := range s.Gpulets {
		fmt.Fprintf(w, "  %s\n", inShell(s.Gpulets[i].Submit))
	}
	return w.Flush()
}
