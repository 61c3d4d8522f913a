//go:build linux

package local

import (
	"time"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/show"
)

// mostLinks bounds the links that are shown.
const mostLinks = 32

// addNetwork adds to a running job what it loses on the network, and to which others. It needs the state for itself.
func (m *Machine) addNetwork(v *show.Job) {
	on, yes := m.eng.OnNetwork(cluster.JobID(v.ID))
	if !yes {
		return
	}
	n := show.Network{}
	if v.Network != nil {
		n = *v.Network
	}
	n.Traffic, n.Source = on.Traffic.Text(), string(on.Source)
	n.Alone, n.Takes = ask.Duration(on.Alone.Round(time.Microsecond)), ask.Duration(on.Takes.Round(time.Microsecond))
	for _, w := range on.With {
		n.Loses = append(n.Loses,
			show.Loss{Job: int(w.Job), Link: w.Link, Lost: ask.Duration(w.Lost.Round(time.Microsecond))})
	}
	v.Network = &n
}

// Links lists what the running jobs put on the links of the network, the busiest first.
func (m *Machine) Links() (list []show.Link) {
	if m.opt.Rules.Spec.Network == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	loads := m.eng.LinkLoads()
	for _, l := range loads[:min(len(loads), mostLinks)] {
		s := show.Link{Name: l.Name, Rate: l.Rate}
		for class, part := range l.Classes {
			if part > 0 {
				s.Load += part
				s.Classes = append(s.Classes, show.ClassLoad{Class: class, Load: part})
			}
		}
		list = append(list, s)
	}
	return list
}
