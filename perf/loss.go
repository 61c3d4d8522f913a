package perf

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Loss is a job's training loss after a number of steps.
type Loss struct {
	Step  float64 `json:"step"`
	Value float64 `json:"value"`
}

// LossCurve is a loss of the form l(k) = 1/(B0*k + B1) + B2 (Optimus, EuroSys'18) with B0 > 0, B1
// >= 0, B2 >= 0 and k in steps.
type LossCurve struct{ B0, B1, B2 float64 }

// At is the loss after k steps.
func (c LossCurve) At(k float64) float64 { return 1/(c.B0*k+c.B1) + c.B2 }

// leastLosses is the number of reports that a fit needs: the curve has three unknowns.
const leastLosses = 5

// FitLoss is the least-squares curve for the reports, which are in order of their steps. A report
// that both of its neighbours contradict counts as the closer of these. false: there are too few
// reports, or the loss does not fall.
func FitLoss(list []Loss) (c LossCurve, ok bool) {
	list = smooth(list)
	if len(list) < leastLosses {
		return c, false
	}
	most, least := 0.0, math.Inf(1)
	for _, p := range list {
		most, least = max(most, p.Value), min(least, p.Value)
	}
	if !(least >= 0) || !(most > least) || math.IsInf(most, 0) {
		return c, false
	}
	best := math.Inf(1)
	try := func(floor float64) float64 {
		f, err := fitAbove(list, floor, most)
		if err < best {
			best, c = err, f
		}
		return err
	}
	// The error as a function of the floor has one minimum for losses of this form, and may have
	// several otherwise: a grid search finds the best interval, a ternary search its minimum.
	const grid = 32
	at, low := 0, math.Inf(1)
	for i := range grid + 1 {
		if err := try(least * float64(i) / (grid + 1)); err < low {
			at, low = i, err
		}
	}
	from, to := least*float64(max(0, at-1))/(grid+1), least*float64(at+1)/(grid+1)
	for range 60 {
		a, b := from+(to-from)/3, to-(to-from)/3
		if try(a) < try(b) {
			to = b
		} else {
			from = a
		}
	}
	return c, c.B0 > 0 && !math.IsInf(best, 0)
}

// smooth drops values that are not numbers, and replaces outliers by a neighbour.
func smooth(list []Loss) []Loss {
	list = slices.DeleteFunc(slices.Clone(list), func(p Loss) bool {
		return math.IsNaN(p.Value) || math.IsInf(p.Value, 0) || math.IsNaN(p.Step) || math.IsInf(p.Step, 0)
	})
	was := slices.Clone(list)
	for i := 1; i+1 < len(list); i++ { // median of three
		a, b := was[i-1].Value, was[i+1].Value
		list[i].Value = max(min(a, b), min(max(a, b), was[i].Value))
	}
	return list
}

// fitAbove is the best curve with a floor B2, and the sum of its squared errors relative to the
// largest loss: 1/(l-B2) is linear in k. An error of the loss is an error of its inverse times
// (l-B2)^2, which gives the weights.
func fitAbove(list []Loss, floor, most float64) (c LossCurve, sum float64) {
	var n, x, y, xx, xy float64
	for _, p := range list {
		h := (p.Value - floor) / most
		if h <= 0 {
			return c, math.Inf(1)
		}
		w, v := h*h*h*h, 1/h
		n, x, y, xx, xy = n+w, x+w*p.Step, y+w*v, xx+w*p.Step*p.Step, xy+w*p.Step*v
	}
	slope, start := 0.0, y/n
	if d := n*xx - x*x; d > 0 {
		slope, start = (n*xy-x*y)/d, (xx*y-x*xy)/d
	}
	if slope < 0 { // both must be non-negative: clamp at the violated bound
		slope, start = 0, y/n
	}
	if start < 0 {
		slope, start = max(0, xy/xx), 0
	}
	c = LossCurve{slope / most, start / most, floor}
	for _, p := range list {
		e := (c.At(p.Step) - p.Value) / most
		if math.IsNaN(e) || math.IsInf(e, 0) {
			return c, math.Inf(1) // infinite at step 0
		}
		sum += e * e
	}
	return c, sum
}

// Convergence is a stopping rule: the job is done when its metric falls by less than the part Below
// between two reports, Times times in a row.
type Convergence struct {
	Metric string
	Below  float64
	Times  int
}

// ParseConvergence reads NAME:BELOW or NAME:BELOW:TIMES, such as loss:0.01:3.
func ParseConvergence(text string) (c Convergence, err error) {
	const form = "want NAME:BELOW or NAME:BELOW:TIMES, such as loss:0.01:3"
	part := strings.Split(text, ":")
	if len(part) < 2 || len(part) > 3 || part[0] == "" {
		return c, fmt.Errorf("%q: %s", text, form)
	}
	c.Metric, c.Times = part[0], 1
	if c.Below, err = strconv.ParseFloat(part[1], 64); err != nil || !(c.Below > 0 && c.Below < 1) {
		return c, fmt.Errorf("%q: BELOW is the part of itself by which the metric falls between two reports, between 0 and 1, such as 0.01; %s", text, form)
	}
	if len(part) == 3 {
		if c.Times, err = strconv.Atoi(part[2]); err != nil || c.Times < 1 || c.Times > 1000 {
			return c, fmt.Errorf("%q: TIMES is how often in a row, 1 to 1000; %s", text, form)
		}
	}
	return c, nil
}

// End is the step at which a loss with this curve, reported at the given interval, will have
// converged. Beyond its maximum the decrease between two reports falls monotonically, so a binary
// search starts there.
func (c Convergence) End(curve LossCurve, every float64) float64 {
	small := func(n float64) bool { // between reports n and n+1
		a, b := curve.At(n*every), curve.At((n+1)*every)
		return a-b < c.Below*a
	}
	first := 0.0
	if curve.B1 == 0 {
		first = 1 // there is no loss before the first step
	}
	if !small(first) {
		last := first + 1
		for !small(last) && last < 1e15 {
			last *= 2
		}
		for first+1 < last {
			if mid := math.Floor((first + last) / 2); small(mid) {
				last = mid
			} else {
				first = mid
			}
		}
		first = last
	}
	return (first + float64(c.Times)) * every
}

// Spacing is the median distance of reports, in steps; 0: fewer than two reports.
func Spacing(list []Loss) float64 {
	var gaps []float64
	for i := 1; i < len(list); i++ {
		gaps = append(gaps, list[i].Step-list[i-1].Step)
	}
	if len(gaps) == 0 {
		return 0
	}
	slices.Sort(gaps)
	return gaps[len(gaps)/2]
}
