// Package power says how many nodes of a cluster are to be awake: Helios' cluster energy saving (CES,
// SC'21; C-qssf-helios). Nodes wake when there are too few, and are put to sleep when use has fallen
// and is expected to fall. What is expected, a Meter learns from the cluster's own weeks.
package power

import (
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// Seen is what is there at one instant, in nodes that may sleep and are not out of order.
type Seen struct {
	Used   int // with jobs, starting ones and those that leave included
	Active int // awake, or waking
	Total  int
}

// Meter is what the rule remembers. It can be stored as JSON; the zero value knows nothing.
type Meter struct {
	Forecast
	Last  []int32 `json:"last,omitempty"`  // nodes in use at the latest steps, oldest first
	Grown int64   `json:"grown,omitempty"` // when nodes were woken last, Unix seconds; 0: never
	Over  int64   `json:"over,omitempty"`  // since when more are awake than used and buffer, Unix seconds; 0: they are not
	Error Error   `json:"error,omitzero"`
}

// Short says how many nodes are to be awake when jobs hold more than are: those that are used, and the
// buffer. It may be asked at any time; ok: there are too few.
func (m *Meter) Short(p *cluster.Power, now int64, s Seen) (active int, ok bool) {
	if s.Active >= s.Used {
		return s.Active, false
	}
	m.Grown, m.Over = now, 0
	return min(s.Total, s.Used+p.Buffer), true
}

// Step books one observation, one for each p.Every, and says how many nodes are to be awake: as many as
// are, or with the buffer as many as are used. now is Unix seconds.
func (m *Meter) Step(p *cluster.Power, now int64, s Seen) (active int) {
	active, _ = m.Short(p, now, s)
	past, ahead := steps(p.History, p.Every), steps(p.Future, p.Every)
	before := m.Last
	m.Last = append(m.Last, int32(s.Used))
	m.observe(now, s.Used)
	near, far := m.sum(p, now, s, ahead), m.sum(p, now, s, 2*ahead)
	m.Error.book(m.Last, near, s.Used, ahead)
	keep := max(past, ahead)
	m.Last = m.Last[max(0, len(m.Last)-keep):]
	want := min(active, s.Used+p.Buffer)
	switch {
	case want == active:
		m.Over = 0
		return active
	case m.Over == 0:
		m.Over = now
	}
	settled := p.Settled > 0 && now-m.Over >= seconds(p.Settled)
	switch used := int64(s.Used); {
	case m.Grown > 0 && now < m.Grown+seconds(p.Keep),
		active-want < p.Least,
		2*near < far, // in the longer run more is expected
		!settled && (len(before) < past || fell(before[len(before)-past:], used) < p.Fell*int64(past)),
		!settled && used*1000*int64(ahead)-near < p.Falls*int64(ahead),
		settled && near > used*1000*int64(ahead):
		return active
	}
	m.Over = 0
	return want
}

// fell is how far use is below what it was, in thousandths of nodes, summed over the steps before.
func fell(before []int32, used int64) (sum int64) {
	for _, v := range before {
		sum += 1000 * (int64(v) - used)
	}
	return sum
}

// steps is how many steps a time has, at least one.
func steps(d, every time.Duration) int { return max(1, int((d+every-1)/every)) }

func seconds(d time.Duration) int64 { return int64(d / time.Second) }
