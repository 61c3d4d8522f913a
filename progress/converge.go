package progress

import (
	"github.com/muster-gpu/muster/perf"
	"github.com/muster-gpu/muster/show"
)

// Falling holds the reports of the metric by which a job converges: at most mostLosses, thinned by
// half when there are more.
type Falling struct {
	List  []perf.Loss `json:"list,omitempty"`
	Every float64     `json:"every,omitempty"` // steps between two reports
	End   float64     `json:"end,omitempty"`   // step at which it will have converged; 0: unknown
}

const mostLosses = 256

// Converges predicts when a job that ends at convergence of its metric will end (Optimus,
// EuroSys'18), and sets the progress accordingly. stated is the convergence rule
// (perf.ParseConvergence); if it is empty or invalid nothing happens. f is the state so far, nil at
// first; it is never modified in place. p is modified.
func Converges(stated string, f *Falling, said []Measure, p *show.Progress) *Falling {
	c, err := perf.ParseConvergence(stated)
	if stated == "" || err != nil {
		return f
	}
	known, news := f, false
	if f == nil {
		f = &Falling{}
	}
	for _, m := range said {
		v, ok := m.Of[c.Metric]
		if !ok || v == nil || m.Trial != 0 {
			continue
		}
		news = true
		list := f.List
		for len(list) > 0 && list[len(list)-1].Step >= m.Step { // the job went back to a checkpoint
			list = list[:len(list)-1]
		}
		f = &Falling{List: append(list[:len(list):len(list)], perf.Loss{Step: m.Step, Value: *v}), Every: f.Every,
			End: f.End}
		if len(f.List) <= mostLosses/2 || f.Every == 0 {
			f.Every = perf.Spacing(f.List)
		}
		if len(f.List) > mostLosses {
			f.List = halved(f.List)
		}
	}
	if news {
		if curve, ok := perf.FitLoss(f.List); ok && f.Every > 0 {
			f.End = c.End(curve, f.Every)
		}
		known = f
	}
	if f.End == 0 {
		return known
	}
	end := max(f.End, p.Step+f.Every*float64(c.Times)) // it should have ended by now
	if p.Steps == 0 || end < p.Steps {
		p.Steps, p.Predicted = end, true
	}
	return known
}

// halved drops every second report but the last.
func halved(list []perf.Loss) (half []perf.Loss) {
	for k := range list {
		if (len(list)-1-k)%2 == 0 {
			half = append(half, list[k])
		}
	}
	return half
}
