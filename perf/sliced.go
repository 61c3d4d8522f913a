package perf

import "fmt"

// TimeSlicing is the cost of taking turns on one GPU without MPS: each process gets an equal part
// of the time, whatever its job's share.
type TimeSlicing struct {
	Switch    int64            // part of a GPU's time (ppm) lost to switching, for each process after the first
	Duty      map[string]int64 // part of the time (ppm) for which a process of a job model keeps a GPU of its own busy
	Processes map[string]int   // processes per job of the model on each GPU; missing: 1
}

// Upper bounds of what a table may state.
const (
	mostSwitch    = Million / 10
	mostProcesses = 64
)

// Turns are processes of a job that take turns with others on one GPU.
type Turns struct {
	Duty      int64 // part of the time (ppm) for which each of them would keep the GPU busy
	Processes int
}

// Sliced is the speed of a process with this duty that takes turns with others on one GPU, in ppm of that
// alone; all are the processes there, its own included, and cost is the part of the time (ppm) that switching
// takes for each process after the first. While there is time for all, only switching slows them down;
// otherwise each may have as much of what it leaves as any other, and those that want less leave the rest to
// the others.
//
// Source: NVIDIA's MPS documentation (every process gets as much time); docs/results/gpu.md compares it with an H100.
func Sliced(cost, duty int64, all []Turns) int64 {
	wanted, left := int64(0), int64(0)
	for _, t := range all {
		wanted, left = wanted+t.Duty*int64(t.Processes), left+int64(t.Processes)
	}
	lost := min(cost*max(0, left-1), Million-1)
	most := Million * Million / (Million + lost)
	if wanted <= Million {
		return most
	}
	rest := Million - lost
	for below := int64(0); ; { // from those that want least on, all that want no more than their part
		next, n := duty, int64(0)
		for _, t := range all {
			switch {
			case t.Duty <= below || t.Duty > next:
			case t.Duty < next:
				next, n = t.Duty, int64(t.Processes)
			default:
				n += int64(t.Processes)
			}
		}
		if next == duty || next*left > rest {
			break
		}
		rest, left, below = rest-next*n, left-n, next
	}
	return min(most, rest*Million/(left*duty))
}

// sliced is the speed, in ppm of that alone, of a job whose processes take turns with others';
// false: the duty of one of them is not stated, or they do not take turns.
func (t *Table) sliced(model string, p *Placement) (ppm int64, ok bool) {
	if t.Slicing == nil || p.MPS {
		return 0, false
	}
	own, ok := t.turns(model)
	if !ok {
		return 0, false
	}
	all := []Turns{own}
	alone := Sliced(t.Slicing.Switch, own.Duty, all)
	for _, other := range p.Partners {
		o, ok := t.turns(other)
		if !ok {
			return 0, false
		}
		all = append(all, o)
	}
	return Sliced(t.Slicing.Switch, own.Duty, all) * Million / alone, true
}

// turns are the processes of a job on a GPU; false: that is not stated.
func (t *Table) turns(model string) (turns Turns, ok bool) {
	for _, m := range []string{model, "*"} {
		if turns.Duty, ok = t.Slicing.Duty[m]; ok {
			turns.Processes = max(1, t.Slicing.Processes[m])
			return turns, true
		}
	}
	return Turns{}, false
}

// TakesTurns implements speed.Turns.
func (b Belief) TakesTurns() bool {
	t, ok := b.Model.(*Table)
	return ok && t.Slicing != nil
}

// Turns implements speed.Turns.
func (b Belief) Turns(model string, beside []string) (ppm int64, ok bool) {
	t, ok := b.Model.(*Table)
	if !ok {
		return 0, false
	}
	return t.sliced(model, &Placement{Share: 1, Partners: beside})
}

func (s *TimeSlicing) check() error {
	if s.Switch < 0 || s.Switch > mostSwitch {
		return fmt.Errorf("switch %g; between 0 and %g are possible", float64(s.Switch)/Million,
			float64(mostSwitch)/Million)
	}
	for m, d := range s.Duty { // map order does not matter: any invalid one will do
		if d < 1 || d > Million {
			return fmt.Errorf("duty of %s: %g; it is a part of the time, more than 0 and at most 1", m,
				float64(d)/Million)
		}
	}
	for m, n := range s.Processes { // map order does not matter: any invalid one will do
		if _, ok := s.Duty[m]; n < 1 || n > mostProcesses || !ok {
			return fmt.Errorf("processes of %s: %d; between 1 and %d are possible, of job models with a duty", m, n,
				mostProcesses)
		}
	}
	return nil
}
