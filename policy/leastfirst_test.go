package policy

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/muster-gpu/muster/cluster"
)

// The naive twin sorts the line in each plan: jobs come and leave, some have gained service, and
// numbers jump to a distant range.
func TestLeastFirst(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	var l leastFirst
	var jobs []placeInLine
	next := cluster.JobID(0)
	for range 5000 {
		for range r.IntN(4) {
			jobs = append(jobs, placeInLine{0, cluster.Time(r.IntN(5)), next, 0, 0})
			next += cluster.JobID(1 + r.IntN(3))
		}
		if r.IntN(200) == 0 {
			jobs, next = nil, cluster.JobID(r.IntN(100_000))
		}
		jobs = slices.DeleteFunc(jobs, func(placeInLine) bool { return r.IntN(50) == 0 })
		l.begin()
		var twin []placeInLine
		for i := range jobs {
			if r.IntN(4) == 0 {
				jobs[i].attained += int64(r.IntN(3))
			}
			if jobs[i].at = int32(i); r.IntN(20) > 0 { // else its service is unchanged
				l.line, twin = append(l.line, jobs[i]), append(twin, jobs[i])
			}
		}
		l.order()
		if slices.SortFunc(twin, compareInLine); !slices.Equal(l.line, twin) {
			t.Fatalf("%v, want %v", l.line, twin)
		}
	}
}
