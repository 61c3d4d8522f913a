package progress

import (
	"github.com/muster-gpu/muster/perf"
	"github.com/muster-gpu/muster/show"
)

// Falling is how the metric of a job fell by which it converges: at most mostLosses reports, of
// which every second one is left out when there are more.
type Falling struct {
	List  []perf.Loss `json:"list,omitempty"`
	Every float64     `json:"every,omitempty"` // steps between two reports
	End   float64     `json:"end,omitempty"`   // step at which it will have converged; 0: nobody knows
}

const mostLosses = 256

// Converges tells of a job that ends when its metric has converged after how many steps that will be
// (Optimus, EuroSys'18): from then on that is what its progress is measured by. stated is how it converges
// (perf.ParseConvergence), "" or nonsense: it states nothing. f is what is known so far, nil: nothing; it is
// never changed in place. p is changed.
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
		for len(list) > 0 && list[len(list)-1].Step >= m.Step { // it went back to a checkpoint
			list = list[:len(list)-1]
		}
		f = &Falling{List: append(list[:len(list):len(list)], perf.Loss{Step: m.Step, Value: *v}), Every: f.Every, End: f.End}
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
	end := max(f.End, p.Step+f.Every*float64(c.Times)) // it would have ended
	if p.Steps == 0 || end < p.Steps {
		p.Steps, p.Foretold = end, true
	}
	return known
}

// halved leaves out every second one but the last.
func halved(list []perf.Loss) (half []perf.Loss) {
	for k := range list {
		if (len(list)-1-k)%2 == 0 {
			half = append(half, list[k])
		}
	}
	return half
}
