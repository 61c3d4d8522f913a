package power

import "github.com/muster-gpu/muster/cluster"

// hours is the number of hours of the week; the first begins on Sunday at midnight.
const hours = 7 * 24

const hourSeconds = 3600

// Forecast is the number of nodes in use by hour of the week, in UTC: an exponential mean in which
// the latest such hour counts for a half, the one before for a quarter, and so on. An hour of the
// week that was not observed yet is estimated from the same hour of other days. The forecast is the
// current use plus half of the difference between the means of then and now, because no week is
// like the last. If either mean is unknown, the forecast is the current use.
type Forecast struct {
	Week  []int64 `json:"week,omitempty"` // thousandths of nodes by hour of the week, plus 1; 0: not observed
	Hour  int64   `json:"hour,omitempty"` // current hour, counted from 1970
	Sum   int64   `json:"sum,omitempty"`  // sum of nodes in use in it so far
	Count int64   `json:"count,omitempty"`
}

// observe books the number of nodes in use.
func (f *Forecast) observe(now int64, used int) {
	if len(f.Week) != hours {
		f.Week = make([]int64, hours)
	}
	hour := floor(now, hourSeconds)
	if f.Count > 0 && hour != f.Hour {
		mean := f.Sum * 1000 / f.Count
		if w := &f.Week[slot(f.Hour)]; *w == 0 {
			*w = mean + 1
		} else {
			*w = (*w-1+mean)/2 + 1
		}
		f.Sum, f.Count = 0, 0
	}
	f.Hour, f.Sum, f.Count = hour, f.Sum+int64(used), f.Count+1
}

func floor(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// slot is the hour of the week of an hour since 1970; 1 January 1970 was a Thursday.
func slot(hour int64) int { return int(((hour+4*24)%hours + hours) % hours) }

// season is the mean use in an hour of the week, in thousandths of nodes.
func (f *Forecast) season(hour int64) (mean int64, ok bool) {
	if len(f.Week) != hours {
		return 0, false
	}
	at := slot(hour)
	if v := f.Week[at]; v > 0 {
		return v - 1, true
	}
	n := int64(0)
	for day := range 7 {
		if v := f.Week[at%24+24*day]; v > 0 {
			mean += v - 1
			n++
		}
	}
	if n == 0 {
		return 0, false
	}
	return mean / n, true
}

// At is the forecast for an instant, in thousandths of nodes; now and at are Unix seconds.
func (f *Forecast) At(now, at int64, s Seen) int64 {
	base, ok := f.season(floor(now, hourSeconds))
	then, too := f.season(floor(at, hourSeconds))
	if !ok || !too {
		return int64(s.Used) * 1000
	}
	return min(max(0, int64(s.Used)*1000+(then-base)/2), int64(s.Total)*1000)
}

// sum adds the forecasts for n steps, of which now is the first.
func (f *Forecast) sum(p *cluster.Power, now int64, s Seen, n int) (sum int64) {
	every := seconds(p.Every)
	for i := range int64(n) {
		sum += f.At(now, now+i*every, s)
	}
	return sum
}

// Error is the forecasts' error: the difference between the expected and the actual mean use over
// the time ahead (Power.Future), in thousandths of nodes, summed over the steps for which both are
// known; and the same for a no-change forecast.
type Error struct {
	Steps int64      `json:"steps,omitempty"`
	Model int64      `json:"model,omitempty"`
	Naive int64      `json:"naive,omitempty"`
	Ahead int        `json:"ahead,omitempty"` // number of steps that forecasts in Open cover
	Open  []expected `json:"open,omitempty"`  // oldest first: the outcome is not known yet
}

type expected struct {
	Sum  int64 `json:"sum"` // thousandths of nodes, over the steps ahead
	Used int64 `json:"used"`
}

// book adds a forecast for a number of steps, of which the current one is the first, and scores the
// one whose outcome is now complete. Forecasts for another number of steps are dropped.
func (e *Error) book(last []int32, sum int64, used, ahead int) {
	if e.Ahead != ahead {
		e.Ahead, e.Open = ahead, nil
	}
	e.Open = append(e.Open[max(0, len(e.Open)-ahead+1):], expected{sum, int64(used)})
	if len(e.Open) < ahead || len(last) < ahead {
		return
	}
	came, first := int64(0), e.Open[0]
	for _, v := range last[len(last)-ahead:] {
		came += 1000 * int64(v)
	}
	e.Open = append(e.Open[:0], e.Open[1:]...)
	e.Steps++
	e.Model += abs(first.Sum-came) / int64(ahead)
	e.Naive += abs(first.Used*1000*int64(ahead)-came) / int64(ahead)
}

func abs(v int64) int64 { return max(v, -v) }
