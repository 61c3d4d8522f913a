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
func planFrom(m *cluster.GPUModel, services []serving.Service, o *sloOptions) (*serving.Plan, *serving.Change, error) {
	if o.from == "" {
		plan, err := o.plan(services, func(list []serving.Service, headroom float64) (*serving.Plan, error) {
			return serving.Make(m, list, headroom)
		})
		return plan, nil, err
	}
	data, err := os.ReadFile(o.from)
	if err != nil {
		return nil, nil, err
	}
	old, err := serving.ReadDeployment(o.from, data, m)
	if err != nil {
		return nil, nil, err
	}
	plan, err := o.plan(services, func(list []serving.Service, headroom float64) (*serving.Plan, error) {
		return serving.MakeNear(m, list, headroom, old)
	})
	if err != nil {
		return nil, nil, err
	}
	change := old.To(m, plan, services, o.spare)
	return change.Plan, change, nil
}

// plan makes a plan with the headroom that was asked for, or with as much as keeps what is promised.
func (o *sloOptions) plan(services []serving.Service, with func([]serving.Service, float64) (*serving.Plan, error)) (
	*serving.Plan, error) {
	if o.headroom != 0 {
		return with(services, o.headroom)
	}
	plan, times, kept, err := serving.Kept(services, func(list []serving.Service) (*serving.Plan, error) {
		return with(list, 1)
	})
	if err != nil {
		return nil, err
	}
	var more []string
	for k, t := range times {
		if t > 1 {
			more = append(more, fmt.Sprintf("%s %.2f", services[k].Name, t))
		}
	}
	switch {
	case !kept:
		o.note = "Not kept: with Poisson arrivals more than 1 % of some service's requests are late, however much it is planned for (" + strings.Join(more, ", ") + " times its rate)."
	case len(more) == 0:
		o.note = "With Poisson arrivals at most 1 % of each service's requests are late, without headroom."
	default:
		o.note = "So that with Poisson arrivals at most 1 % of each service's requests are late, these are planned for more than their rates: " + strings.Join(more, ", ") + " times (--headroom 1: for the rates alone)."
	}
	return plan, nil
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
