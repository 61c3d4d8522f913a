//go:build linux

package local

import (
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/local/foresight"
	"github.com/muster-gpu/muster/show"
)

const (
	// mostShown bounds the lists of an overview.
	mostShown = 100
	// promised is how many waiting jobs an overview expects a start for.
	promised = 20
)

// present is the machine as it is now.
func (m *Machine) present() show.Sample {
	s := show.Sample{At: m.opt.Now().UTC()}
	var sum float64
	measured := 0
	for _, n := range m.Nodes() {
		free, usable := n.Left()
		s.Free, s.Usable = s.Free+free, s.Usable+usable
		for _, g := range n.GPUs {
			s.Allocated += cluster.Whole - g.Free
			if g.Utilisation != nil {
				sum += *g.Utilisation
				measured++
			}
		}
	}
	if measured > 0 {
		mean := sum / float64(measured)
		s.Utilisation = &mean
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	for _, j := range m.jobs {
		if j.Info.Record.State == engine.Pending || j.Info.Record.State == engine.Placed {
			s.Waiting++
		} else {
			s.Running++
		}
	}
	return s
}

// Overview is the whole machine in one answer.
func (m *Machine) Overview() show.Overview {
	o := show.Overview{At: m.opt.Now().UTC(), Counts: map[string]int{}, Nodes: m.Nodes(), Queues: m.Queues(),
		Running: []show.Job{}, Waiting: []show.Job{}}
	o.Left, o.Links = show.LeftOf(o.Nodes), m.Links()
	o.Series = append(m.series.List(), m.present())
	seen := m.outlook.Latest(foresight.AnyJob, waitToList)
	line := m.line(seen)
	m.mu.RLock()
	defer m.mu.RUnlock()
	now := m.clock.Now()
	var ids []cluster.JobID
	for id, j := range m.jobs {
		if !j.Stored() {
			continue
		}
		o.Counts[j.Info.State]++
		if j.Info.Record.State != engine.Pending {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	for _, id := range ids[:min(len(ids), mostShown)] {
		o.Running = append(o.Running, m.view(m.jobs[id]))
	}
	for i := range line.List {
		j := m.jobs[line.List[i].Job]
		if j == nil || !j.Stored() || j.Info.Record.State != engine.Pending {
			continue // it started meanwhile
		}
		if len(o.Waiting) == promised {
			break
		}
		v := m.view(j)
		line.Place(&v)
		seen.SetExpected(&v, now)
		o.Waiting = append(o.Waiting, v)
	}
	return o
}

// lines keeps the last line that was computed; it is guarded by Machine.mu.
type lines struct {
	last *foresight.Line
	seq  int64
	at   time.Time
}

// line is the line of waiting jobs. The engine looks ahead for it, which needs
// the state for itself; so it is computed once for each step and second. Where
// nothing was foreseen, it is estimated when the first jobs will start.
func (m *Machine) line(seen *foresight.Forecast) *foresight.Line {
	now := m.opt.Now()
	most := 0
	if !seen.Made() || !seen.Seen[0].Complete() {
		most = promised
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if l := &m.lines; l.last != nil && l.seq == m.seq && now.Sub(l.at) < time.Second &&
		(l.last.Estimated || most == 0) {
		return l.last
	}
	m.eng.Look(m.clock.Now())
	l := foresight.LineOf(m.eng, most)
	m.lines = lines{l, m.seq, now}
	return l
}
