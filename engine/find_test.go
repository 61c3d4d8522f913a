package engine

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/placement"
	"github.com/muster-gpu/muster/internal/shared"
)

// scan is Find without an index.
func scanFind(s *probe, set, n int, pick placement.Pick) int {
	r := s.Sets()[set].Request
	best := -1
	for id := range s.e.st.Nodes() {
		nd := &s.e.st.Nodes()[id]
		if !nd.TakesJobs() || !slices.Contains(s.classes, nd.Class()) || !s.within.Covers(nd, int32(id)) ||
			s.Room(id, set, n) < n {
			continue
		}
		if best < 0 {
			best = id
			continue
		}
		b := &s.e.st.Nodes()[best]
		free, cpu := int(nd.FreeGPUs())-int(b.FreeGPUs()), int64(0)
		if r.CPU > 0 {
			cpu = nd.CPU() - b.CPU()
		}
		if pick == placement.Fullest && (free < 0 || free == 0 && cpu < 0) ||
			pick == placement.Emptiest && (free > 0 || free == 0 && cpu > 0) {
			best = id
		}
	}
	return best
}

// TestFindTwin: the index finds the node that a linear scan finds, and Most the
// one with room for most.
func TestFindTwin(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 6))
		var nodes []cluster.Node
		for range 3 + r.IntN(90) {
			n := cluster.Node{GPUs: []int{0, 2, 4, 8}[r.IntN(4)], CPU: []int64{0, 8000, 64000}[r.IntN(3)],
				Rack: fmt.Sprint(r.IntN(3))}
			if r.IntN(10) == 0 {
				n.State = cluster.Draining
			}
			nodes = append(nodes, n)
		}
		nodes[0].GPUs = 4
		e := store(t, "V100-16GB", nodes...)
		fill := siteFor(e, cluster.Request{GPUs: 1, CPU: 500}, 64)
		for id := range nodes {
			if k := r.IntN(9); k > 0 {
				if k = min(k, fill.Room(id, 0, k)); k > 0 {
					fill.Take(id, 0, k)
				}
			}
		}
		for range 30 {
			s := siteFor(e, cluster.Request{GPUs: r.IntN(5), CPU: []int64{0, 0, 1000, 9000}[r.IntN(4)]}, 8)
			within := inventory.Domain{}
			if r.IntN(3) == 0 {
				within = s.DomainOf(r.IntN(len(nodes)), cluster.LevelRack)
			}
			if r.IntN(3) == 0 {
				s = siteOn(e, s.Sets()[0].Request, 8, s.classes[:1+r.IntN(len(s.classes))])
			}
			s.within = within
			s.Within(within)
			n := 1 + r.IntN(4)
			for _, pick := range []placement.Pick{placement.First, placement.Fullest, placement.Emptiest} {
				if got, want := s.Find(0, n, pick), scanFind(s, 0, n, pick); got != want {
					t.Fatalf("seed %d: %d tasks of %+v, pick %d: node %d, a scan finds %d", seed, n,
						s.Sets()[0].Request, pick, got, want)
				}
			}
			node, k := s.Most(0, 8)
			most := 0
			s.Nodes(func(id int) bool { most = max(most, s.Room(id, 0, 8)); return true })
			if k != most || most > 0 && s.Room(node, 0, 8) != most {
				t.Fatalf("seed %d: %+v: node %d has room for %d, the most is %d", seed, s.Sets()[0].Request, node, k,
					most)
			}
			if most > 0 && s.Sets()[0].Request.GPUs > 0 && node != scanFind(s, 0, most, placement.Fullest) {
				t.Fatalf("seed %d: %+v: node %d, a scan finds %d", seed, s.Sets()[0].Request, node,
					scanFind(s, 0, most, placement.Fullest))
			}
		}
	}
}

// mig places instances on one GPU and returns their first memory slices; -1
// where there is no room.
func mig(t *testing.T, model string, profiles ...string) (starts []int, e *Engine) {
	t.Helper()
	e = store(t, model, cluster.Node{GPUs: 1})
	for _, p := range profiles {
		s := siteFor(e, cluster.Request{GPUs: 1, Profile: p}, 1)
		if s.Room(0, 0, 1) == 0 {
			starts = append(starts, -1)
			continue
		}
		s.Take(0, 0, 1)
		starts = append(starts, bits.TrailingZeros8(s.Bound()[0].Slots))
	}
	e.st.Commit()
	return starts, e
}

// TestMIGVectors are the test vectors of NVIDIA's MIG user guide.
func TestMIGVectors(t *testing.T) {
	for _, c := range []struct {
		model    string
		profiles []string
		want     []int
	}{
		{"A100-80GB", []string{"1g", "1g", "1g", "1g", "1g", "1g", "1g", "1g"}, []int{6, 5, 4, 3, 2, 1, 0, -1}},
		{"A100-80GB", []string{"3g", "3g", "1g"}, []int{4, 0, -1}},
		{"A100-80GB", []string{"4g", "3g", "1g"}, []int{0, 4, -1}},
		{"A100-80GB", []string{"2g", "2g", "2g", "1g", "1g"}, []int{4, 2, 0, 6, -1}},
		{"A100-80GB", []string{"2g", "2g", "2g", "1g.20gb"}, []int{4, 2, 0, 6}},
		{"A100-80GB", []string{"1g", "4g"}, []int{6, 0}},
		{"A100-80GB", []string{"7g", "1g"}, []int{0, -1}},
		{"A100-80GB", []string{"1g", "7g"}, []int{6, -1}},
		{"A100-80GB", []string{"1g.10gb+me", "1g.10gb+me", "1g"}, []int{6, -1, 5}},
		{"A30-24GB", []string{"2g", "2g", "1g"}, []int{2, 0, -1}},
		{"A30-24GB", []string{"1g", "1g", "2g"}, []int{3, 2, 0}},
		{"A30-24GB", []string{"4g", "1g"}, []int{0, -1}},
	} {
		if got, _ := mig(t, c.model, c.profiles...); !slices.Equal(got, c.want) {
			t.Errorf("%s %v: starts %v, want %v", c.model, c.profiles, got, c.want)
		}
	}
}

type instance struct{ profile, start int }

// geometries enumerates all sets of instances of the given profiles.
func geometries(m *cluster.GPUModel, use []int) map[string][]instance {
	all := map[string][]instance{}
	var add func(set []instance, slots uint8, compute int)
	add = func(set []instance, slots uint8, compute int) {
		key := fmt.Sprint(set)
		if _, ok := all[key]; ok {
			return
		}
		all[key] = slices.Clone(set)
		for _, p := range use {
			prof := &m.Profiles[p]
			count := 0
			for _, in := range set {
				if in.profile == p {
					count++
				}
			}
			for _, s := range prof.Starts {
				if slots&prof.Mask(s) != 0 || compute+prof.Compute > m.Compute || count == prof.Max {
					continue
				}
				next := append(slices.Clone(set), instance{p, s})
				slices.SortFunc(next, func(a, b instance) int {
					return (a.start*16 + a.profile) - (b.start*16 + b.profile)
				})
				add(next, slots|prof.Mask(s), compute+prof.Compute)
			}
		}
	}
	add(nil, 0, 0)
	return all
}

// maximal counts the sets to which nothing can be added, and how many differ
// in their profiles.
func maximal(m *cluster.GPUModel, use []int, all map[string][]instance) (sets, kinds int) {
	seen := map[string]bool{}
	for _, set := range all {
		var slots uint8
		compute := 0
		var count [16]int
		for _, in := range set {
			slots |= m.Profiles[in.profile].Mask(in.start)
			compute += m.Profiles[in.profile].Compute
			count[in.profile]++
		}
		full := true
		for _, p := range use {
			prof := &m.Profiles[p]
			for _, s := range prof.Starts {
				full = full && (slots&prof.Mask(s) != 0 || compute+prof.Compute > m.Compute || count[p] == prof.Max)
			}
		}
		if full {
			sets++
			seen[fmt.Sprint(count)] = true
		}
	}
	return sets, len(seen)
}

// TestMIGEnumeration counts the geometries that the tables allow (NVIDIA's MIG user guide).
func TestMIGEnumeration(t *testing.T) {
	a100, _ := cluster.FindModel("A100-80GB")
	a30, _ := cluster.FindModel("A30-24GB")
	for _, c := range []struct {
		model            *cluster.GPUModel
		use              []int
		all, most, kinds int
	}{
		{&a100, []int{0, 3, 4, 5, 6}, 298, 19, 14}, {&a100, []int{0, 2, 3, 4, 5, 6}, 723, 78, 38},
		{&a30, []int{0, 2, 4}, 26, 5, 4},
	} {
		all := geometries(c.model, c.use)
		most, kinds := maximal(c.model, c.use, all)
		if len(all) != c.all || most != c.most || kinds != c.kinds {
			t.Errorf("%s %v: %d sets, %d maximal, %d kinds; want %d, %d, %d", c.model.Name, c.use, len(all), most,
				kinds, c.all, c.most, c.kinds)
		}
	}
}

// TestMIGReachable: what the engine makes of random requests and departures is
// always one of the legal geometries, and an instance that leaves restores the
// device.
func TestMIGReachable(t *testing.T) {
	model, _ := cluster.FindModel("H100-80GB")
	all := geometries(&model, []int{0, 1, 2, 3, 4, 5, 6})
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 9))
		e := store(t, "H100-80GB", cluster.Node{GPUs: 1})
		empty := fmt.Sprint(e.st.Nodes()[0].Devices())
		type held struct {
			in instance
			a  inventory.Alloc
		}
		var list []held
		for range 40 {
			p := r.IntN(len(model.Profiles))
			s := siteFor(e, cluster.Request{GPUs: 1, Profile: model.Profiles[p].Name}, 1)
			switch {
			case r.IntN(2) == 0 && s.Room(0, 0, 1) > 0:
				s.Take(0, 0, 1)
				list = append(list, held{instance{p, bits.TrailingZeros8(s.Bound()[0].Slots)}, s.Bound()[0]})
			case len(list) > 0 && r.IntN(2) == 0:
				k := r.IntN(len(list))
				e.st.Release(&list[k].a)
				list = slices.Delete(list, k, k+1)
			}
			var set []instance
			for _, h := range list {
				set = append(set, h.in)
			}
			slices.SortFunc(set, func(a, b instance) int { return (a.start*16 + a.profile) - (b.start*16 + b.profile) })
			if _, ok := all[fmt.Sprint(set)]; !ok {
				t.Fatalf("seed %d: %v is no legal geometry", seed, set)
			}
		}
		for _, h := range list {
			e.st.Release(&h.a)
		}
		if got := fmt.Sprint(e.st.Nodes()[0].Devices()); got != empty {
			t.Fatalf("seed %d: in the end the device is %s, it was %s", seed, got, empty)
		}
	}
}

// TestMIGEvents places and frees instances at random, on each model a part of a
// million times, beside a twin that has all legal geometries in a list and looks there
// whether one has what there is and one more.
func TestMIGEvents(t *testing.T) {
	models := []string{"A30-24GB", "A100-40GB", "A100-80GB", "H100-80GB", "H200-141GB", "B200-180GB"}
	for _, name := range models {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, _ := cluster.FindModel(name)
			var places []instance
			index := map[instance]int{}
			all := make([]int, len(m.Profiles))
			for p := range m.Profiles {
				all[p] = p
				for _, s := range m.Profiles[p].Starts {
					index[instance{p, s}] = len(places)
					places = append(places, instance{p, s})
				}
			}
			legal := map[uint64]bool{}
			for _, set := range geometries(&m, all) {
				mask, media := uint64(0), 0
				for _, in := range set {
					mask |= 1 << index[in]
					if m.Profiles[in.profile].Media() {
						media++
					}
				}
				if media <= 1 {
					legal[mask] = true
				}
			}
			loss := func(have uint64, in instance) (sum int) { // slices of instances that become impossible
				overlaps := func(a, b instance) bool {
					return m.Profiles[a.profile].Mask(a.start)&m.Profiles[b.profile].Mask(b.start) != 0
				}
				for _, q := range places {
					free := true
					for k := range places {
						free = free && (have>>k&1 == 0 || !overlaps(places[k], q))
					}
					if free && overlaps(in, q) {
						sum += m.Profiles[q.profile].Slots
					}
				}
				return sum
			}
			r := rand.New(rand.NewPCG(7, uint64(len(name))))
			e := store(t, name, cluster.Node{GPUs: 1})
			have, held := uint64(0), map[int]inventory.Alloc{}
			for event := range shared.Soak(200_000, 1_000_000) / len(models) {
				p := r.IntN(len(m.Profiles))
				if k := r.IntN(len(places)); have != 0 && r.IntN(5) < 2 { // the first that is there goes
					for have>>k&1 == 0 {
						k = (k + 1) % len(places)
					}
					a := held[k]
					e.st.Release(&a)
					e.st.Commit()
					have &^= 1 << k
					continue
				}
				want, least := -1, 0
				for _, s := range m.Profiles[p].Starts {
					k := index[instance{p, s}]
					if have>>k&1 == 1 || !legal[have|1<<k] {
						continue
					}
					if l := loss(have, places[k]); want < 0 || l <= least { // the highest of equals
						want, least = k, l
					}
				}
				s := siteFor(e, cluster.Request{GPUs: 1, Profile: m.Profiles[p].Name}, 1)
				got := -1
				if s.Room(0, 0, 1) > 0 {
					s.Take(0, 0, 1)
					e.st.Commit()
					got = index[instance{p, bits.TrailingZeros8(s.Bound()[0].Slots)}]
					held[got] = s.Bound()[0]
				}
				if got != want {
					t.Fatalf("event %d: beside %b a %s goes to place %d, the twin says %d", event, have,
						m.Profiles[p].Name, got, want)
				}
				if want >= 0 {
					have |= 1 << want
				}
				if !legal[have] {
					t.Fatalf("event %d: %b is no legal geometry", event, have)
				}
			}
		})
	}
}
