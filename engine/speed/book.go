// Package speed is how fast jobs are believed to be where, and beside which jobs: as their drivers state it, and as it
// was measured since. It changes only its beliefs: which job leaves because of them is decided by the engine.
package speed

import (
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/sched"
)

// Book has what is believed and what was measured.
type Book struct {
	World    *sched.World
	Jobs     func() []*job.State // by number; nil where there is none
	MinSpeed int64               // of jobs that state none, ppm
	Unshared bool                // it is not known which jobs share a GPU: the driver sees whole nodes

	between between
	paces   paces
}

// New makes a book in which nothing was measured yet, of jobs on a cluster.
func New(w *sched.World, spec *cluster.Spec, unshared bool, jobs func() []*job.State) Book {
	b := Book{World: w, Jobs: jobs, MinSpeed: spec.MinSpeed, Unshared: unshared}
	b.between.table, _ = w.Speeds.(Pairs)
	if t, ok := w.Speeds.(Turns); ok && spec.Sharing != cluster.MPS && t.TakesTurns() {
		b.between.turns = t
	}
	return b
}

// Restore goes on with what was measured.
func (b *Book) Restore(pairs []PairRecord, paces []PaceRecord) {
	b.between.restore(pairs)
	b.paces.restore(paces)
}

// PairRecords lists what was measured of pairs, by model.
func (b *Book) PairRecords() []PairRecord { return b.between.records() }

// PaceRecords lists how fast jobs were measured to go, by job model.
func (b *Book) PaceRecords() []PaceRecord { return b.paces.records() }

// Measured reports whether the speed of any job was measured.
func (b *Book) Measured() bool { return b.paces.revision > 0 }

// PairsMeasured reports whether any pair was.
func (b *Book) PairsMeasured() bool { return len(b.between.measured) > 0 }
