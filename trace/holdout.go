package trace

import (
	"cmp"
	"slices"

	"github.com/muster-gpu/muster/cluster"
)

// HoldOut orders entries by when they were submitted and divides them: the last part of them, from 0 to 1, is held out
// and numbered from 0, as a workload of its own.
func HoldOut(entries []Entry, part float64) (rest, held []Entry) {
	slices.SortStableFunc(entries, func(a, b Entry) int { return cmp.Compare(a.Job.Submit, b.Job.Submit) })
	cut := int(float64(len(entries)) * (1 - part))
	held = slices.Clone(entries[cut:])
	for i := range held {
		held[i].Job.ID = cluster.JobID(i)
	}
	return entries[:cut], held
}
