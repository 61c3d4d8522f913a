package serving

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// SheetOptions say what stands on a sheet beside the plan.
type SheetOptions struct {
	Start        string        // what starts a service; {service}, {batch} and {cycle} (ms) are filled in
	Measured     string        // where the measurements lie
	Play         time.Duration // for which requests are played; 0: they are not
	Seed         uint64        // of their arrivals
	Ignore       float64       // requests per second below which a remainder was left out
	Interference bool          // what services on one GPU do to each other is counted
}

// Sheet is a plan on parts of GPUs as it is printed, with how its jobs are submitted and how late requests are.
type Sheet struct {
	Model    string        `json:"model"`
	GPUs     int           `json:"gpus"`
	Least    int           `json:"at_least"` // GPUs that no plan with these sizes does without
	Rounds   int           `json:"rounds"`   // how often it was planned because of interference
	Notes    []string      `json:"notes"`
	Gpulets  []SheetPart   `json:"gpulets"`
	Services []SheetServed `json:"services"`
}

// SheetPart is a part of a GPU, and the command line of its job.
type SheetPart struct {
	GPU     int         `json:"gpu"`
	Percent int         `json:"percent"`
	CycleMS float64     `json:"cycle_ms"`
	DutyMS  float64     `json:"longest_cycle_ms"`
	Busy    float64     `json:"busy"`
	Slower  float64     `json:"slower"`
	Turns   []SheetTurn `json:"turns"`
	Submit  []string    `json:"submit"`
}

// SheetTurn is a service in the cycle of a part.
type SheetTurn struct {
	Service  string  `json:"service"`
	Batch    int     `json:"batch"`
	TakesMS  float64 `json:"takes_ms"`
	Rate     float64 `json:"rate"`
	Capacity float64 `json:"capacity"`
}

// SheetServed is what a service gets.
type SheetServed struct {
	Service   string       `json:"service"`
	Rate      float64      `json:"rate"`
	Capacity  float64      `json:"capacity"`
	Ignored   float64      `json:"ignored"`
	LatencyMS float64      `json:"latency_ms"`
	Even      *SheetPlayed `json:"even,omitempty"`
	Poisson   *SheetPlayed `json:"poisson,omitempty"`
}

// SheetPlayed is what became of the requests that were played.
type SheetPlayed struct {
	Requests int     `json:"requests"`
	Late     int     `json:"late"`
	WorstMS  float64 `json:"worst_ms"`
	P99MS    float64 `json:"p99_ms"`
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// SheetOf makes the sheet of a plan, and plays requests against it.
func SheetOf(m *cluster.GPUModel, plan *SharePlan, services []Service, o *SheetOptions) *Sheet {
	s := &Sheet{Model: m.Name, GPUs: plan.GPUs, Least: plan.Least, Rounds: plan.Rounds, Notes: []string{}}
	for i := range plan.Gpulets {
		g := &plan.Gpulets[i]
		part := SheetPart{GPU: g.GPU, Percent: g.Percent, Busy: g.Busy(), Slower: g.Slower}
		part.CycleMS, part.DutyMS = millis(g.Cycle()), millis(g.Duty)
		for t := range g.Turns {
			turn := &g.Turns[t]
			name := services[turn.Service].Name
			takes := millis(g.Takes(turn))
			part.Turns = append(part.Turns, SheetTurn{name, turn.Batch, takes, turn.Rate, g.Capacity(turn)})
		}
		part.Submit = part.submit(m.Name, o.Start)
		s.Gpulets = append(s.Gpulets, part)
	}
	var even, random []Served
	if o.Play > 0 {
		even = PlayShares(plan, services, Even, o.Seed, o.Play)
		random = PlayShares(plan, services, Poisson, o.Seed, o.Play)
	}
	for k := range services {
		of := &services[k]
		v := SheetServed{Service: of.Name, Rate: of.Rate, Capacity: plan.Capacity[k], Ignored: plan.Ignored[k]}
		v.LatencyMS = millis(of.Latency)
		if even != nil {
			v.Even, v.Poisson = played(&even[k]), played(&random[k])
		}
		s.Services = append(s.Services, v)
	}
	s.note(services, o)
	return s
}

func played(s *Served) *SheetPlayed {
	return &SheetPlayed{s.Requests, s.Late, millis(s.Worst), millis(s.P99)}
}

// submit is the command line of a gpulet's job. Where one of several services ends, the job
// does, as one that failed: that service's requests would get no answer.
func (p *SheetPart) submit(model, start string) []string {
	var each, names []string
	for i := range p.Turns {
		t := &p.Turns[i]
		names = append(names, t.Service)
		fill := strings.NewReplacer("{service}", InShell([]string{t.Service}), "{batch}", strconv.Itoa(t.Batch),
			"{cycle}", strconv.FormatFloat(p.DutyMS, 'f', 3, 64))
		each = append(each, fill.Replace(start))
	}
	words := []string{"muster", "submit", "--kind", "service", "--name", strings.Join(names, "+")}
	words = append(words, "--gpu-type", model, "--gpus")
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

// InShell is a command line as a shell takes it.
func InShell(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		if quoted[i] = w; w == "" || strings.ContainsAny(w, special+" ") {
			quoted[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(quoted, " ")
}

// note says what is estimated, and what was left out.
func (s *Sheet) note(services []Service, o *SheetOptions) {
	var estimated []string
	for k := range services {
		for _, p := range services[k].Points {
			if p.Percent == 0 {
				estimated = append(estimated, services[k].Name)
				break
			}
		}
		if v := s.Services[k].Ignored; v > 0 {
			s.say("%s: %.4g of its %g requests/s were left out (--ignore %g)",
				services[k].Name, v, services[k].Rate, o.Ignore)
		}
	}
	if estimated != nil {
		s.say("Estimated from MIG instances, not measured under MPS: %s.", strings.Join(estimated, ", "))
	}
	s.say("The measurements in %s are taken as those of %s: they do not say on which model they were made.",
		o.Measured, s.Model)
	if !o.Interference {
		s.say("What services on one GPU do to each other is not counted (--interference).")
	}
}

func (s *Sheet) say(format string, args ...any) {
	s.Notes = append(s.Notes, fmt.Sprintf(format, args...))
}

// Requests counts those of all services, per second.
func Requests(services []Service) (sum float64) {
	for i := range services {
		sum += services[i].Rate
	}
	return sum
}
