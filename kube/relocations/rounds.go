package relocations

import (
	"cmp"
	"time"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/gang"
)

// roundEvery is how often moves are looked for, where the configuration does not say.
const roundEvery = 5 * time.Minute

// NextRound is when moves are looked for without being asked for. f is nil where no job is moved.
func (r *Room) NextRound(f *engine.Defrag, now cluster.Time) cluster.Time {
	if f == nil || !f.Auto || r.searching {
		return cluster.Never
	}
	if p := cluster.Time(cmp.Or(f.Every, roundEvery)); r.roundAt == 0 {
		r.roundAt = (now/p + 1) * p
		if end, within := f.Protected.Until(int64(r.roundAt / cluster.Time(time.Second))); within {
			r.roundAt = cluster.Time(end * int64(time.Second))
		}
	}
	return r.roundAt
}

// StartRound is what is looked for now, one after the other; none: it is not time yet, or there is nothing to look for.
// Else no other round begins until RoundOver.
func (r *Room) StartRound(f *engine.Defrag, now cluster.Time, all map[string]*gang.Gang) (list []*ask.MovesRequest) {
	if now < r.NextRound(f, now) {
		return nil
	}
	r.roundAt = 0
	for _, g := range all {
		if g.Phase == gang.Waiting {
			list = append(list, &ask.MovesRequest{})
			break
		}
	}
	if by := f.Compact; by != engine.NoCompact {
		list = append(list, &ask.MovesRequest{Compact: by.String()})
	}
	r.searching = len(list) > 0
	return list
}

// RoundOver ends a round.
func (r *Room) RoundOver() { r.searching = false }
