package placement

import "github.com/muster-gpu/muster/engine/job"

// Which slices jobs in line ask for. Where a new instance begins on a GPU is chosen so that
// the fewest of their instances become impossible (NVIDIA's MIG user guide: weights by profile), and only
// then so that the fewest of any do.

// slicesWanted is what is in line for slices.
type slicesWanted struct {
	rev     int64   // grows when somebody comes into line or leaves it
	shapes  []int32 // that ask for slices
	classes []wantedOn
}

// wantedOn is what is wanted of a class of nodes.
type wantedOn struct {
	rev     int64   // as of which, plus one; 0: nothing yet
	weights []int64 // by profile of its model: memory slices that are asked for; nil: none
}

// mostWanted bounds the tasks in line that count for a profile, so that weights can be
// compared together with what breaks ties.
const mostWanted = 1 << 24

// Await counts a job that comes into line (1), or leaves it (-1).
func (f *Finder) Await(j *job.State, by int32) {
	if s := f.World.Shapes.Get(j.Shape); s.Sliced() {
		s.Waiting += by
		f.wanted.rev++
	}
}

// WantedOf is what jobs in line ask for of the GPUs of a class, by profile; nil: nothing.
func (f *Finder) WantedOf(ci int32) []int64 {
	w := &f.wanted
	for len(w.classes) < len(f.World.Store.Classes()) {
		w.classes = append(w.classes, wantedOn{})
	}
	c := &w.classes[ci]
	if c.rev == w.rev+1 {
		return c.weights
	}
	c.rev, c.weights = w.rev+1, f.weighWanted(ci)
	return c.weights
}

// weighWanted computes WantedOf.
func (f *Finder) weighWanted(ci int32) (weights []int64) {
	model := f.World.Store.Classes()[ci].Model()
	for _, id := range f.wanted.shapes {
		if f.World.Shapes.Get(id).Waiting == 0 {
			continue
		}
		s := f.World.Shapes.At(id)
		for i := range s.Sets {
			p, ok := model.Profile(s.Sets[i].Request.Profile)
			if s.Sets[i].Request.Profile == "" || !ok || !s.Suits[i].Has(ci) {
				continue
			}
			tasks := int64(s.Sets[i].Count)
			if i == 0 {
				tasks = int64(s.Min)
			}
			if weights == nil {
				weights = make([]int64, len(model.Profiles))
			}
			for k := range model.Profiles {
				if &model.Profiles[k] == p {
					weights[k] = min(mostWanted, weights[k]/int64(p.Slots)+tasks*int64(s.Waiting)) * int64(p.Slots)
				}
			}
		}
	}
	return weights
}

// Ask notes a shape that asks for slices.
func (f *Finder) Ask(shape int32) { f.wanted.shapes = append(f.wanted.shapes, shape) }
