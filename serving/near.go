package serving

import (
	"cmp"
	"slices"

	"github.com/muster-gpu/muster/cluster"
)

// MakeNear plans services as Make does, on as few GPUs, but so that much of what is deployed stays in place,
// instead of giving capacity to the services with the least to spare. GPUs keep their present numbers; the
// plan's instances are on as many of these, and on further ones, as it needs.
func MakeNear(m *cluster.GPUModel, services []Service, headroom float64, old *Deployment) (*Plan, error) {
	p, least, err := prepare(m, services, headroom)
	if err != nil {
		return nil, err
	}
	have, _ := old.instances(m, serviceNames(services))
	p.near(have, headroom)
	plan := p.lay()
	plan.Least = least
	n := &nearLayout{p: p, have: have}
	if !n.settle(plan) {
		n.number(plan)
	}
	slices.SortFunc(plan.Instances, byPlace)
	return plan, nil
}

func byPlace(a, b Instance) int {
	return cmp.Or(cmp.Compare(a.GPU, b.GPU), cmp.Compare(a.Start, b.Start))
}

func serviceNames(services []Service) (names []string) {
	for k := range services {
		names = append(names, services[k].Name)
	}
	return names
}

// same reports whether a running instance equals what the planner would use for its size.
func (p *planner) same(in *Instance) (size int, ok bool) {
	if in.Service >= len(p.services) {
		return 0, false // the service no longer exists
	}
	size = p.sizeOf(in.Profile)
	return size, size >= 0 && p.sizes[size].best[in.Service] == in.Point
}

// near changes choices, of one service or of two, as long as fewer running instances have to be changed and no
// more GPUs are needed.
func (p *planner) near(have []Instance, headroom float64) {
	old := make([]counts, len(p.services))
	for i := range have {
		if size, ok := p.same(&have[i]); ok {
			old[have[i].Service][size]++
		}
	}
	off, close := make([][]int, len(p.services)), make([][]int, len(p.services)) // by service and choice
	for k := range p.services {
		p.offer(k, &old[k], headroom)
		for c := range p.choices[k] {
			off[k], close[k] = append(off[k], changes(&old[k], &p.choices[k][c].counts)), append(close[k], c)
		}
		slices.SortStableFunc(close[k], func(a, b int) int { return cmp.Compare(off[k][a], off[k][b]) })
	}
	now := p.gpus(p.total())
	for p.nearer(now, off, close) || p.nearerByTwo(now, off, close) {
	}
}

// changes is the effort of getting from one set of instances to another: starting one counts twice as much as
// stopping one.
func changes(from, to *counts) (n int) {
	for i := range from {
		n += max(2*(to[i]-from[i]), from[i]-to[i])
	}
	return n
}

// offer adds instances to the choices of a service, if they carry it.
func (p *planner) offer(k int, instances *counts, headroom float64) {
	c := choice{counts: *instances}
	for i := range p.sizes {
		n := instances[i]
		profile := p.sizes[i].profile
		c.compute, c.memory = c.compute+n*profile.Compute, c.memory+n*profile.Slots
		c.capacity += float64(n) * p.sizes[i].best[k].Capacity()
	}
	if c.capacity >= p.services[k].Rate*headroom {
		at := p.at[k]
		p.choose(k, &c)
		p.at[k] = at
	}
}

func (p *planner) nearer(now int, off, close [][]int) bool {
	sum := p.total()
	for k := range p.services {
		rest := sum.add(&p.choices[k][p.at[k]].counts, -1)
		for _, c := range close[k] {
			if off[k][c] >= off[k][p.at[k]] {
				break
			}
			if p.gpus(rest.add(&p.choices[k][c].counts, 1)) <= now {
				p.at[k] = c
				return true
			}
		}
	}
	return false
}

func (p *planner) nearerByTwo(now int, off, close [][]int) bool {
	sum := p.total()
	for j := range p.services {
		for k := range j {
			rest := sum.add(&p.choices[j][p.at[j]].counts, -1)
			rest = rest.add(&p.choices[k][p.at[k]].counts, -1)
			most := off[j][p.at[j]] + off[k][p.at[k]]
			for _, a := range close[j][:min(mostPairs, len(close[j]))] {
				with := rest.add(&p.choices[j][a].counts, 1)
				for _, b := range close[k][:min(mostPairs, len(close[k]))] {
					if off[j][a]+off[k][b] >= most {
						break
					}
					if p.gpus(with.add(&p.choices[k][b].counts, 1)) <= now {
						p.at[j], p.at[k] = a, b
						return true
					}
				}
			}
		}
	}
	return false
}
