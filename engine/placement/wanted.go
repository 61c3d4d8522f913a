package placement

import "github.com/muster-gpu/muster/engine/job"

// Slices that jobs in line ask for. The start of a new instance on a GPU is chosen so that the
// fewest of their instances become impossible (NVIDIA's MIG user guide: weights by profile), then
// the fewest of all instances.

// slicesWanted is the demand of jobs in line for slices.
type slicesWanted struct {
	rev     int64   // incremented when a job enters or leaves the line
	shapes  []int32 // those that ask for slices
	classes []wantedOn
}

// wantedOn is the demand on one class of nodes.
type wantedOn struct {
	rev     int64   // its revision plus one; 0: not computed
	weights []int64 // by profile of its model: memory slices asked for; nil: none
}

// mostWanted caps the tasks in line that count for a profile, so that weights and tie-breakers fit
// into one number.
const mostWanted = 1 << 24

// Await counts a job that enters (1) or leaves (-1) the line.
func (f *Finder) Await(j *job.State, by int32) {
	if s := f.World.Shapes.Get(j.Shape); s.Sliced() {
		s.Waiting += by
		f.wanted.rev++
	}
}

// WantedOf is the demand of jobs in line on the GPUs of a class, by profile; nil: none.
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

// Ask adds a shape that asks for slices.
func (f *Finder) Ask(shape int32) { f.wanted.shapes = append(f.wanted.shapes, shape) }
