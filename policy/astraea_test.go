package policy

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/quota"
)

// C-astraea, vector 1: quota 4, two jobs of 4 and 2 GPUs: each deserves two, a
// lone one of the other tenant all four.
func TestDeserves(t *testing.T) {
	a, b := record{quota: 4, active: 2}, record{quota: 4, active: 1}
	for _, c := range []struct {
		t    record
		gpus int
		want int64
	}{{a, 4, 2000}, {a, 2, 2000}, {a, 1, 1000}, {b, 4, 4000}, {record{}, 4, 0}} {
		if got := c.t.deserves(c.gpus); got != c.want {
			t.Errorf("%+v, %d GPUs: %d, want %d", c.t, c.gpus, got, c.want)
		}
	}
	if got := quota.Work(a.deserves(4), 0, cluster.Time(10*time.Second)); got != 20*1000*1000 {
		t.Errorf("in ten seconds %d milli-GPU-milliseconds, want 20 GPU-seconds", got)
	}
}

// C-astraea, vector 2: four GPUs are free, A holds nothing of its quota of four, which
// is less than a fifth: so it is first, although it had more than B in the window, and
// its first job takes them all.
func TestStarvationGuard(t *testing.T) {
	tenants := func(held int) []*tenant {
		return []*tenant{
			{record: record{quota: 4}, held: 4, w: 100, u: 1, waiting: waitingFor(1)},
			{record: record{quota: 4}, held: held, w: 100, u: 99, waiting: waitingFor(4, 2)},
		}
	}
	if got, _ := (&astraeaRules{lease: time.Minute}).parts(tenants(0), 4); !slices.Equal(got, []int{0, 4}) {
		t.Errorf("parts %v, want 0 and 4", got)
	}
	if got, _ := (&astraeaRules{lease: time.Minute}).parts(tenants(1), 4); !slices.Equal(got, []int{1, 2}) { // a quarter: now what they had decides
		t.Errorf("parts %v, want 1 and, where four do not fit any more, 2", got)
	}
}

// waitingFor is a line of jobs that wait for so many GPUs.
func waitingFor(gpus ...int) (list []waitingLessee) {
	for i, g := range gpus {
		list = append(list, waitingLessee{&lessee{id: cluster.JobID(i), gpus: g}})
	}
	return list
}

// C-astraea, vector 3: a tenant that holds eight GPUs of a quota of four had
// twice what it was to have; and only the last 24 hours count.
func TestWindow(t *testing.T) {
	const hour = cluster.Time(time.Hour)
	x := tenant{record: record{quota: 4}, each: 1000}
	x.pass(4000, 8000, 0, 3*hour, hour)
	x.look(3*hour, hour, 0)
	if got := x.had(); got != 2 {
		t.Errorf("%g, want 2", got)
	}
	x.pass(4000, 0, 3*hour, 25*hour+hour/2, hour)
	x.look(25*hour+hour/2, hour, 0)
	if got, want := x.had(), 2/23.5; len(x.parts) != 24 || got < want-1e-9 || got > want+1e-9 {
		t.Errorf("%d parts, %g, want %g", len(x.parts), got, want)
	}
	if x.look(26*hour, hour, 0); x.had() != 0 {
		t.Errorf("%g of what was more than a day ago", x.had())
	}
	x.accounts = []account{{1, 100}, {8, 300}}
	memo := memoOf(5, []tenant{x, {record: record{key: 7, quota: 1, active: 2, service: 3000, accounts: []account{{2, 50}}}}})
	then, list := tenantsOf(memo)
	if then != 5 || len(list) != 2 || !slices.Equal(list[0].parts, x.parts) || list[1].key != 7 || list[1].service != 3000 || list[1].active != 2 || list[1].quota != 1 ||
		!slices.Equal(list[0].accounts, x.accounts) || !slices.Equal(list[1].accounts, []account{{2, 50}}) {
		t.Errorf("%v %+v", then, list)
	}
}

func TestFairnessClass(t *testing.T) {
	for _, c := range []struct {
		x    float64
		want int
	}{{0, 0}, {0.1, 1}, {0.5, 2}, {0.8, 2}, {0.95, 3}, {1.2, 3}, {2, 4}, {10, 5}} {
		if got := fairnessClass(c.x, 5); got != c.want {
			t.Errorf("%g: class %d, want %d", c.x, got, c.want)
		}
	}
}

// Parts end: whatever tenants hold and were to hold, each job is charged once, no
// more is given than is free, and what is left over fits nobody.
func TestPartsEnd(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 3))
	for range 2000 {
		tenants := make([]*tenant, 1+r.IntN(4))
		for i := range tenants {
			tenants[i] = &tenant{record: record{quota: r.IntN(5)}, held: r.IntN(9), w: float64(r.IntN(3)), u: float64(r.IntN(3))}
			for k := range r.IntN(5) {
				tenants[i].waiting = append(tenants[i].waiting, waitingLessee{&lessee{id: cluster.JobID(k), gpus: 1 + r.IntN(6)}})
			}
		}
		free := r.IntN(12)
		left := free
		parts, _ := (&astraeaRules{lease: time.Minute}).parts(tenants, free)
		for _, p := range parts {
			left -= p
		}
		if left < 0 {
			t.Fatalf("%d are free, %d too many are given", free, -left)
		}
		for i := range tenants {
			for _, l := range tenants[i].waiting {
				if l.gpus <= left {
					t.Fatalf("%d GPUs are left, and %d are asked for", left, l.gpus)
				}
			}
		}
	}
}
