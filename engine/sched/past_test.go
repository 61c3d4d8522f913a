package sched

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

func TestSizeClass(t *testing.T) {
	for milli, want := range map[cluster.Milli]int{0: 0, 250: 0, 1000: 1, 2000: 2, 3500: 2, 4000: 3, 7000: 3, 8000: 4,
		64000: 7} {
		if got := SizeClass(milli); got != want {
			t.Errorf("%d milli-GPU: class %d, want %d", milli, got, want)
		}
	}
}

func pickOne(r *rand.Rand, list ...string) string { return list[r.IntN(len(list))] }

// nearest is Near by its definition: all jobs ordered by kinship, distance and submission. Equal
// entries are interchangeable.
func nearest(s *Size, j *cluster.Job, n int) [][2]int64 {
	list := [][2]int64{}
	for i := range s.Jobs {
		c, kin := &s.Jobs[i], int64(2)
		if c.User == j.User {
			kin = 1
			if c.Name == j.Name {
				kin = 0
			}
		}
		far := 2 * int64(c.Submit-j.Submit)
		if far < 0 {
			far = -far - 1 // the earlier of two equally near
		}
		list = append(list, [2]int64{kin, far})
	}
	slices.SortFunc(list, func(a, b [2]int64) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) })
	return list[:min(n, len(list))]
}

// The nearest jobs are those of the definition; their run times identify them.
func TestNear(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 1))
	for range 500 {
		jobs := make([]Earlier, r.IntN(40))
		at := r.Perm(200)
		for i := range jobs {
			jobs[i] = Earlier{User: pickOne(r, "", "ann", "bob"), Name: pickOne(r, "", "eval", "train"),
				Submit: cluster.Time(at[i]) * cluster.Time(time.Second), Ran: time.Duration(at[i]) * time.Minute}
		}
		s := newSize(1, jobs)
		j := &cluster.Job{User: pickOne(r, "", "ann", "eve"), Name: pickOne(r, "", "train"),
			Submit: cluster.Time(r.IntN(200)) * cluster.Time(time.Second)}
		n := r.IntN(12)
		var got [][2]int64
		for _, ran := range s.Near(nil, j, n) {
			one := Size{Jobs: []Earlier{jobs[slices.IndexFunc(jobs, func(c Earlier) bool { return c.Ran == ran })]}}
			got = append(got, nearest(&one, j, 1)...)
		}
		if want := nearest(&s, j, n); !slices.Equal(got, want) {
			t.Fatalf("%d of %+v near %+v: %v, want %v", n, jobs, j, got, want)
		}
	}
}

// The statistics are those of the job's own size once enough jobs of that size have completed.
func TestLike(t *testing.T) {
	var p Past
	p.OrderSizes([]Earlier{{Milli: 1000, Ran: time.Hour}, {Milli: 8000, Ran: 3 * time.Hour},
		{Milli: 1000, Ran: 2 * time.Hour}})
	if s := p.Like(1000, 2); len(s.Jobs) != 2 || s.Runs[0] != time.Hour || s.Runs[15] != 2*time.Hour {
		t.Errorf("of one GPU: %+v", s)
	}
	for _, milli := range []cluster.Milli{8000, 2000} {
		if s := p.Like(milli, 2); len(s.Jobs) != 3 {
			t.Errorf("%d milli-GPU: %+v", milli, s)
		}
	}
	if s := (&Past{}).Like(1000, 0); len(s.Jobs) != 0 {
		t.Errorf("nothing completed: %+v", s)
	}
}
