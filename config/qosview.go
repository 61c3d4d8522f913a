package config

import (
	"fmt"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/show"
)

// Treated is how the traffic of a run is treated, and how far that is carried out: as it was started, as it is to be
// now, what became of its marks, and what it reports. It is nil if all is as for any other job.
func (q *QoS) Treated(start, now *cluster.Treatment, marks string, p *show.Progress) *show.Network {
	was, is := start.Value(), now.Value()
	start, now = &was, &is
	if start.Plain() && now.Plain() {
		return nil
	}
	v := &show.Network{Class: now.Class, Spread: now.Spread, Shift: ask.Duration(now.Shift),
		Period: ask.Duration(now.Period)}
	if m, ok := q.Mark(now.Class); ok {
		v.DSCP = DSCPText(m.DSCP)
		v.Marks = marks
		if now.Class > len(q.Classes) {
			v.Marks += fmt.Sprintf("; the network has %d classes (network.classes)", len(q.Classes))
		}
	}
	v.Verbs = q.verbsText(start, now)
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
func (q *QoS) verbsText(start, now *cluster.Treatment) string {
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
