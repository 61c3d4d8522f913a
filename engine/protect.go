package engine

import (
	"github.com/muster-gpu/muster/cluster"
)

// Protected times (Defrag.Protected): no move begins in them, neither one that the engine
// finds nor one that is asked for. A job that is on its way when they begin arrives. Whether
// an instant is among them depends on the time alone, so a replay sees the same.

// protectedNow says why no job is moved now; "": they may be.
func (e *Engine) protectedNow() string {
	return e.defrag.Protected.Says(e.cfg.Spec.Unix(e.w.Now))
}

// unprotectedFrom is the first instant from one on at which jobs may be moved.
func (e *Engine) unprotectedFrom(t cluster.Time) cluster.Time {
	if end, within := e.defrag.Protected.Until(e.cfg.Spec.Unix(t)); within {
		return e.cfg.Spec.Instant(end)
	}
	return t
}

// postpone has moves that would be worth it wait for the end of a protected time.
func (e *Engine) postpone(m *Moves) {
	if text := e.protectedNow(); m.Worth && text != "" {
		m.Worth, m.Text = false, text
	}
}
