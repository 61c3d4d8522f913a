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

// Sliced is the speed of each of several processes that take turns on one GPU, in ppm of that
// alone: duty is the part of the time, in ppm, for which all of them together would keep it busy,
// and cost that of switching for each process after the first. While there is time for all, only
// switching slows them down; otherwise they divide what it leaves.
//
// Source: NVIDIA's MPS documentation; a switch cost of 0.01 to 0.05 is usual.
func Sliced(cost int64, processes int, duty int64) int64 {
	lost := min(cost*int64(max(0, processes-1)), Million-1)
	if duty <= Million {
		return Million * Million / (Million + lost)
	}
	return (Million - lost) * Million / duty
}

// sliced is the speed, in ppm of that alone, of a job whose processes take turns with others';
// false: the duty of one of them is not stated, or they do not take turns.
func (t *Table) sliced(model string, p *Placement) (ppm int64, ok bool) {
	if t.Slicing == nil || p.MPS {
		return 0, false
	}
	duty, n, ok := t.busy(model)
	if !ok {
		return 0, false
	}
	alone := Sliced(t.Slicing.Switch, n, duty)
	for _, other := range p.Partners {
		d, k, ok := t.busy(other)
		if !ok {
			return 0, false
		}
		duty, n = duty+d, n+k
	}
	return Sliced(t.Slicing.Switch, n, duty) * Million / alone, true
}

// busy is the part of the time, in ppm, for which a job's processes would keep a GPU busy, and
// their number; false: that is not stated.
func (t *Table) busy(model string) (duty int64, processes int, ok bool) {
	for _, m := range []string{model, "*"} {
		if duty, ok = t.Slicing.Duty[m]; ok {
			processes = max(1, t.Slicing.Processes[m])
			return duty * int64(processes), processes, true
		}
	}
	return 0, 0, false
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
