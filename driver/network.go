package driver

import (
	"fmt"
	"time"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/show"
)

// Treated is how the traffic of a run is treated, and how far that is carried out: as it was started, as it is to be
// now, what became of its marks, and what it reports. It is nil if all is as for any other job.
func Treated(q *config.QoS, start, now *cluster.Treatment, marks string, p *show.Progress) *show.Network {
	was, is := start.Value(), now.Value()
	start, now = &was, &is
	if start.Plain() && now.Plain() {
		return nil
	}
	v := &show.Network{Class: now.Class, Spread: now.Spread, Shift: ask.Duration(now.Shift),
		Period: ask.Duration(now.Period)}
	if m, ok := q.Mark(now.Class); ok {
		v.DSCP = config.DSCPText(m.DSCP)
		v.Marks = marks
		if now.Class > len(q.Classes) {
			v.Marks += fmt.Sprintf("; the network has %d classes (network.classes)", len(q.Classes))
		}
	}
	v.Verbs = verbsText(q, start, now)
	if len(now.Path) > 0 {
		v.Path = "not applied: no library lets the path be chosen"
	}
	if now.Period > 0 {
		v.Slots = slotsText(p)
	}
	return v
}

// slotsText says whether a job's iterations begin in their slots, as it reports.
func slotsText(p *show.Progress) string {
	if p != nil {
		switch p.Slots {
		case show.SlotsHeld:
			return "held"
		case show.SlotsTooShort:
			return "not held: its iterations take longer than the period"
		}
	}
	return "not known: the job does not call muster.iteration(), or has not yet"
}

// verbsText says which class holds for InfiniBand and RoCE, whose libraries read it when the job starts.
func verbsText(q *config.QoS, start, now *cluster.Treatment) string {
	text := "no class"
	if m, ok := q.Mark(start.Class); ok {
		text = fmt.Sprintf("class %d: NCCL_IB_TC=%d", start.Class, m.TC)
	}
	if start.Spread > 1 {
		text += fmt.Sprintf(", NCCL_IB_QPS_PER_CONNECTION=%d", start.Spread)
	}
	text += ", as the job was started with"
	if start.Class != now.Class || max(1, start.Spread) != max(1, now.Spread) {
		text += "; it is to be another, for which it would have to start again"
	}
	return text
}

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
