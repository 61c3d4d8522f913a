package relocations

import (
	"fmt"
	"maps"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/moves"
)

// End says that the place of a gang is kept no longer though none took it.
type End struct {
	Gang *gang.Gang
	*gang.Relocation
	Outcome string // for the count of outcomes
	Why     string
}

func end(w *gang.Gang, outcome, why string) *End {
	return &End{Gang: w, Relocation: w.Relocation, Outcome: outcome, Why: why}
}

// Text says so to people.
func (e *End) Text() string {
	return fmt.Sprintf("the place of %s on %s is kept no longer: %s", e.Name, e.To, e.Why)
}

// Late lets the place of a gang go whose time is over; nil: it is kept, or there is none.
func (r *Room) Late(w *gang.Gang, now cluster.Time) *End {
	p, await := w.Relocation, cluster.FormatDuration(r.await)
	switch {
	case p == nil || now < p.Until:
		return nil
	case w.Phase == gang.Moving:
		return end(w, moves.Late, "its owner made no others within "+await)
	}
	// A disruption budget may have changed its mind.
	return end(w, moves.Late, "its pods were not gone within "+await+" beyond their grace")
}

// Over lets the place of a gang go that has left and is not made again; nil: it is, or is not moved.
func (r *Room) Over(g *gang.Gang) *End {
	if p := g.Relocation; p == nil || !p.Ended() {
		return nil
	}
	return end(g, moves.Over, "it came to its end")
}

// Records has the engine's jobs.
type Records interface {
	Record(id cluster.JobID) *engine.JobRecord
}

// Lost lists those to which the engine did not give what was booked for them.
func (r *Room) Lost(jobs Records) (list []*End) {
	for _, id := range slices.Sorted(maps.Keys(r.onWay)) {
		w := r.onWay[id]
		if w.Phase != gang.Moving || w.Relocation.Start != nil {
			continue
		}
		if rec := jobs.Record(id); rec == nil || rec.State == engine.Pending || rec.State == engine.Done {
			list = append(list, end(w, moves.Lost, "its place was lost meanwhile"))
		}
	}
	return list
}

// LetGo gives up a place, and says what the engine has to know.
func (r *Room) LetGo(e *End) []engine.Event {
	r.remove(e.Gang, e.Relocation)
	cancelled := engine.Event{Type: engine.Cancelled, Job: e.Job}
	if e.Gang.Phase == gang.Stopping {
		return []engine.Event{cancelled}
	}
	return []engine.Event{{Type: engine.StartFailed, Job: e.Job}, cancelled}
}
