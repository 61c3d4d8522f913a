package policy

import (
	"cmp"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/sched"
)

// placeInLine is a job's place in a line: least attained service first, then by submission and
// number.
type placeInLine struct {
	attained int64 // milli-GPU-milliseconds
	submit   cluster.Time
	id       cluster.JobID
	at       int32 // index of the job in the plan
	tier     cluster.Tier
}

// leastFirst is a line kept from plan to plan. Most jobs wait, so their service has not changed
// since the last plan: they keep their order, and only the others are sorted. The naive twin, which
// sorts all, is in the test. The zero value is ready to use.
type leastFirst struct {
	line  []placeInLine
	last  []placeInLine // of the last plan
	moved []placeInLine
	place []int32 // by number minus the first number: 1 + index in line; all 0 between plans
}

// begin empties the line.
func (l *leastFirst) begin() { l.last, l.line = l.line, l.last[:0] }

// join appends a job. Jobs join by ascending number.
func (l *leastFirst) join(at int, j sched.JobView) {
	spec := j.Spec()
	l.line = append(l.line, placeInLine{j.Attained(), spec.Submit, spec.ID, int32(at), spec.Tier})
}

// order sorts the line after all jobs have joined.
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
	slices.SortFunc(l.moved, compareInLine)
	l.merge(kept)
}

// merge merges the two sorted lists.
func (l *leastFirst) merge(kept []placeInLine) {
	moved := l.moved
	for i := range l.line {
		if len(moved) == 0 || len(kept) > 0 && compareInLine(kept[0], moved[0]) < 0 {
			l.line[i], kept = kept[0], kept[1:]
		} else {
			l.line[i], moved = moved[0], moved[1:]
		}
	}
}

func compareInLine(a, b placeInLine) int {
	switch {
	case a.attained != b.attained:
		return cmp.Compare(a.attained, b.attained)
	case a.submit != b.submit:
		return cmp.Compare(a.submit, b.submit)
	}
	return cmp.Compare(a.id, b.id)
}
