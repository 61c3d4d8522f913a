package service

import (
	"errors"
	"fmt"

	"github.com/muster-gpu/muster/cluster"
)

// Forecast is what people expect of a service's requests.
type Forecast struct {
	Times          []ExpectedTimes
	Steps          []ExpectedStep // by time
	Prompt, Output float64        // tokens of a language model's requests, in the mean; 0: nothing is expected
}

// ExpectedTimes is a rate at times of the week.
type ExpectedTimes struct {
	cluster.Weekly
	Rate float64 // requests per second
}

// ExpectedStep is a rate from an instant on, until the next step.
type ExpectedStep struct {
	At   int64 // Unix seconds
	Rate float64
}

const maxRate = 1e9 // requests per second

func (f *Forecast) check() error {
	for _, t := range f.Times {
		if !(t.Rate >= 0 && t.Rate <= maxRate) {
			return fmt.Errorf("rate: %g is not a number of requests per second", t.Rate)
		}
	}
	for i, s := range f.Steps {
		switch {
		case !(s.Rate >= 0 && s.Rate <= maxRate):
			return fmt.Errorf("steps[%d]: rate: %g is not a number of requests per second", i, s.Rate)
		case i > 0 && s.At <= f.Steps[i-1].At:
			return fmt.Errorf("steps[%d]: at: is not later than the step before", i)
		}
	}
	if !(f.Prompt >= 0 && f.Output >= 0) || (f.Prompt > 0) != (f.Output > 0) {
		return errors.New("prompt and output are tokens, above 0, and are given together")
	}
	return nil
}

// Most is the highest rate that is expected between two instants (Unix seconds), to the minute; 0: nothing is.
func (f *Forecast) Most(from, to int64) (rate float64) {
	for i, s := range f.Steps {
		if s.At <= to && (i+1 == len(f.Steps) || f.Steps[i+1].At > from) {
			rate = max(rate, s.Rate)
		}
	}
	for i := range f.Times {
		t := &f.Times[i]
		for at := from; t.Rate > rate; at = min(to, at-at%60+60) {
			if _, within := t.Until(at); within {
				rate = t.Rate
			}
			if at >= to {
				break
			}
		}
	}
	return rate
}
