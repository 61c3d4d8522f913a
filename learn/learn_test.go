package learn

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/muster-gpu/muster/internal/shared"
)

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-12*max(1, math.Abs(want)) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// Exp and Log agree with the standard library to the last bits.
func TestNumbers(t *testing.T) {
	for x := -690.0; x < 690; x += 0.37 {
		if got, want := Exp(x), math.Exp(x); math.Abs(got/want-1) > 1e-13 {
			t.Errorf("Exp(%v) = %v, want %v", x, got, want)
		}
		near(t, "Log", Log(Exp(x)), x)
	}
	if Exp(-800) != 0 || log2(8) != 3 || log2(6) != 2.5 {
		t.Errorf("%v %v %v", Exp(-800), log2(8), log2(6))
	}
	r, mean, square := NewRand(5), 0.0, 0.0
	for range 100000 {
		x := r.Norm()
		mean, square = mean+x/100000, square+x*x/100000
	}
	if math.Abs(mean) > 0.01 || math.Abs(square-1) > 0.02 {
		t.Errorf("normal numbers of mean %v and variance %v", mean, square)
	}
}

// Worked examples of SCHED^2, GLOBECOM'19.
func TestVectors(t *testing.T) {
	near(t, "surrogate", surrogate(1.5, 1, 0.2), 1.2)
	near(t, "surrogate", surrogate(1.5, -1, 0.2), -1.5)
	a := Advantages([]float64{1, 1}, []float64{0, 0, 0}, 0.99, 0.95)
	near(t, "the first advantage", a[0], 1.9405)
	near(t, "the second advantage", a[1], 1)
	p := Softmax([]float64{3, 900, 3}, []bool{true, false, true}, nil)
	if p[1] != 0 || p[0] != 0.5 || p[2] != 0.5 {
		t.Errorf("probabilities %v", p)
	}
	for _, v := range Softmax([]float64{1, 2}, []bool{false, false}, nil) {
		if v != 0 {
			t.Errorf("something is probable although all is masked: %v", v)
		}
	}
}

// Masking: nodes with 0 and 3 GPUs free, two tasks of one GPU: together on the second node, or without a
// constraint, which is the same one here; the level rack does not differ.
func TestMask(t *testing.T) {
	m := &Moment{Floor: Floor{Rooms: []Room{{GPUs: 4, Free: 0}, {GPUs: 4, Free: 3}}}, Running: []float64{10},
		Line: []Gang{{Tasks: 2, Each: 1, Classes: AllClasses, Length: 60},
			{Tasks: 4, Each: 1, Classes: AllClasses, Length: 60}}}
	m.Begin()
	s := NewSched2(NewAgent(NewRand(1), schedShape))
	if !s.scene.look(m) {
		t.Fatal("nothing can be done")
	}
	s.agent.Judge(&s.scene.Scene, &s.look)
	for row, ok := range s.scene.Mask {
		slot, near, wait := RowOf(row)
		if want := wait || slot == 0 && near != SameRack; ok != want || (s.look.Probs[row] > 0) != want {
			t.Errorf("slot %d near %d wait %v: allowed %v, probability %v", slot, near, wait, ok, s.look.Probs[row])
		}
	}
	if got := m.Take(&m.Line[0], SameNode); !slices.Equal(got, []int32{1, 1}) || m.Rooms[1].Free != 1 {
		t.Errorf("taken of %v, %+v", got, m.Rooms)
	}
	if m.Take(&m.Line[0], SameNode) != nil || m.Rooms[1].Free != 1 {
		t.Errorf("taken although it does not fit: %+v", m.Rooms)
	}
}

// Reward: three jobs that are present for ten seconds cost 30.
func TestReward(t *testing.T) {
	w := &World{Rooms: []Room{{GPUs: 3, Free: 3}},
		Jobs: []Job{{Tasks: 1, Each: 1, Run: 10}, {Tasks: 1, Each: 1, Run: 10}, {Tasks: 1, Each: 1, Run: 10}}}
	out := w.Play(ShortestService(), nil)
	near(t, "job-seconds", out.until(10), 30)
	near(t, "job-seconds of half the time", out.until(5), 15)
}

// The reward (SCHED^2, GLOBECOM'19): a choice is credited with the negative integral of the number of jobs over
// time, relative to that under the rule, in units of ten times the mean run time. So an agent that acts like the
// rule gets nothing, and all rewards add up to the difference of the total JCTs in that unit, whatever the unit
// of time.
func TestRewardsAddUp(t *testing.T) {
	r := NewRand(21)
	better, worse := 0, 0
	for range 60 {
		w := &World{Rooms: []Room{{GPUs: 4, Free: 4}, {GPUs: 4, Free: 4}}}
		slow := &World{Rooms: w.Rooms}
		at, run := 0.0, 0.0
		for range 6 + r.Int(6) {
			at += 40 * r.Float()
			j := Job{Tasks: int32(1 + r.Int(4)), Each: 1, Submit: at, Run: 10 + 200*r.Float(),
				Loss: [2]float64{0.5, 0.5}}
			w.Jobs = append(w.Jobs, j)
			run += j.Run
			j.Submit, j.Run = 64*j.Submit, 64*j.Run
			slow.Jobs = append(slow.Jobs, j)
		}
		norm := 10 * run / float64(len(w.Jobs))
		sum := func(world *World, imitate bool, seed uint64) (total float64, choices []Choice) {
			rules := Defaults()
			l := NewLearner(NewAgent(NewRand(seed), schedShape), rules, seed)
			choices = l.Episode(world, ShortestService(), imitate)
			for i := range choices {
				total += choices[i].Reward
			}
			return total, choices
		}
		if got, _ := sum(w, true, 1); math.Abs(got) > 1e-9 {
			t.Fatalf("who does as the rule does is credited with %g", got)
		}
		seed := r.Uint64()
		got, choices := sum(w, false, seed)
		own := w.Play(&replayer{choices: choices}, nil)
		rule := w.Play(ShortestService(), nil)
		want := (rule.MeanJCT(w.Jobs) - own.MeanJCT(w.Jobs)) * float64(len(w.Jobs)) / norm
		if math.Abs(got-want) > 1e-9*max(1, math.Abs(want)) {
			t.Fatalf("rewards add up to %g, the JCTs say %g", got, want)
		}
		if long, _ := sum(slow, false, seed); math.Abs(long-got) > 1e-9*max(1, math.Abs(got)) {
			t.Fatalf("rewards add up to %g, with all times 64 times as long to %g", got, long)
		}
		better, worse = better+int(one(got > 1e-9)), worse+int(one(got < -1e-9))
	}
	if better < 3 || worse < 3 {
		t.Errorf("%d episodes are better than the rule, %d worse", better, worse)
	}
}

// replayer repeats recorded choices.
type replayer struct {
	Sched2
	choices []Choice
	at      int
}

func (p *replayer) Next(m *Moment) (Pick, bool) {
	if !p.scene.look(m) {
		return Pick{}, false
	}
	p.at++
	return p.take(m, p.choices[p.at-1].Row), true
}

// The state (SCHED^2, GLOBECOM'19) has only ratios, so multiplying all times by 64 changes nothing in it; and
// none of its numbers is large.
func TestSceneHasNoUnit(t *testing.T) {
	r, looks := NewRand(22), 0
	for range 500 {
		m := moment(r)
		long := &Moment{Floor: Floor{Rooms: slices.Clone(m.Rooms)}, Line: slices.Clone(m.Line), Waiting: m.Waiting}
		for i := range long.Line {
			long.Line[i].Length, long.Line[i].Age = 64*m.Line[i].Length, 64*m.Line[i].Age
		}
		for _, left := range m.Running {
			long.Running = append(long.Running, 64*left)
		}
		m.Begin()
		long.Begin()
		var a, b SchedScene
		if some, same := a.look(m), b.look(long); some != same {
			t.Fatal("times decide what fits")
		} else if !some {
			continue
		}
		looks++
		numbers := func(s *SchedScene) (list []float64) {
			list = append(list, s.State...)
			for _, e := range s.Elements {
				list = append(list, e.Features...)
			}
			for _, row := range s.Rows {
				list = append(list, row...)
			}
			return list
		}
		x, y := numbers(&a), numbers(&b)
		for i := range x {
			if math.Abs(x[i]-y[i]) > 1e-9 || !(math.Abs(x[i]) <= 8) {
				t.Fatalf("number %d of the scene is %g, with longer times %g", i, x[i], y[i])
			}
		}
	}
	if looks < 200 {
		t.Errorf("%d scenes", looks)
	}
}

// Gradients equal finite differences, for all weights of an agent.
func TestGradient(t *testing.T) {
	r := NewRand(3)
	a := NewAgent(r, Shape{Element: 2, State: 2, Row: 3})
	draw := func(n int) []float64 {
		v := make([]float64, n)
		for i := range v {
			v[i] = r.Norm()
		}
		return v
	}
	s := Scene{Elements: []Element{{draw(2), 2}, {draw(2), 3}}, State: draw(2),
		Rows: [][]float64{draw(3), nil, draw(3), draw(3)}, Mask: []bool{true, false, true, true}}
	c := Choice{Scene: s, Row: 2, LogProb: -1.2, Advantage: 0.7, Return: 0.4}
	l := NewLearner(a, Defaults(), 1)
	loss := func() float64 {
		var k Look
		a.Judge(&s, &k)
		h := 0.0
		for _, p := range k.Probs {
			if p > 0 {
				h -= p * math.Log(p)
			}
		}
		miss := a.Value(&k) - c.Return
		return -surrogate(math.Exp(math.Log(k.Probs[c.Row])-c.LogProb), c.Advantage, l.Clip) - l.Entropy*h +
			0.25*miss*miss
	}
	l.learn(&c, 1)
	grads := l.grader.grad.params()
	for i, p := range a.params() {
		for k := range p {
			const step = 1e-6
			old := p[k]
			p[k] = old + step
			up := loss()
			p[k] = old - step
			down := loss()
			p[k] = old
			if want := (up - down) / (2 * step); math.Abs(want-grads[i][k]) > 1e-6*max(1, math.Abs(want)) {
				t.Errorf("list %d weight %d: gradient %v, want %v", i, k, grads[i][k], want)
			}
		}
	}
}

// moment is a random moment.
func moment(r *Rand) *Moment {
	m := &Moment{}
	for range 2 + r.Int(8) {
		n := Room{GPUs: 8, Rack: int32(r.Int(3)), Kind: int32(r.Int(2))}
		n.Free, n.Class = int32(r.Int(9)), n.Kind
		m.Rooms = append(m.Rooms, n)
	}
	for range 1 + r.Int(Slots) {
		g := Gang{Tasks: int32(1 + r.Int(6)), Each: int32(1 + r.Int(4)), Classes: AllClasses, Length: 600 * r.Float(),
			Age: 600 * r.Float(), Loss: [2]float64{0.1, 0.3}, Behind: r.Int(9)}
		if r.Int(4) == 0 {
			g.Classes = [4]uint64{1}
		}
		m.Line = append(m.Line, g)
	}
	for range r.Int(4) {
		m.Running = append(m.Running, 900*r.Float())
	}
	return m
}

// Whatever an agent does is feasible: no job holds more than there is, gangs are on one kind of GPU, on nodes
// that suit them, and as near together as stated; and it waits only while something runs.
func TestFeasible(t *testing.T) {
	r := NewRand(11)
	done, waits := 0, 0
	for range 3000 {
		m := moment(r)
		s := NewSched2(NewAgent(NewRand(r.Uint64()), schedShape))
		m.Begin()
		idle := len(m.Running) == 0
		for {
			before := append([]Room(nil), m.Rooms...)
			pick, ok := s.Next(m)
			if !ok {
				break
			}
			if pick.Wait {
				if waits++; idle {
					t.Fatalf("it waits although nothing runs: %+v", m)
				}
				break
			}
			g := m.Line[pick.Slot]
			checkTaken(t, before, m, &g, pick.Near)
			m.Line = slices.Delete(m.Line, pick.Slot, pick.Slot+1)
			idle = false
			done++
		}
	}
	if done < 3000 || waits < 100 {
		t.Errorf("%d starts and %d waits: this says too little", done, waits)
	}
}

func checkTaken(t *testing.T, before []Room, m *Moment, g *Gang, near Near) {
	t.Helper()
	used := int32(0)
	for i := range m.Rooms {
		used += before[i].Free - m.Rooms[i].Free
	}
	if used != g.gpus() || len(m.taken) != int(g.Tasks) {
		t.Fatalf("%d GPUs are taken on %v by %+v", used, m.taken, g)
	}
	for _, n := range m.taken {
		r, first := &m.Rooms[n], &m.Rooms[m.taken[0]]
		if r.Free < 0 || !g.suits(r) || r.Kind != first.Kind || near == SameRack && r.Rack != first.Rack ||
			near == SameNode && n != m.taken[0] {
			t.Fatalf("%+v at %d on %v of %+v", g, near, m.taken, m.Rooms)
		}
	}
}

// The order of nodes and jobs does not matter: the same job is started, at the same level, with the same
// probability.
func TestEquivariant(t *testing.T) {
	r := NewRand(12)
	agent := NewAgent(NewRand(1), schedShape)
	for range 500 {
		m := moment(r)
		s := NewSched2(agent)
		m.Begin()
		if !s.scene.look(m) {
			continue
		}
		agent.Judge(&s.scene.Scene, &s.look)
		want := slices.Clone(s.look.Probs)
		nodes, jobs := make([]int, len(m.Rooms)), make([]int, len(m.Line))
		for _, list := range [][]int{nodes, jobs} {
			for i := range list {
				list[i] = i
			}
			Shuffle(r, list)
		}
		o := &Moment{Running: m.Running}
		for _, i := range nodes {
			o.Rooms = append(o.Rooms, m.Rooms[i])
		}
		for _, i := range jobs {
			o.Line = append(o.Line, m.Line[i])
		}
		o.Begin()
		s.scene.look(o)
		agent.Judge(&s.scene.Scene, &s.look)
		for row, p := range s.look.Probs {
			slot, near, wait := RowOf(row)
			from := row
			if !wait && slot < len(jobs) {
				from = jobs[slot]*int(levels) + int(near)
			}
			if math.Abs(p-want[from]) > 1e-9 {
				t.Fatalf("row %d has probability %v, before %v", row, p, want[from])
			}
		}
	}
}

// brief is a short training.
func brief(seed uint64) Training {
	t := DefaultTraining(SystemSched2, seed)
	t.Rounds, t.Worlds, t.Imitated, t.Judges = 2, 2, 4, 4
	return t
}

// The same seed gives the same weights, another seed others; and weights survive a file unchanged.
func TestWeights(t *testing.T) {
	train := func(seed uint64) *Agent {
		tr := brief(seed)
		return tr.Sched2()
	}
	a, b, c := train(1), train(1), train(2)
	if a.Digest() != b.Digest() || a.Digest() == c.Digest() {
		t.Errorf("digests %s, %s and of another seed %s", a.Digest(), b.Digest(), c.Digest())
	}
	text, err := a.Write(SystemSched2, "a test")
	if err != nil {
		t.Fatal(err)
	}
	back, err := Read(SystemSched2, text)
	if err != nil {
		t.Fatal(err)
	}
	again, err := back.Write(SystemSched2, "a test")
	if err != nil || string(again) != string(text) {
		t.Errorf("what is read and written again differs: %v", err)
	}
	for i, p := range back.params() {
		for k, v := range p {
			if w := a.params()[i][k]; math.Abs(v-w) > 2e-6*math.Abs(w) {
				t.Errorf("list %d weight %d: %v, was %v", i, k, v, w)
			}
		}
	}
}

// An error in a file is named.
func TestReadErrors(t *testing.T) {
	good, err := NewAgent(NewRand(1), schedShape).Write(SystemSched2, "a test")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ old, new, want string }{
		{`{`, `[`, "not weights"},
		{`"trained"`, `"treined"`, `unknown field "treined"`},
		{`weights/v1`, `weights/v9`, `version: "muster.weights/v9", want "muster.weights/v1"`},
		{`:"sched2"`, `:"meta-rl"`, `system: the weights are of "meta-rl", want "sched2"`},
		{`"rate"`, `"rite"`, "nets: rate: 0 layers, want 3"},
		{`"in":4`, `"in":5`, "nets: encode: layer 0: 5 inputs and 16 outputs, want 4 and 16"},
		{`"w":[`, `"w":[1,`, "layer 0: w has 65 numbers, want 64"},
		{`"b":[0`, `"b":[1e9`, "number 0 is 1e+09"},
	} {
		if _, err := Read(SystemSched2, []byte(strings.Replace(string(good), c.old, c.new, 1))); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want ... %s", c.new, err, c.want)
		}
	}
	read := func(string) ([]byte, error) { return good, nil }
	if _, err := Load(SystemSched2, "w.json", "00000000", read); err == nil ||
		!strings.Contains(err.Error(), "weights=w.json: their digest is") {
		t.Errorf("other weights than were asked for: %v", err)
	}
	if _, err := Load(SystemSched2, "", "", nil); err != nil {
		t.Errorf("the weights that are shipped: %v", err)
	}
}

// Growing errors are detected, and stable ones are no drift.
func TestCUSUM(t *testing.T) {
	for seed := range uint64(50) {
		r, c := NewRand(seed), CUSUM{Slack: 0.5, Limit: 10, Mean: 1, Dev: 0.2}
		for i := range 500 {
			if c.Add(1 + 0.2*r.Norm()) {
				t.Fatalf("seed %d: a drift after %d errors that are as usual", seed, i)
			}
		}
		n := 1
		for !c.Add(1.4 + 0.2*r.Norm()) {
			n++
		}
		if n < 2 || n > 40 {
			t.Errorf("seed %d: two deviations more are found after %d errors", seed, n)
		}
	}
}

// Reptile moves all weights by the same fraction.
func TestReptile(t *testing.T) {
	a, b := NewAgent(NewRand(1), schedShape), NewAgent(NewRand(2), schedShape)
	was := a.Clone()
	Reptile(a, b, 0.1)
	for i, p := range a.params() {
		for k, v := range p {
			near(t, "weight", v, was.params()[i][k]+0.1*(b.params()[i][k]-was.params()[i][k]))
		}
	}
}

// script decides by a list of numbers, the index of the possible action each time, and records how many actions
// were possible.
type script struct {
	Sched2
	chosen, open []int
}

func (s *script) Next(m *Moment) (Pick, bool) {
	if !s.scene.look(m) {
		return Pick{}, false
	}
	var rows []int
	for row, ok := range s.scene.Mask {
		if ok {
			rows = append(rows, row)
		}
	}
	at := len(s.open)
	if s.open = append(s.open, len(rows)); at == len(s.chosen) {
		s.chosen = append(s.chosen, 0)
	}
	return s.take(m, rows[s.chosen[at]]), true
}

// least is the least mean JCT of a world, over all sequences of actions.
func least(w *World) (best float64, plays int) {
	best = math.Inf(1)
	for choices := []int(nil); ; plays++ {
		s := &script{chosen: choices}
		out := w.Play(s, nil)
		best = min(best, out.MeanJCT(w.Jobs))
		at := len(s.open) - 1
		for at >= 0 && s.chosen[at] == s.open[at]-1 {
			at--
		}
		if at < 0 {
			return best, plays + 1
		}
		choices = append(s.chosen[:at:at], s.chosen[at]+1)
	}
}

// Two nodes, and jobs that run twice as long when their tasks are on both: after at most 2000 episodes, without
// imitation, an agent gets 95 % of what the best sequence of choices gets.
func TestToy(t *testing.T) {
	rooms := []Room{{GPUs: 4, Free: 4}, {GPUs: 4, Free: 4}}
	gang := func(submit float64, tasks int32, run float64) Job {
		return Job{Tasks: tasks, Each: 1, Submit: submit, Run: run, Loss: [2]float64{0.5, 0.5}}
	}
	worlds := []*World{ // where the rule that starts as near as possible splits a gang that had better wait
		{Rooms: rooms, Jobs: []Job{gang(0, 2, 20), gang(0, 3, 300), gang(1, 3, 200), gang(2, 1, 100)}},
		{Rooms: rooms, Jobs: []Job{gang(0, 3, 30), gang(0, 3, 40), gang(5, 2, 200), gang(6, 4, 100)}},
		{Rooms: rooms, Jobs: []Job{gang(0, 4, 100), gang(0, 2, 10), gang(0, 3, 100), gang(9, 2, 50)}},
	}
	a := NewAgent(NewRand(1), schedShape)
	rules := Defaults()
	rules.Gamma, rules.Rate = 1, 1e-3
	l := NewLearner(a, rules, 1)
	const batch = 20
	for episode := 0; episode < shared.Soak(1000, 2000); episode += batch {
		var choices []Choice
		for k := range batch {
			choices = append(choices, l.Episode(worlds[k%len(worlds)], ShortestService(), false)...)
		}
		l.Improve(choices)
	}
	for i, w := range worlds {
		own, rule := w.Play(NewSched2(a), nil), w.Play(ShortestService(), nil)
		best, plays := least(w)
		got := own.MeanJCT(w.Jobs)
		t.Logf("world %d: mean JCT %.1f, at best %.1f of %d sequences, by the rule %.1f", i, got, best, plays,
			rule.MeanJCT(w.Jobs))
		if best < 0.95*got || plays < 20 {
			t.Errorf("world %d: mean JCT %v, at best %v of %d sequences", i, got, best, plays)
		}
	}
}

// surrogate is PPO's clipped objective of one decision (Schulman et al., 2017), to be maximised: ratio is how
// much more probable the decision is than when it was taken.
func surrogate(ratio, advantage, clip float64) float64 {
	return min(float64(ratio*advantage), float64(within(ratio, 1-clip, 1+clip)*advantage))
}
