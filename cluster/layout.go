package cluster

import (
	"cmp"
	"slices"
)

// Layouts lists every combination of instances of some profiles that can coexist on one GPU of the
// model, the empty one first; each sorted by start. nil: of all its profiles (NVIDIA's MIG user
// guide, enumeration).
func (m *GPUModel) Layouts(profiles []*SliceProfile) [][]Instance {
	var list [][]Instance
	places := m.places(profiles)
	var grow func(from int, g taken, with []Instance)
	grow = func(from int, g taken, with []Instance) {
		list = append(list, slices.Clone(with))
		for k := from; k < len(places); k++ {
			p := &places[k]
			if h, ok := g.add(m, p.profile, p.start); ok {
				grow(k+1, h, append(with, Instance{p.profile.Name, p.start}))
			}
		}
	}
	grow(0, taken{}, nil)
	return list
}

// FullLayouts lists the layouts to which none of the profiles' instances can be
// added.
func (m *GPUModel) FullLayouts(profiles []*SliceProfile) (list [][]Instance) {
	places := m.places(profiles)
	for _, layout := range m.Layouts(profiles) {
		var g taken
		for _, in := range layout {
			p, _ := m.Profile(in.Profile)
			g, _ = g.add(m, p, in.Start)
		}
		if !slices.ContainsFunc(places, func(p place) bool { _, ok := g.add(m, p.profile, p.start); return ok }) {
			list = append(list, layout)
		}
	}
	return list
}

// place is a possible position of an instance.
type place struct {
	profile *SliceProfile
	start   int
}

// places lists the positions by start, larger profiles first; nil: of all profiles.
func (m *GPUModel) places(profiles []*SliceProfile) (list []place) {
	if profiles == nil {
		for i := range m.Profiles {
			profiles = append(profiles, &m.Profiles[i])
		}
	}
	for _, p := range profiles {
		for _, s := range p.Starts {
			list = append(list, place{p, s})
		}
	}
	slices.SortStableFunc(list, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(b.profile.Slots, a.profile.Slots))
	})
	return list
}

// taken is what the instances of a GPU occupy.
type taken struct {
	slots   uint8
	compute int
	media   bool
}

func (g taken) add(m *GPUModel, p *SliceProfile, start int) (taken, bool) {
	mask := p.Mask(start)
	if g.slots&mask != 0 || g.compute+p.Compute > m.Compute || g.media && p.Media() {
		return g, false
	}
	return taken{g.slots | mask, g.compute + p.Compute, g.media || p.Media()}, true
}

// mostExact is the number of instances up to which the minimum number of GPUs is searched; for
// more, each GPU is filled greedily.
const mostExact = 16

// Fit lays instances out on few GPUs of the model; up to 16 instances the number is minimal. Each
// GPU's layout is sorted by start. It fails for a profile that the model does not have.
func (m *GPUModel) Fit(names []string) (gpus [][]Instance, exact bool, err error) {
	var want []*SliceProfile
	for _, name := range names {
		p, ok := m.Profile(name)
		if !ok {
			return nil, false, m.Lacks(name)
		}
		want = append(want, p)
	}
	slices.SortStableFunc(want, func(a, b *SliceProfile) int {
		return cmp.Or(cmp.Compare(b.Slots, a.Slots), cmp.Compare(b.Compute, a.Compute), cmp.Compare(a.Name, b.Name))
	})
	exact = len(want) <= mostExact
	if len(want) == 0 {
		return nil, true, nil
	}
	slots, compute := 0, 0
	for _, p := range want {
		slots, compute = slots+p.Slots, compute+p.Compute
	}
	for n := max((slots+m.MemSlots-1)/m.MemSlots, (compute+m.Compute-1)/m.Compute); ; n++ {
		f := fitting{m: m, at: make([]taken, n), on: make([][]Instance, n), left: 1 << 16}
		if f.lay(want) {
			for i := range f.on {
				slices.SortFunc(f.on[i], func(a, b Instance) int { return a.Start - b.Start })
			}
			return f.on, exact && f.left > 0, nil
		}
		exact = exact && f.left > 0
	}
}

// fitting tries to lay instances out on a number of GPUs.
type fitting struct {
	m    *GPUModel
	at   []taken
	on   [][]Instance
	left int // remaining tries
}

func (f *fitting) lay(want []*SliceProfile) bool {
	if len(want) == 0 {
		return true
	}
	p := want[0]
	for i := range f.at {
		if slices.Contains(f.at[:i], f.at[i]) {
			continue // equivalent to one that was tried
		}
		for k := len(p.Starts) - 1; k >= 0; k-- { // high starts first: they keep 4g possible
			g, ok := f.at[i].add(f.m, p, p.Starts[k])
			if !ok {
				continue
			}
			if f.left--; f.left <= 0 {
				return false
			}
			was := f.at[i]
			f.at[i], f.on[i] = g, append(f.on[i], Instance{p.Name, p.Starts[k]})
			if f.lay(want[1:]) {
				return true
			}
			f.at[i], f.on[i] = was, f.on[i][:len(f.on[i])-1]
		}
	}
	return false
}
