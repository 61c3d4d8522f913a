package quota

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-gpu/muster/cluster"
)

func TestProportion(t *testing.T) {
	q := func(weight int64, guarantee, request Milli) VolcanoQueue {
		return VolcanoQueue{weight, guarantee, cluster.Unlimited, request}
	}
	for _, c := range []struct {
		name        string
		total, unit Milli
		queues      []VolcanoQueue
		want        []Milli
	}{
		// Volcano, Tests, Proportion.
		{"spec", 10, 1, []VolcanoQueue{q(1, 0, 1), q(1, 0, 10), q(2, 0, 10)}, []Milli{1, 3, 6}},
		{"guarantee kept though not asked for", 10, 1, []VolcanoQueue{q(1, 4, 1), q(1, 0, 10)}, []Milli{4, 6}},
		{"guarantee above the weight", 10, 1, []VolcanoQueue{q(9, 0, 10), q(1, 5, 10)}, []Milli{5, 5}},
		{"guarantee above the weight, finely", 10_000, 1, []VolcanoQueue{q(9, 0, 10_000), q(1, 5500, 10_000)},
			[]Milli{4500, 5500}},
		// Waterfill would give 4, 5, 11 here: the guarantee counts as a head start.
		{"head start", 20_000, 1, []VolcanoQueue{q(9, 0, 4000), q(1, 5000, 100_000), q(10, 0, 100_000)},
			[]Milli{4000, 5091, 10_909}},
		{"capability", 10, 1, []VolcanoQueue{{1, 0, 2, 10}, q(1, 0, 10)}, []Milli{2, 8}},
		{"real capability", 10, 1, []VolcanoQueue{q(9, 0, 10), q(1, 3, 0)}, []Milli{7, 3}},
		{"thirds", 10, 1, []VolcanoQueue{q(1, 0, 10), q(1, 0, 10), q(1, 0, 10)}, []Milli{4, 3, 3}},
		{"units", 10_000, 1000, []VolcanoQueue{q(1, 0, 10_000), q(1, 0, 10_000), q(1, 0, 10_000)},
			[]Milli{4000, 3000, 3000}},
		{"guarantees beyond total", 10, 1, []VolcanoQueue{q(1, 8, 8), q(1, 8, 8)}, []Milli{8, 8}},
	} {
		if got := Proportion(c.total, c.unit, c.queues); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// Volcano, Invariants: Σ deserved <= total (+ guarantee slack), deserved
// <= max(request, guarantee). Without guarantees it is the water filling.
func TestProportionInvariants(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		total := rapid.Int64Range(0, 50_000).Draw(r, "total")
		plain := rapid.Bool().Draw(r, "plain")
		queue := rapid.Custom(func(r *rapid.T) VolcanoQueue {
			q := VolcanoQueue{rapid.Int64Range(1, 5).Draw(r, "weight"), 0,
				rapid.Int64Range(-1, 20_000).Draw(r, "capability"), rapid.Int64Range(0, 30_000).Draw(r, "request")}
			if !plain {
				q.Guarantee = rapid.Int64Range(0, 8).Draw(r, "guarantee") * gpu
			}
			return q
		})
		queues := rapid.SliceOfN(queue, 1, 6).Draw(r, "queues")
		got := Proportion(total, 1, queues)
		var sum, guaranteed Milli
		claims := make([]Claim, len(queues))
		for i, q := range queues {
			sum += got[i]
			guaranteed += q.Guarantee
			if got[i] > max(q.Request, q.Guarantee) || got[i] < q.Guarantee {
				r.Fatalf("share %d = %d of %+v", i, got[i], q)
			}
			claims[i] = Claim{Weight: q.Weight, Cap: min(q.Request, total)}
			if q.Capability >= 0 {
				claims[i].Cap = min(claims[i].Cap, q.Capability)
			}
		}
		if sum > total+guaranteed {
			r.Fatalf("%v sums up to %d of %d", got, sum, total)
		}
		if plain {
			for i, want := range Waterfill(total, 1, claims) {
				if d := got[i] - want; d < -1 || d > 1 {
					r.Fatalf("%v, water filling %v", got, Waterfill(total, 1, claims))
				}
			}
		}
	})
}

// Volcano, Tests, DRF: 9 CPU and 18 GB; A <1,4>, B <3,1>.
func TestDRF(t *testing.T) {
	total := []int64{9, 18}
	users := []DRFUser{{[]int64{1, 4}, 1, -1}, {[]int64{3, 1}, 1, -1}}
	got := ProgressiveFilling(total, users)
	if !slices.Equal(got, []int{3, 2}) {
		t.Fatalf("tasks %v, want 3 and 2", got)
	}
	for i, used := range [][]int64{{3, 12}, {6, 2}} {
		if s := Dominant(used, total); s.Cmp(Ratio{2, 3}) != 0 {
			t.Errorf("share %d = %v, want 2/3", i, s)
		}
	}
	if got := ProgressiveFilling([]int64{12}, []DRFUser{{[]int64{1}, 1, -1}, {[]int64{1}, 2, -1}}); !slices.Equal(got,
		[]int{4, 8}) {
		t.Errorf("weights: %v", got)
	}
	if got := ProgressiveFilling([]int64{4}, []DRFUser{{[]int64{1}, 1, 1}, {[]int64{0}, 1, -1}}); !slices.Equal(got,
		[]int{1, 0}) {
		t.Errorf("ends: %v", got)
	}
	if !DRFPreempts([]int64{1, 4}, []int64{3, 1}, total) || DRFPreempts([]int64{4, 4}, []int64{3, 1}, total) {
		t.Error("preempt only for the smaller share")
	}
}

// Volcano, Invariants: DRF is envy-free and Pareto-optimal, up to one task that did not fit.
func TestDRFInvariants(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		total := []int64{rapid.Int64Range(4, 30).Draw(r, "a"), rapid.Int64Range(4, 30).Draw(r, "b")}
		user := rapid.Custom(func(r *rapid.T) DRFUser {
			return DRFUser{[]int64{rapid.Int64Range(1, 4).Draw(r, "a"), rapid.Int64Range(1, 4).Draw(r, "b")}, 1, -1}
		})
		users := rapid.SliceOfN(user, 2, 4).Draw(r, "users")
		n := ProgressiveFilling(total, users)
		used := make([]int64, 2)
		for i, u := range users {
			used[0] += u.Task[0] * int64(n[i])
			used[1] += u.Task[1] * int64(n[i])
		}
		for i, u := range users {
			if fits(u.Task, used, total) {
				r.Fatalf("tasks %v: user %d has room for one more", n, i)
			}
			for j, v := range users {
				// With j's resources, i could run this many tasks; the granularity is one.
				m := min(v.Task[0]*int64(n[j])/u.Task[0], v.Task[1]*int64(n[j])/u.Task[1])
				if m > int64(n[i])+1 && !fullEarly(total, users, n, i) {
					r.Fatalf("tasks %v: user %d envies %d: %d tasks", n, i, j, m)
				}
			}
		}
	})
}

// fullEarly reports whether i's next task did not fit because its tasks are larger than the rest;
// then indivisible tasks, not DRF, decide.
func fullEarly(total []int64, users []DRFUser, n []int, i int) bool {
	for j := range users {
		if j == i {
			continue
		}
		mine := []int64{users[i].Task[0] * int64(n[i]+1), users[i].Task[1] * int64(n[i]+1)}
		its := []int64{users[j].Task[0] * int64(n[j]), users[j].Task[1] * int64(n[j])}
		if Dominant(mine, total).Cmp(Dominant(its, total)) <= 0 {
			return true
		}
	}
	return false
}

// Volcano, Tests, Capacity: total 80; Q1 guarantee 20, deserved 40.
func TestCapacityVictims(t *testing.T) {
	for _, c := range []struct {
		name        string
		used, each  int64
		victims     int
		left        int64
		reclaimerOK bool
	}{
		{"10-GPU tasks", 80, 10, 4, 40, true},
		{"15-GPU tasks", 75, 15, 3, 30, true},
	} {
		q1 := CapacityQueue{[]int64{c.used}, []int64{40}, []int64{20}}
		var tasks [][]int64
		for n := int64(0); n < c.used; n += c.each {
			tasks = append(tasks, []int64{c.each})
		}
		got := CapacityVictims(q1, tasks, []int64{40})
		if len(got) != c.victims || c.used-int64(len(got))*c.each != c.left {
			t.Errorf("%s: victims %v", c.name, got)
		}
		q2 := CapacityQueue{[]int64{0}, []int64{40}, []int64{0}}
		if !CapacityReclaims(q2, []int64{40}) || CapacityReclaims(q2, []int64{41}) {
			t.Errorf("%s: Q2 reclaims up to its deserved 40", c.name)
		}
	}
	q := CapacityQueue{[]int64{50, 5}, []int64{40, 9}, []int64{30, 0}}
	if CapacityVictim(q, []int64{25, 0}, []int64{1, 0}) {
		t.Error("below the guarantee")
	}
	if CapacityVictim(q, []int64{5, 1}, []int64{0, 1}) {
		t.Error("above deserved only where the reclaimer needs nothing")
	}
}
