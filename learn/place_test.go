package learn

import (
	"math"
	"slices"
	"testing"

	"github.com/muster-gpu/muster/internal/shared"
)

// The physical model of Meta-RL, TCC'23.
func TestIteration(t *testing.T) {
	it := Iteration{Compute: 0.2, Each: 0.1, Colo: 2, GPUs: 4, Size: 1, Bandwidth: 10, Share: 0.5}
	near(t, "an iteration", it.Seconds(), 0.2*1.2+2*3/4.0/10/0.5)
	it.GPUs = 1
	near(t, "that of one GPU", it.Seconds(), 0.24)
}

// mixWorld generates worlds of one workload.
func mixWorld(r *Rand, heavy float64) func() *PlaceWorld {
	m := Mix{Nodes: 4, GPUs: 8, Racks: 2, Jobs: 120, Load: 1.1, Spread: 1, Large: 0.6, Loose: 1}
	return func() *PlaceWorld { return m.World(r).Communicating(r, heavy) }
}

// The performance model learns iteration times from measurements, is uncertain about what it has not seen, and
// detects a change of the workload.
func TestPerfModel(t *testing.T) {
	r := NewRand(1)
	m := NewPerfModel(2)
	world := mixWorld(r, 1)
	rules := DefaultTraining(SystemMetaRL, 1).PPO
	l := NewLearner(NewAgent(NewRand(3), placeShape), rules, 4)
	before := 0.0
	for i := range 30 {
		l.placeEpisode(world(), m, false)
		if i == 0 {
			before = m.err()
		}
		m.Fit(40)
	}
	after := m.err()
	if after > 0.15 || after > before/3 {
		t.Errorf("the mean error of predictions is %v, at first %v", after, before)
	}
	known, strange := 0.0, 0.0
	for i := range m.seen {
		_, u := m.Predict(m.seen[i].in)
		known += u
		in := slices.Clone(m.seen[i].in)
		in[1] += 6 // a model e^6 times as large
		_, u = m.Predict(in)
		strange += u
	}
	if strange < 3*known {
		t.Errorf("doubt of what was seen %v, of what was not %v", known, strange)
	}
	if m.Drifts > 0 {
		t.Errorf("%d drifts although nothing has changed", m.Drifts)
	}
	heavy := mixWorld(r, 1)
	for range 4 {
		w := heavy()
		for i := range w.Its { // the same jobs slow each other down much more than before
			w.Its[i].Each = 5
		}
		l.placeEpisode(w, m, false)
	}
	if m.Drifts == 0 {
		t.Error("the workload changed, and no drift was detected")
	}
}

// err is the mean error of the logarithms.
func (m *PerfModel) err() (sum float64) {
	for i := range m.seen {
		p, _ := m.Predict(m.seen[i].in)
		sum += math.Abs(Log(p)-m.seen[i].at) / float64(len(m.seen))
	}
	return sum
}

// Every worker gets a free GPU, and whatever fits is placed; the order of the nodes changes only which of equal
// nodes are taken.
func TestPlacing(t *testing.T) {
	r := NewRand(21)
	for range 2000 {
		p := NewPlacing(NewAgent(NewRand(r.Uint64()), placeShape))
		w := &Worker{Tasks: int32(1 + r.Int(8)), Each: int32(1 + r.Int(3)), Loss: [2]float64{r.Float(), r.Float()}}
		var spots []Spot
		room := int32(0)
		for range 1 + r.Int(8) {
			s := Spot{GPUs: 8, Free: int32(r.Int(9)), Crowd: int32(r.Int(3)), Rack: int32(r.Int(2))}
			s.Room = s.Free / w.Each
			room += s.Room
			spots = append(spots, s)
		}
		mixed, o := slices.Clone(spots), *w
		Shuffle(r, mixed)
		for range w.Tasks {
			n := p.Next(spots, w)
			if n < 0 {
				if room >= w.Tasks {
					t.Fatalf("%+v is not placed on %+v", w, spots)
				}
				break
			}
			if spots[n].Room < 1 || spots[n].Free < w.Each {
				t.Fatalf("a worker of %+v goes to %+v", w, spots[n])
			}
			k := p.Next(mixed, &o)
			alike := mixed[k]
			alike.Rack = spots[n].Rack // all racks are alike until a worker is placed
			if w.Placed == 0 && alike != spots[n] {
				t.Fatalf("%+v is chosen, in another order of the nodes %+v", spots[n], mixed[k])
			}
			w.Bind(spots, n)
			o.Bind(mixed, k)
		}
	}
}

// The shipped weights place better than best fit where jobs communicate, and adapting them to a workload does no
// harm to it. (How much better: docs/reference/placers.md.)
func TestMetaWeights(t *testing.T) {
	a, err := Load(SystemMetaRL, "", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	r := NewRand(77) // no seed of the training
	world := mixWorld(r, 1.5)
	var worlds []*PlaceWorld
	for range shared.Soak(10, 20) {
		worlds = append(worlds, world())
	}
	before := PlaceScore(a, worlds)
	if before > 0.97 {
		t.Errorf("mean JCT %v of best fit's", before)
	}
	tr := DefaultTraining(SystemMetaRL, 1)
	b := a.Clone()
	tr.Adapt(b, NewPerfModel(5), world, shared.Soak(6, 15), 6)
	after := PlaceScore(b, worlds)
	t.Logf("mean JCT %.3f of best fit's, adapted %.3f", before, after)
	if after > before*1.02 {
		t.Errorf("mean JCT %v of best fit's, adapted %v", before, after)
	}
}

// BenchmarkDecision measures inference: one decision of either system, with a full line and a thousand nodes.
func BenchmarkDecision(b *testing.B) {
	r := NewRand(1)
	m := &Moment{Running: []float64{100}}
	for i := range 1000 {
		m.Rooms = append(m.Rooms, Room{GPUs: 8, Free: int32(r.Int(9)), Rack: int32(i / 40)})
	}
	for k := range Slots {
		m.Line = append(m.Line,
			Gang{Tasks: int32(1 + k), Each: 1, Classes: AllClasses, Length: 600 * r.Float(), Tried: true})
	}
	m.Begin()
	b.Run("sched2", func(b *testing.B) {
		s := NewSched2(NewAgent(NewRand(1), schedShape))
		for b.Loop() {
			s.Next(m)
		}
	})
	b.Run("meta-rl", func(b *testing.B) {
		p := NewPlacing(NewAgent(NewRand(1), placeShape))
		var spots []Spot
		for i := range m.Rooms {
			x := &m.Rooms[i]
			spots = append(spots, Spot{GPUs: 8, Free: x.Free, Room: x.Free, Rack: x.Rack, Crowd: int32(r.Int(4))})
		}
		w := &Worker{Tasks: 8, Each: 1, Placed: 1, Home: 3}
		for b.Loop() {
			p.Next(spots, w)
		}
	})
}

// Drifts of earlier workloads are no drift of this one: its first update counts. After a drift of its own the
// model learns from the remaining measurements, so that later choices are judged by a model of the new world.
func TestAdapt(t *testing.T) {
	adapt := func(change func(*PerfModel)) (drifts int, same bool, m *PerfModel) {
		tr := DefaultTraining(SystemMetaRL, 1)
		r := NewRand(1)
		a := NewAgent(r, placeShape)
		was := a.Digest()
		m = NewPerfModel(2)
		change(m)
		drifts = tr.Adapt(a, m, tr.placeWorlds(r, 1), 1, 5)
		return drifts, a.Digest() == was, m
	}
	for _, before := range []int{0, 3} {
		drifts, same, m := adapt(func(m *PerfModel) { m.Drifts = before })
		if drifts != 0 || same || m.Drifts != before {
			t.Errorf("%d drifts before: %d drifts in it, %d now, unchanged: %t", before, drifts, m.Drifts, same)
		}
	}
	var fitted [modelInputs]float64
	drifts, same, m := adapt(func(m *PerfModel) { // it knows a world in which everything takes a thousandth of the time
		m.Drifts = 3
		for range 300 {
			m.seen = append(m.seen, measured{fitted[:], -9})
		}
		m.Fit(200)
	})
	if drifts == 0 || !same || m.Drifts != 3+drifts {
		t.Errorf("%d drifts, %d now, unchanged: %t", drifts, m.Drifts, same)
	}
	if m.adam[0].step <= 200 {
		t.Errorf("the model was not fitted after the drift: %d steps", m.adam[0].step)
	}
}
