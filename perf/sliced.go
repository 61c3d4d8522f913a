package perf

import "fmt"

// TimeSlicing is what it costs that processes on one GPU take turns, as its driver has
// them: each gets as much time as any other, whatever share its job has.
type TimeSlicing struct {
	Switch    int64            // of a GPU's time, in ppm, that is lost to switching for each process after the first
	Duty      map[string]int64 // part of the time, in ppm, that a process of a job model keeps a GPU busy that it has alone
	Processes map[string]int   // of a job of the model on each GPU; missing: 1
}

// The most that a table may state.
const (
	mostSwitch    = Million / 10
	mostProcesses = 64
)

// Sliced is the speed of each of some processes on one GPU that take turns, in ppm of that
// alone: duty is the part of the time that all of them together would keep it busy, in ppm,
// and cost what switching takes for each after the first. As long as there is time for all
// only the switching is in their way, else they divide what it leaves.
//
// Source: NVIDIA's MPS documentation; a switch cost of 0.01 to 0.05 is usual.
func Sliced(cost int64, processes int, duty int64) int64 {
	lost := min(cost*int64(max(0, processes-1)), Million-1)
	if duty <= Million {
		return Million * Million / (Million + lost)
	}
	return (Million - lost) * Million / duty
}

// sliced is the speed of a job among others whose processes take turns with its own, in
// ppm of that alone; false: of one of them it is not stated how busy it keeps a GPU, or
// they do not take turns.
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

// busy is how much of the time all processes of a job would keep a GPU busy, in ppm, and
// how many they are; false: that is not stated.
func (t *Table) busy(model string) (duty int64, processes int, ok bool) {
	for _, m := range []string{model, "*"} {
		if duty, ok = t.Slicing.Duty[m]; ok {
			processes = max(1, t.Slicing.Processes[m])
			return duty * int64(processes), processes, true
		}
	}
	return 0, 0, false
}

// TakesTurns implements engine.Turns.
func (b Belief) TakesTurns() bool {
	t, ok := b.Model.(*Table)
	return ok && t.Slicing != nil
}

// Turns implements engine.Turns.
func (b Belief) Turns(model string, beside []string) (ppm int64, ok bool) {
	t, ok := b.Model.(*Table)
	if !ok {
		return 0, false
	}
	return t.sliced(model, &Placement{Share: 1, Partners: beside})
}

func (s *TimeSlicing) check() error {
	if s.Switch < 0 || s.Switch > mostSwitch {
		return fmt.Errorf("switch %g; between 0 and %g are possible", float64(s.Switch)/Million, float64(mostSwitch)/Million)
	}
	for m, d := range s.Duty { // order does not matter: any bad one will do
		if d < 1 || d > Million {
			return fmt.Errorf("duty of %s: %g; it is a part of the time, more than 0 and at most 1", m, float64(d)/Million)
		}
	}
	for m, n := range s.Processes { // order does not matter: any bad one will do
		if _, ok := s.Duty[m]; n < 1 || n > mostProcesses || !ok {
			return fmt.Errorf("processes of %s: %d; between 1 and %d are possible, of job models with a duty", m, n, mostProcesses)
		}
	}
	return nil
}
