package policy

import (
	"cmp"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/sched"
)

// placeInLine is a job's place in a line: of equal ones who has had least comes first, then
// who came first.
type placeInLine struct {
	attained int64 // milli-GPU-milliseconds
	submit   cluster.Time
	id       cluster.JobID
	at       int32 // among the jobs of the plan
	tier     cluster.Tier
}

// leastFirst is a line from plan to plan. Most jobs wait, and have had as much as they had at the
// last plan: they come as they came then, and only the others are sorted. The dumb
// twin, which sorts all, is in the test. The zero value is ready.
type leastFirst struct {
	line  []placeInLine
	last  []placeInLine // of the last plan
	moved []placeInLine
	place []int32 // by number, the first's is 0: 1 + where a job is in the line; all 0 between plans
}

// begin empties the line.
func (l *leastFirst) begin() { l.last, l.line = l.line, l.last[:0] }

// join puts a job in the line. They come by number.
func (l *leastFirst) join(at int, j sched.JobView) {
	spec := j.Spec()
	l.line = append(l.line, placeInLine{j.Attained(), spec.Submit, spec.ID, int32(at), spec.Tier})
}

// order orders the line, in which all jobs are now.
func (l *leastFirst) order() {
	if len(l.line) == 0 {
		return
	}
	first, end := l.line[0].id, l.line[len(l.line)-1].id+1
	if n := int(end - first); n > cap(l.place) {
		l.place = make([]int32, n, n+n/2)
	} else {
		l.place = l.place[:n]
	}
	for i := range l.line {
		l.place[l.line[i].id-first] = int32(i + 1)
	}
	kept := l.last[:0]
	for i := range l.last {
		old := &l.last[i]
		if old.id < first || old.id >= end {
			continue
		}
		place := &l.place[old.id-first]
		if *place == 0 {
			continue
		}
		if now := &l.line[*place-1]; now.attained == old.attained && now.submit == old.submit {
			kept = append(kept, *now)
			*place = 0
		}
	}
	l.moved = l.moved[:0]
	for i := range l.line {
		if place := &l.place[l.line[i].id-first]; *place != 0 {
			l.moved = append(l.moved, l.line[i])
			*place = 0
		}
	}
	slices.SortFunc(l.moved, compareLined)
	l.merge(kept)
}

// merge makes the line of two that are in order.
func (l *leastFirst) merge(kept []placeInLine) {
	moved := l.moved
	for i := range l.line {
		if len(moved) == 0 || len(kept) > 0 && compareLined(kept[0], moved[0]) < 0 {
			l.line[i], kept = kept[0], kept[1:]
		} else {
			l.line[i], moved = moved[0], moved[1:]
		}
	}
}

func compareLined(a, b placeInLine) int {
	switch {
	case a.attained != b.attained:
		return cmp.Compare(a.attained, b.attained)
	case a.submit != b.submit:
		return cmp.Compare(a.submit, b.submit)
	}
	return cmp.Compare(a.id, b.id)
}
