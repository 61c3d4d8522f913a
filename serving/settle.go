package serving

import (
	"cmp"
	"slices"

	"github.com/muster-gpu/muster/cluster"
)

// nearLayout lays out a plan so that much of what is deployed stays in place.
type nearLayout struct {
	p     *planner
	have  []Instance
	gpus  []int      // numbers of those that the plan uses
	stays []bool     // by index of have
	wants []counts   // by service: instances that are still to be placed
	left  int        // remaining tries
	held  []held     // by GPU of the plan
	put   []Instance // new instances
}

// held is what instances use of a GPU.
type held struct {
	slots   uint8
	compute int
}

// add adds an instance, if there is room.
func (h held) add(m *cluster.GPUModel, p *cluster.SliceProfile, start int) (held, bool) {
	mask := p.Mask(start)
	return held{h.slots | mask, h.compute + p.Compute}, h.slots&mask == 0 && h.compute+p.Compute <= m.Compute
}

// mostLays is how many placements of new instances are tried.
const mostLays = 20_000

// settle keeps as many instances in place as leave room for the new ones on the plan's number of GPUs; false: no
// running instance fits the plan.
func (n *nearLayout) settle(plan *Plan) bool {
	n.take(plan.GPUs)
	for n.keep(); ; n.drop() {
		var want []missingInstance
		for k := range n.wants {
			for i, c := range n.wants[k] {
				for range c {
					want = append(want, missingInstance{k, i})
				}
			}
		}
		// Sizes are in descending order: the largest first.
		slices.SortStableFunc(want, func(a, b missingInstance) int { return cmp.Compare(a.size, b.size) })
		n.left, n.put = mostLays, n.put[:0]
		if n.place(want) {
			break
		}
		if !slices.Contains(n.stays, true) {
			return false
		}
	}
	plan.Instances = slices.Clone(n.put)
	for i, stays := range n.stays {
		if stays {
			plan.Instances = append(plan.Instances, n.have[i])
		}
	}
	return true
}

// missingInstance is an instance of a service that is to be placed.
type missingInstance struct{ service, size int }

// take chooses the GPUs of the plan: of those in use the ones on which most can stay, then others.
func (n *nearLayout) take(gpus int) {
	for i := range n.have {
		if g := n.have[i].GPU; !slices.Contains(n.gpus, g) {
			n.gpus = append(n.gpus, g)
		}
	}
	slices.Sort(n.gpus)
	for len(n.gpus) > gpus {
		n.keep()
		worst, fewest := 0, 0
		for at, g := range n.gpus {
			c := 0
			for i := range n.have {
				if n.stays[i] && n.have[i].GPU == g {
					c += n.have[i].Compute
				}
			}
			if at == 0 || c <= fewest { // of equal ones the last
				worst, fewest = at, c
			}
		}
		n.gpus = slices.Delete(n.gpus, worst, worst+1)
	}
	for g := 0; len(n.gpus) < gpus; g++ {
		if !slices.Contains(n.gpus, g) {
			n.gpus = append(n.gpus, g)
		}
	}
}

// keep marks as staying every instance that the plan wants and that is on one of its GPUs, GPUs with most wanted
// instances first.
func (n *nearLayout) keep() {
	n.stays, n.wants = make([]bool, len(n.have)), make([]counts, len(n.p.services))
	for k := range n.wants {
		n.wants[k] = n.p.choices[k][n.p.at[k]].counts
	}
	wanted := map[int]int{} // looked up only: compute slices, by GPU
	order := make([]int, 0, len(n.have))
	for i := range n.have {
		in := &n.have[i]
		if size, ok := n.p.same(in); ok && n.wants[in.Service][size] > 0 && slices.Contains(n.gpus, in.GPU) {
			wanted[in.GPU] += in.Compute
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(wanted[n.have[b].GPU], wanted[n.have[a].GPU])
	})
	for _, i := range order {
		size, _ := n.p.same(&n.have[i])
		if w := &n.wants[n.have[i].Service]; w[size] > 0 {
			w[size]--
			n.stays[i] = true
		}
	}
	n.fill()
}

// fill computes what the staying instances use of each GPU.
func (n *nearLayout) fill() {
	n.held = make([]held, len(n.gpus))
	for i := range n.have {
		if n.stays[i] {
			profile, _ := n.p.m.Profile(n.have[i].Profile)
			f := &n.held[slices.Index(n.gpus, n.have[i].GPU)]
			f.slots, f.compute = f.slots|profile.Mask(n.have[i].Start), f.compute+profile.Compute
		}
	}
}

// drop gives up one more staying instance: the smallest on the GPU where least stays.
func (n *nearLayout) drop() {
	worst := -1
	for i := range n.have {
		if !n.stays[i] {
			continue
		}
		if worst < 0 {
			worst = i
			continue
		}
		x, y := &n.have[i], &n.have[worst]
		on := func(in *Instance) int { return n.held[slices.Index(n.gpus, in.GPU)].compute }
		if cmp.Or(cmp.Compare(on(x), on(y)), cmp.Compare(x.GPU, y.GPU), cmp.Compare(x.Compute, y.Compute)) < 0 {
			worst = i
		}
	}
	if worst < 0 {
		return
	}
	size, _ := n.p.same(&n.have[worst])
	n.stays[worst] = false
	n.wants[n.have[worst].Service][size]++
	n.fill()
}

// place finds places for new instances, in order; false: there are none, or the tries are used up.
func (n *nearLayout) place(want []missingInstance) bool {
	if len(want) == 0 {
		return true
	}
	w, m := want[0], n.p.m
	profile := n.p.sizes[w.size].profile
	for g := range n.held {
		if slices.Contains(n.held[:g], n.held[g]) {
			continue // equivalent to one that was tried
		}
		for s := len(profile.Starts) - 1; s >= 0; s-- { // high starts first, which keep room for large instances
			was := n.held[g]
			with, ok := was.add(m, profile, profile.Starts[s])
			if !ok {
				continue
			}
			if n.left--; n.left < 0 {
				return false
			}
			n.held[g] = with
			n.put = append(n.put,
				Instance{w.service, n.gpus[g], cluster.Instance{Profile: profile.Name, Start: profile.Starts[s]},
					n.p.sizes[w.size].best[w.service]})
			if n.place(want[1:]) {
				return true
			}
			n.held[g], n.put = was, n.put[:len(n.put)-1]
		}
	}
	return false
}

// number renumbers the GPUs of a plan that was laid out from scratch, giving each the number of the present GPU
// that is most like it.
func (n *nearLayout) number(plan *Plan) {
	left, to := slices.Clone(n.gpus), make([]int, plan.GPUs)
	for g := range to {
		best, most := 0, -1
		for at, number := range left {
			alike := 0
			for i := range plan.Instances {
				in := plan.Instances[i]
				if in.GPU == g {
					if in.GPU = number; slices.Contains(n.have, in) {
						alike++
					}
				}
			}
			if alike > most {
				best, most = at, alike
			}
		}
		to[g] = left[best]
		left = slices.Delete(left, best, best+1)
	}
	for i := range plan.Instances {
		plan.Instances[i].GPU = to[plan.Instances[i].GPU]
	}
}
