package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/serving"
)

// mostSpare bounds --spare.
const mostSpare = 1000

// planFrom plans services: from nothing, or near what is deployed, with the way there.
func (o *sloOptions) planFrom(m *cluster.GPUModel, services []serving.Service) (*serving.Planned, error) {
	var old *serving.Deployment
	if o.from != "" {
		data, err := os.ReadFile(o.from)
		if err != nil {
			return nil, err
		}
		if old, err = serving.ReadDeployment(o.from, data, m); err != nil {
			return nil, err
		}
	}
	return serving.PlanFor(m, services, o.headroom, old, o.spare)
}

// headroomNote says for how many times their rates services are planned, where that was chosen for them.
func headroomNote(p *serving.Planned, services []serving.Service) string {
	var more []string
	for k, t := range p.Times {
		if t > 1 {
			more = append(more, fmt.Sprintf("%s %.2f", services[k].Name, t))
		}
	}
	switch {
	case p.Times == nil:
		return ""
	case !p.Kept:
		return "Not kept: with Poisson arrivals more than 1 % of some service's requests are late, however much it is planned for (" + strings.Join(more, ", ") + " times its rate)."
	case len(more) == 0:
		return "With Poisson arrivals at most 1 % of each service's requests are late, without headroom."
	}
	return "So that with Poisson arrivals at most 1 % of each service's requests are late, these are planned for more than their rates: " + strings.Join(more, ", ") + " times (--headroom 1: for the rates alone)."
}

// writeChange says the steps from what is deployed to the plan, and what services keep
// meanwhile.
func writeChange(w io.Writer, c *serving.Change) {
	fmt.Fprintf(w, "From what is deployed: %d steps, one after the other; spare GPUs: %d; instances that stay as they are: %d\n", len(c.Steps), c.Spare, c.Keeps)
	if len(c.Steps) > 0 {
		fmt.Fprintln(w, "STEP\tDO\tGPU\tINSTANCE\tSERVICE\tFROM")
	}
	for i := range c.Steps {
		st := &c.Steps[i]
		switch st.Do {
		case serving.Repartition:
			text := strings.TrimPrefix(cluster.GeometryText([][]cluster.Instance{st.Geometry}), "0:")
			if len(st.Geometry) == 0 {
				text = "-"
			}
			fmt.Fprintf(w, "%d\t%v\t%d\t%s\t\t\n", i+1, st.Do, st.GPU, text)
		case serving.Migrate:
			fmt.Fprintf(w, "%d\t%v\t%d\t%s@%d\t%s\tGPU %d %s@%d\n", i+1, st.Do, st.GPU, st.Profile, st.Start,
				c.Names[st.Service], st.From.GPU, st.From.Profile, st.From.Start)
		default:
			fmt.Fprintf(w, "%d\t%v\t%d\t%s@%d\t%s\t\n", i+1, st.Do, st.GPU, st.Profile, st.Start, c.Names[st.Service])
		}
	}
	fmt.Fprintln(w)
	fmt.Fprintln(w, "SERVICE\tTO KEEP\tLEAST CAPACITY ON THE WAY\tSHORT")
	for k, name := range c.Names {
		short := "no"
		if s := c.Short(k); s > 0 {
			short = fmt.Sprintf("by %.4g requests/s", s)
		}
		fmt.Fprintf(w, "%s\t%g\t%.0f\t%s\n", name, c.Floor[k], c.Least[k], short)
	}
	fmt.Fprintln(w)
}
