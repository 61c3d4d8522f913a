package scale

import (
	"fmt"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/knobs"
	"github.com/muster-gpu/muster/serving/inss"
)

var inssKind = kind{knobs.Kind{Name: "inss",
	About: "InSS: all services together on GPUs, each with the least share that keeps its goal beside its neighbours",
	Knobs: planKnobs("10s", "0.4")},
	func(k *knobs.Set) (Policy, error) { return newPlanner("inss", "", k, &inssSizer{}) }}

var inssRLKind = kind{knobs.Kind{Name: "inss-rl",
	About: "InSS with learnt agents beside the solver: of both plans the better one",
	Knobs: append(planKnobs("10s", "0.4"), knobs.Knob{Name: "weights", Default: "",
		About: "file of weights (muster learn inss-rl), in the simulator only; none: those of services.weights in the " +
			"daemon's configuration, or of --service-weights, else those that come with Muster"})},
	newInssRL}

// ReadFile reads the files of weights that policies name. Only a program with no more rights than the user who names
// them may set it.
var ReadFile func(name string) ([]byte, error)

// Weights are those of inss-rl where its text names no file: what is in the file that a program's configuration names.
// nil: those that come with Muster. They are set before any policy is made.
var Weights []byte

// CheckWeights reports as an error that a text is not weights of inss-rl.
func CheckWeights(text []byte) error {
	_, err := inss.ReadAgents(text)
	return err
}

func newInssRL(k *knobs.Set) (Policy, error) {
	text := Weights
	if name := k.Text("weights"); name != "" {
		if ReadFile == nil {
			return nil, fmt.Errorf("weights=%s: of a service only muster sim reads a file; services.weights in the daemon's configuration names one for all",
				name)
		}
		var err error
		if text, err = ReadFile(name); err != nil {
			return nil, fmt.Errorf("weights: %w", err)
		}
	}
	agents, err := inss.ReadAgents(text)
	if err != nil {
		return nil, fmt.Errorf("weights: %w", err)
	}
	return newPlanner("inss-rl", "", k, &inssSizer{agents: agents})
}

// inssSizer follows InSS (Han et al., TPDS 2024) with its deterministic solver, and plans again from the plan that
// there is. A service that no GPU carries is divided into equal replicas. What neighbours do is what they use of the
// memory's bandwidth, and how sensitive a service is to that. Which replicas meet on a GPU the scheduler decides.
// With agents, they plan, too, and theirs is taken where it is better than the solver's.
type inssSizer struct {
	plan   *inss.Plan
	agents *inss.Agents
	chosen string // which of both plans is the last; "": there are no agents
}

// says says which plan was taken, and what the other one came to.
func (x *inssSizer) says() string { return x.chosen }

// chosenOf is the better of two plans, of equal ones the solver's, and why in words.
func chosenOf(solver, learnt *inss.Plan) (*inss.Plan, string) {
	text := func(p *inss.Plan) string {
		t := fmt.Sprintf("%g GPUs' shares on %d", float64(p.Percent())/100, p.Used())
		if n := len(p.Rejected); n > 0 {
			t += fmt.Sprintf(", replicas without room: %d", n)
		}
		return t
	}
	switch plan := inss.Better(solver, learnt); {
	case plan == learnt:
		return plan, fmt.Sprintf("the learnt plan is taken: %s; the solver's has %s", text(learnt), text(solver))
	case inss.Better(learnt, solver) == learnt:
		return plan, fmt.Sprintf("the solver's plan is taken, as good as the learnt one: %s", text(solver))
	default:
		return plan, fmt.Sprintf("the solver's plan is taken instead of the learnt one, which is worse: %s, not %s",
			text(solver), text(learnt))
	}
}

func (x *inssSizer) sizes(list []demand, m *cluster.GPUModel) (shares [][]cluster.Milli, gpus int, err error) {
	g := &inss.GPU{Memory: int64(m.Memory)}
	var services []inss.Service
	of := map[string]int{}
	shares = make([][]cluster.Milli, len(list))
	for i := range list {
		d := &list[i]
		s := inss.Service{Name: d.service.Name, Rate: d.rate, Goal: d.service.Goal.Latency, Model: inss.Model{
			Measured: d.profile, Sensitivity: d.variant.Use.Slowed, Cache: inss.Use{Whole: d.variant.Use.Memory},
			Memory: int64(d.variant.Request.Memory)}}
		n, err := inss.Replicas(g, s, inss.Options{})
		if err != nil {
			return nil, 0, err
		}
		s.Rate = d.rate / float64(max(1, n))
		for k := range n {
			s.Name = fmt.Sprintf("%s %d", d.service.Name, k)
			services, of[s.Name] = append(services, s), i
		}
		if n == 0 {
			shares[i] = d.whole(d.rate)
			gpus += len(shares[i])
		}
	}
	was := x.plan
	if was == nil {
		was = &inss.Plan{}
	}
	plan, _, err := inss.Replan(g, was, services, inss.Options{})
	if err != nil {
		return nil, 0, err
	}
	if x.agents != nil {
		learnt, _, err := inss.Replan(g, was, services, inss.Options{Agents: x.agents})
		if err != nil {
			return nil, 0, err
		}
		plan, x.chosen = chosenOf(plan, learnt)
	}
	x.plan = plan
	for _, there := range plan.GPUs {
		for i := range there {
			k := of[there[i].Service]
			shares[k] = append(shares[k], cluster.Milli(there[i].Percent)*cluster.Whole/100)
		}
	}
	for _, name := range plan.Rejected {
		d := &list[of[name]]
		shares[of[name]] = append(shares[of[name]], d.whole(d.rate)...)
	}
	return shares, gpus + plan.Used(), nil
}
