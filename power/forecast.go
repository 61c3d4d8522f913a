package power

import "github.com/muster-gpu/muster/cluster"

// hours of the week; the first is that of Sunday at midnight.
const hours = 7 * 24

const hourSeconds = 3600

// Forecast is how many nodes are used in which hour of the week, in UTC: a mean of all such hours, of which
// the latest counts for a half, the one before for a quarter, and so on. An hour of the week that was
// not seen yet is taken from the same hour of the days that were. What is expected is today's level
// with the week's changes: use now, and half of what the mean of then differs from that of now, since no week
// is like the last. Where one of both is unknown, use as it is now.
type Forecast struct {
	Week  []int64 `json:"week,omitempty"` // thousandths of nodes, by hour of the week, and 1; 0: not seen
	Hour  int64   `json:"hour,omitempty"` // that is under way, counted from 1970
	Sum   int64   `json:"sum,omitempty"`  // of nodes used in it so far
	Count int64   `json:"count,omitempty"`
}

// observe books how many nodes are used.
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

// slot is the hour of the week of an hour since 1970, whose first day was a Thursday.
func slot(hour int64) int { return int(((hour+4*24)%hours + hours) % hours) }

// season is what is used in an hour of the week, in thousandths of nodes.
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

// sum adds the forecasts for so many steps, of which now is the first.
func (f *Forecast) sum(p *cluster.Power, now int64, s Seen, n int) (sum int64) {
	every := seconds(p.Every)
	for i := range int64(n) {
		sum += f.At(now, now+i*every, s)
	}
	return sum
}

// Error is how far forecasts were off: the mean of what was expected of the time ahead (Power.Future) against
// that of what came, in thousandths of nodes, summed over the steps for which both are known; and the same had
// nothing been expected but that use stays as it is.
type Error struct {
	Steps int64      `json:"steps,omitempty"`
	Model int64      `json:"model,omitempty"`
	Naive int64      `json:"naive,omitempty"`
	Ahead int        `json:"ahead,omitempty"` // steps that those in Open were expected for
	Open  []expected `json:"open,omitempty"`  // oldest first: what came is not known yet
}

type expected struct {
	Sum  int64 `json:"sum"` // thousandths of nodes, over the steps ahead
	Used int64 `json:"used"`
}

// book notes a forecast for so many steps ahead, of which the present one is the first, and compares the one
// of which all is known now. What was expected for another number of steps is compared with nothing.
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
