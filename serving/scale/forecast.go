package scale

import (
	"math"
	"slices"
	"time"
)

// forecast predicts the rate of requests some periods ahead: a level with a trend (Holt, 1957), each a moving mean, and
// how much the rate exceeded its predictions lately.
type forecast struct {
	ahead   int // periods
	begun   bool
	level   float64 // requests per second
	trend   float64 // of a period
	made    []float64
	exceeds []float64 // actual over predicted, the newest last
}

const (
	levelWeight = 0.5
	trendWeight = 0.2
	remembered  = 60 // predictions whose errors count
)

// add takes the rate of a period, and predicts that of a later one.
func (f *forecast) add(rate float64) {
	if !f.begun {
		f.begun, f.level = true, rate
	}
	if len(f.made) >= f.ahead && f.ahead > 0 {
		if p := f.made[0]; p > 0 {
			f.exceeds = append(f.exceeds, rate/p)
			if len(f.exceeds) > remembered {
				f.exceeds = f.exceeds[1:]
			}
		}
		f.made = f.made[1:]
	}
	before := f.level
	f.level = levelWeight*rate + (1-levelWeight)*(f.level+f.trend)
	f.trend = trendWeight*(f.level-before) + (1-trendWeight)*f.trend
	f.made = append(f.made, f.predicted())
}

// predicted is the rate that is expected after the periods ahead.
func (f *forecast) predicted() float64 { return max(0, f.level+float64(f.ahead)*f.trend) }

// margin is the factor by which all but a part of the recent rates did not exceed what was predicted: from 1 to 2.
func (f *forecast) margin(part float64) float64 {
	if len(f.exceeds) == 0 {
		return 1.2
	}
	sorted := slices.Clone(f.exceeds)
	slices.Sort(sorted)
	return min(2, max(1, sorted[min(len(sorted)-1, int(math.Ceil((1-part)*float64(len(sorted)))))]))
}

// periodsAhead is how many periods after this one a replica that is asked for now answers.
func (v *View) periodsAhead() int {
	longest := time.Duration(0)
	for i := range v.Service.Variants {
		longest = max(longest, v.Service.Variants[i].Startup)
	}
	return 1 + int((longest+v.Period-1)/v.Period)
}
