// Package power decides how many nodes of a cluster should be awake: Helios' cluster energy saving
// (CES, SC'21). Nodes wake when there are too few, and are put to sleep when use has fallen and is
// expected to fall. The forecast comes from a Meter, which learns from the cluster's own weeks.
package power

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// Seen is the state at one instant, counting nodes that may sleep and are not down.
type Seen struct {
	Used   int // with jobs, including starting and stopping ones
	Active int // awake or waking
	Total  int
}

// Meter is the state of the rule. It can be stored as JSON; the zero value is empty.
type Meter struct {
	Forecast
	Every int64   `json:"every,omitempty"` // seconds between the steps in Last
	Last  []int32 `json:"last,omitempty"`  // nodes in use at the latest steps, oldest first
	Grown int64   `json:"grown,omitempty"` // when nodes were last woken, Unix seconds; 0: never
	// since when more nodes are awake than used plus buffer, Unix seconds; 0: they are not
	Over  int64 `json:"over,omitempty"`
	Error Error `json:"error,omitzero"`
}

// most exceeds the nodes of any cluster; the rule's sums do not overflow with it.
const most = 1_000_000

// Check reports values of a stored meter that no meter can have: it was edited.
func (m *Meter) Check() error {
	bad := func(v int64) bool { return v < 0 || v > most }
	switch {
	case len(m.Week) != 0 && len(m.Week) != hours:
		return fmt.Errorf("week: %d hours; a week has %d", len(m.Week), hours)
	case slices.ContainsFunc(m.Week, func(v int64) bool { return v < 0 || v > 1000*most+1 }):
		return fmt.Errorf("week: an hour outside 0 to %d thousandths of nodes", 1000*most)
	case m.Count < 0 || m.Count > most || m.Sum < 0 || m.Sum > m.Count*most:
		return fmt.Errorf("sum: %d nodes, count: %d observations; neither is below 0, and their mean is at most %d",
			m.Sum, m.Count, most)
	case slices.ContainsFunc(m.Last, func(v int32) bool { return bad(int64(v)) }):
		return fmt.Errorf("last: nodes in use outside 0 to %d", most)
	case m.Every < 0 || m.Grown < 0 || m.Over < 0 || m.Error.Steps < 0 || m.Error.Model < 0 || m.Error.Naive < 0:
		return errors.New("every, grown, over, steps, model and naive are 0 or more")
	case slices.ContainsFunc(m.Error.Open, func(e expected) bool {
		return bad(e.Used) || e.Sum < 0 || e.Sum > 1000*most*most
	}):
		return fmt.Errorf("open: nodes outside 0 to %d", most)
	}
	return nil
}

// fit adapts the state to the rule's knobs and clock, which may have changed: observations at
// another interval are dropped, and so is an instant in the future.
func (m *Meter) fit(p *cluster.Power, now int64) {
	if every := seconds(p.Every); m.Every != every {
		if m.Every != 0 {
			m.Last, m.Error.Open = nil, nil
		}
		m.Every = every
	}
	m.Grown, m.Over = min(m.Grown, now), min(m.Over, now)
}

// Short returns how many nodes should be awake when jobs hold more than are: those in use, plus the
// buffer. It may be called at any time; ok: there are too few.
func (m *Meter) Short(p *cluster.Power, now int64, s Seen) (active int, ok bool) {
	if s.Active >= s.Used {
		return s.Active, false
	}
	m.Woke(now)
	return min(s.Total, s.Used+p.Buffer), true
}

// Woke books that nodes were woken (now in Unix seconds), including those that jobs woke before the
// rule ran.
func (m *Meter) Woke(now int64) { m.Grown, m.Over = now, 0 }

// Step books one observation, one for each p.Every, and returns how many nodes should be awake: as
// many as now, or as many as are used plus the buffer. now is in Unix seconds.
func (m *Meter) Step(p *cluster.Power, now int64, s Seen) (active int) {
	m.fit(p, now)
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
		2*near < far, // more use is expected in the longer run
		!settled && (len(before) < past || fell(before[len(before)-past:], used) < p.Fell*int64(past)),
		!settled && used*1000*int64(ahead)-near < p.Falls*int64(ahead),
		settled && near > used*1000*int64(ahead):
		return active
	}
	m.Over = 0
	return want
}

// fell is how far use is below its history, in thousandths of nodes, summed over the steps before.
func fell(before []int32, used int64) (sum int64) {
	for _, v := range before {
		sum += 1000 * (int64(v) - used)
	}
	return sum
}

// steps is the number of steps in a time, at least one.
func steps(d, every time.Duration) int { return max(1, int((d+every-1)/every)) }

func seconds(d time.Duration) int64 { return int64(d / time.Second) }
