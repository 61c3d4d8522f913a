package serving

import (
	"cmp"
	"slices"

	"github.com/muster-gpu/muster/cluster"
)

// Planned is a plan for services.
type Planned struct {
	*Plan
	Times  []float64 // factor on its rate for which each service is planned
	Kept   bool      // promises hold for Poisson arrivals as well, as far as that was wanted
	Change *Change   // from what is deployed; nil: nothing is
}

// PlanFor plans services for so many times their rates; 0: as many for each as keeps its promise for Poisson arrivals
// as well. With old the plan is near what is deployed, and says the way from there with at most so many spare GPUs;
// -1: as many as it takes.
func PlanFor(m *cluster.GPUModel, services []Service, headroom float64, old *Deployment, spare int) (*Planned, error) {
	with := func(list []Service, headroom float64) (*Plan, error) {
		if old == nil {
			return Make(m, list, headroom)
		}
		return MakeNear(m, list, headroom, old)
	}
	p := &Planned{Kept: true}
	var err error
	if headroom != 0 {
		p.Plan, err = with(services, headroom)
	} else {
		p.Plan, p.Times, p.Kept, err = Kept(services, func(list []Service) (*Plan, error) { return with(list, 1) })
	}
	if err != nil {
		return nil, err
	}
	if old != nil {
		p.Change = old.To(m, p.Plan, services, spare)
		p.Plan = p.Change.Plan
	}
	return p, nil
}

// Geometry is how the GPUs of a plan are partitioned.
func (p *Plan) Geometry() (list [][]cluster.Instance) {
	for i := range p.Instances {
		in := &p.Instances[i]
		for len(list) <= in.GPU { // one between others may be left out
			list = append(list, nil)
		}
		list[in.GPU] = append(list[in.GPU], in.Instance)
	}
	for _, g := range list {
		slices.SortFunc(g, func(a, b cluster.Instance) int { return cmp.Compare(a.Start, b.Start) })
	}
	return list
}
