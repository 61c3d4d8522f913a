package nexus

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Query is a stage, or queries one after the other, or queries side by side of which the slowest counts: a graph of
// models in which what forks joins again, or a tree.
type Query struct {
	Stage            *Stage
	Serial, Parallel []Query
}

// Stage is a model of a query.
type Stage struct {
	Name  string
	Rate  float64 // requests per second for this model
	Takes Curve
}

// Budget is the part of a query's goal that a stage may take.
type Budget struct {
	Stage string
	Goal  time.Duration
}

// mostSteps bounds in how many steps a goal is divided.
const mostSteps = 2000

// Split divides a query's goal among its stages, in whole steps, so that together they need the fewest GPUs when each
// runs its saturated batch (Nexus, section 6.2: dynamic programming over the time that is left). gpus is how many that
// are, with fractions.
func (q *Query) Split(goal, step time.Duration) (list []Budget, gpus float64, err error) {
	if step <= 0 || goal < step || goal/step > mostSteps {
		return nil, 0, fmt.Errorf("a goal of %v is not divided in steps of %v: from 1 to %d are", goal, step, mostSteps)
	}
	if err := q.check(); err != nil {
		return nil, 0, err
	}
	n := int(goal / step)
	d := q.divide(n, step)
	if math.IsInf(d.gpus[n], 1) {
		return nil, 0, fmt.Errorf("batches of one request take more than half of what there is of %v for each stage",
			goal)
	}
	return d.budgets(nil, n, step), d.gpus[n], nil
}

func (q *Query) check() error {
	if (q.Stage != nil) == (len(q.Serial)+len(q.Parallel) > 0) || len(q.Serial) > 0 && len(q.Parallel) > 0 {
		return errors.New("a query is a stage, or queries one after the other, or side by side")
	}
	if s := q.Stage; s != nil {
		as := Session{Rate: s.Rate, Goal: 1, Takes: s.Takes}
		if err := as.check(); err != nil {
			return fmt.Errorf("stage %q: %w", s.Name, err)
		}
	}
	for _, list := range [][]Query{q.Serial, q.Parallel} {
		for i := range list {
			if err := list[i].check(); err != nil {
				return err
			}
		}
	}
	return nil
}

// divided is the best ways to divide any time among the stages of a query.
type divided struct {
	stage *Stage
	parts []*divided
	gpus  []float64 // by the time in steps
	last  [][]int   // one after the other: by part and time of the parts up to it, the time of that part
}

func (q *Query) divide(n int, step time.Duration) *divided {
	d := &divided{stage: q.Stage, gpus: make([]float64, n+1)}
	if q.Stage != nil {
		for t := range d.gpus {
			_, rate := q.Stage.Takes.Saturated(time.Duration(t) * step)
			d.gpus[t] = q.Stage.Rate / rate // infinite where no batch is fast enough
		}
		return d
	}
	for i := range q.Parallel {
		part := q.Parallel[i].divide(n, step)
		d.parts = append(d.parts, part)
		for t := range d.gpus {
			d.gpus[t] += part.gpus[t]
		}
	}
	for i := range q.Serial {
		part := q.Serial[i].divide(n, step)
		d.parts, d.last = append(d.parts, part), append(d.last, make([]int, n+1))
		if i == 0 {
			for t := range d.gpus {
				d.gpus[t], d.last[0][t] = part.gpus[t], t
			}
			continue
		}
		for t := n; t >= 0; t-- { // shorter times are still those without this part
			best := math.Inf(1)
			for own := range t + 1 {
				if sum := d.gpus[t-own] + part.gpus[own]; sum < best {
					best, d.last[i][t] = sum, own
				}
			}
			d.gpus[t] = best
		}
	}
	return d
}

// budgets lists what each stage gets of a time.
func (d *divided) budgets(list []Budget, t int, step time.Duration) []Budget {
	if d.stage != nil {
		return append(list, Budget{d.stage.Name, time.Duration(t) * step})
	}
	own := make([]int, len(d.parts))
	for i := len(d.parts) - 1; i >= 0; i-- {
		if own[i] = t; d.last != nil {
			own[i] = d.last[i][t]
			t -= own[i]
		}
	}
	for i := range d.parts {
		list = d.parts[i].budgets(list, own[i], step)
	}
	return list
}
