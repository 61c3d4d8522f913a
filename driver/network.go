package driver

import (
	"time"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/show"
)

// OnNetwork adds to n what a running job loses on the network, and to which others; people know jobs by number. The
// result is nil if nothing is to be said.
func OnNetwork(eng *engine.Engine, id cluster.JobID, n *show.Network, number func(cluster.JobID) int) *show.Network {
	on, yes := eng.OnNetwork(id)
	if !yes {
		return n
	}
	v := show.Network{}
	if n != nil {
		v = *n
	}
	v.Traffic, v.Source = on.Traffic.Text(), string(on.Source)
	v.Alone, v.Takes = ask.Duration(on.Alone.Round(time.Microsecond)), ask.Duration(on.Takes.Round(time.Microsecond))
	for _, w := range on.With {
		v.Loses = append(v.Loses,
			show.Loss{Job: number(w.Job), Link: w.Link, Lost: ask.Duration(w.Lost.Round(time.Microsecond))})
	}
	return &v
}

// mostLinks bounds the links that are shown.
const mostLinks = 32

// Links lists what the running jobs put on the links of the network, the busiest first.
func Links(eng *engine.Engine) (list []show.Link) {
	loads := eng.LinkLoads()
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
