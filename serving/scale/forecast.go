package scale

import (
	"math"
	"slices"
	"sort"
	"time"
)

// forecast predicts the rate of requests some periods ahead, and how much the rate exceeded its predictions lately. It
// has two rules: a moving mean, and a level with a trend (Holt, 1957), which counts while it has erred clearly less:
// after a step, a trend overshoots.
type forecast struct {
	ahead   int // periods
	begun   bool
	mean    float64      // requests per second
	level   float64      // likewise
	trend   float64      // of a period
	made    [][2]float64 // predictions that are not due yet: by the mean, with the trend
	wrong   [2]float64   // by how much those of either rule were wrong lately
	exceeds [2][]float64 // actual over what they predicted, the newest last
}

const (
	levelWeight = 0.5
	trendWeight = 0.2
	errorWeight = 0.1
	clearly     = 0.8 // part of the mean's error below which the trend's is clearly less
	remembered  = 20  // predictions that the margin is for, times the periods for which a surprise makes them wrong
)

// add takes the rate of a period, and predicts that of a later one.
func (f *forecast) add(rate float64) {
	if !f.begun {
		f.begun, f.mean, f.level = true, rate, rate
	}
	if len(f.made) >= f.ahead && f.ahead > 0 {
		was := f.made[0]
		for k, p := range was {
			if x := &f.exceeds[k]; p > 0 {
				if *x = append(*x, rate/p); len(*x) > remembered*f.ahead {
					*x = (*x)[1:]
				}
			}
			f.wrong[k] = errorWeight*math.Abs(rate-p) + (1-errorWeight)*f.wrong[k]
		}
		f.made = f.made[1:]
	}
	f.mean += levelWeight * (rate - f.mean)
	before := f.level
	f.level = levelWeight*rate + (1-levelWeight)*(f.level+f.trend)
	f.trend = trendWeight*(f.level-before) + (1-trendWeight)*f.trend
	f.made = append(f.made, f.predictions())
}

func (f *forecast) predictions() [2]float64 {
	return [2]float64{f.mean, max(0, f.level+float64(f.ahead)*f.trend)}
}

// rule is which of the predictions counts.
func (f *forecast) rule() int {
	if f.wrong[1] < clearly*f.wrong[0] {
		return 1
	}
	return 0
}

// see takes the rate of a period, and predicts that of the one in which a replica that is asked for now answers.
func (f *forecast) see(v *View) {
	if v.Period > 0 {
		f.ahead = v.periodsAhead()
		f.add(v.Rate())
	}
}

// expected is the rate for which replicas are needed until those that are asked for after this period answer: what the
// forecast says, or what people expect if that is more, with a margin.
func (f *forecast) expected(v *View, margin float64) float64 {
	return max(v.Rate(), max(f.predicted(), v.stated())*margin)
}

// stated is the highest rate that people expect until a replica that is asked for in a period answers.
func (v *View) stated() float64 {
	now := v.Epoch + int64(v.Now)/int64(time.Second)
	return v.Service.Forecast.Most(now, now+int64(v.startup()+2*v.Period)/int64(time.Second))
}

// predicted is the rate that is expected after the periods ahead.
func (f *forecast) predicted() float64 { return f.predictions()[f.rule()] }

// trending is the predicted rate if it has a trend; else 0.
func (f *forecast) trending() float64 { return float64(f.rule()) * f.predicted() }

const (
	mostMargin  = 2.0 // also while nothing is known of how wrong predictions are, and no replica answers
	firstMargin = 1.2 // while nothing is known, and replicas answer or people say what they expect
)

// margin is the factor over what is predicted, from 1 to mostMargin, beyond which at most a part of all requests come.
// The part of the predictions that were exceeded most does not count, nor do steps beyond the largest margin: what is
// held for such a step would not be enough for the next one either.
func (f *forecast) margin(v *View, exceeded, beyond float64) float64 {
	all := slices.Sorted(slices.Values(f.exceeds[f.rule()]))
	switch {
	case len(all) == 0 && (v.stated() > 0 || slices.Max(v.Ready) > 0):
		return firstMargin
	case len(all) == 0:
		return mostMargin
	}
	counts := all[:max(1, int(math.Ceil((1-exceeded)*float64(len(all)))))]
	counts = counts[:sort.Search(len(counts), func(i int) bool { return counts[i] > mostMargin })]
	lo, hi := 1.0, mostMargin
	for hi-lo > 1e-3 {
		mid, lost := (lo+hi)/2, 0.0
		for _, x := range counts {
			lost += max(0, 1-mid/x)
		}
		if lost > beyond*float64(len(all)) {
			lo = mid
		} else {
			hi = mid
		}
	}
	return hi
}

// periodsAhead is how many periods after this one a replica that is asked for now answers.
func (v *View) periodsAhead() int { return 1 + int((v.startup()+v.Period-1)/v.Period) }

// startup is how long the variant takes that starts the slowest.
func (v *View) startup() (longest time.Duration) {
	for i := range v.Service.Variants {
		longest = max(longest, v.Service.Variants[i].Startup)
	}
	return longest
}
