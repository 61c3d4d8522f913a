package quota

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-gpu/muster/cluster"
)

const hour = cluster.Time(time.Hour)

func TestHalving(t *testing.T) {
	for _, c := range []struct{ num, den int64 }{{0, 1}, {1, 1}, {1, 2}, {2, 1}, {1, 3}, {5 * 60, 7 * 86400}, {10, 3},
		{61, 1}} {
		want := math.Exp2(-float64(c.num) / float64(c.den))
		if got := float64(halving(c.num, c.den)) / one; math.Abs(got-want) > 1e-15 {
			t.Errorf("0.5^(%d/%d) = %.18f, want %.18f", c.num, c.den, got, want)
		}
	}
	// Fixed bits (2^62 × 0.5^(5min/7d) = 4610100687229029374.55 to 60 digits): every architecture
	// must compute the same.
	if got := halving(5*60, 7*86400); got != 4610100687229029374 {
		t.Errorf("factor of the defaults: %d", got)
	}
	if halving(63, 1) != 0 || halving(math.MaxInt64, 1) != 0 {
		t.Error("far tail")
	}
}

// Slurm, Multifactor: U = Σ usage × 0.5^(dt/HalfLife).
// KAI, Tests 3: half-life 1 h, a GPU-hour 2 h ago counts .25; 24 GPU-h of 10 × 10 is .24.
// Kueue, Tests: half-life 600, dt 600: alpha = .5.
func TestDecay(t *testing.T) {
	d, err := NewDecay(5*time.Minute, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	var u Usage
	d.Add(&u, GPUHour, 0)
	// 24 steps, each rounded down.
	if got := d.Value(u, 2*hour); got > GPUHour/4 || got < GPUHour/4-24 {
		t.Errorf("after 2 h: %d of %d", got, GPUHour)
	}
	whole, _ := NewDecay(time.Hour, time.Hour)
	u = Usage{}
	whole.Add(&u, GPUHour, 0)
	if got := whole.Value(u, 2*hour); got != GPUHour/4 {
		t.Errorf("whole half-lives are exact: %d", got)
	}
	keep, _ := NewDecay(time.Hour, 0)
	if keep.Value(Usage{Work: 7}, 1000*hour) != 7 {
		t.Error("no half-life: usage is kept")
	}
	if _, err := NewDecay(0, time.Hour); err == nil {
		t.Error("period 0")
	}
	if got := d.NextPeriod(hour + 1); got != hour+cluster.Time(5*time.Minute) {
		t.Errorf("next period %v", got)
	}
	d.Add(&u, math.MaxInt64, 2*hour)
	if u.Work != math.MaxInt64 {
		t.Error("saturation")
	}
}

// Advancing in any steps gives the same bits as at once, and is close to the formula.
func TestDecayPath(t *testing.T) {
	d, _ := NewDecay(DefaultDecayPeriod, DefaultHalfLife)
	rapid.Check(t, func(r *rapid.T) {
		u := Usage{Work: rapid.Int64Range(0, 1<<60).Draw(r, "work")}
		start := u.Work
		end := cluster.Time(rapid.Int64Range(0, int64(60*24*time.Hour)).Draw(r, "end"))
		want := d.Value(u, end)
		for range rapid.IntRange(0, 5).Draw(r, "steps") {
			d.Advance(&u, cluster.Time(rapid.Int64Range(0, int64(end)).Draw(r, "at")))
		}
		d.Advance(&u, end)
		if u.Work != want {
			t.Fatalf("in steps %d, at once %d", u.Work, want)
		}
		n := float64(d.periodOf(end))
		real := float64(start) * math.Exp2(-n*float64(d.Period)/float64(d.HalfLife))
		if math.Abs(float64(want)-real) > 3000+real*1e-9 {
			t.Fatalf("%d, the formula says %f", want, real)
		}
	})
}

func TestWorkAddsUp(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		a := rapid.Int64Range(-1e12, 1e12).Draw(r, "a")
		b := a + rapid.Int64Range(0, 1e12).Draw(r, "b")
		c := b + rapid.Int64Range(0, 1e12).Draw(r, "c")
		at := func(x int64) cluster.Time { return cluster.Time(x) }
		if Work(500, at(a), at(b))+Work(500, at(b), at(c)) != Work(500, at(a), at(c)) {
			t.Fatal("parts do not sum up")
		}
	})
}

func TestBudget(t *testing.T) {
	b := NewBudget(&cluster.Queue{Budget: 10, Period: 24 * time.Hour}, 6*hour)
	b.Spend(4*gpu, 7*hour, 9*hour) // 8 GPU-hours
	if got := b.Left(9 * hour); got != 2*GPUHour {
		t.Errorf("left %d", got)
	}
	if got := b.Renews(9 * hour); got != 30*hour {
		t.Errorf("renews %v", got)
	}
	if got := b.RunsOut(9*hour, 1*gpu); got != 11*hour {
		t.Errorf("runs out %v", got)
	}
	if got := b.RunsOut(29*hour, 1*gpu); got != cluster.Never {
		t.Errorf("it renews first: %v", got)
	}
	b.Spend(1*gpu, 9*hour, 12*hour)
	if got := b.Left(12 * hour); got != 0 {
		t.Errorf("overspent: left %d", got)
	}
	if got := b.Left(30 * hour); got != 10*GPUHour {
		t.Errorf("renewed: left %d", got)
	}
	b.Spend(2*gpu, 29*hour, 31*hour)
	if b.Spent != 2*GPUHour || b.Index != 1 {
		t.Errorf("only the new period's part counts: %+v", b)
	}
	if none := (&Budget{Period: time.Hour}); none.Left(0) != math.MaxInt64 || none.RunsOut(0, 1) != cluster.Never {
		t.Error("no budget")
	}
}

func TestCheckBudget(t *testing.T) {
	tree := mustTree(t, 8, queue("org", "", 8), queue("a", "org", 4))
	org, a := at(t, tree, "org"), at(t, tree, "a")
	budgets := make([]Budget, tree.Len())
	for q := range budgets {
		budgets[q] = NewBudget(&cluster.Queue{}, 0)
	}
	budgets[org] = NewBudget(&cluster.Queue{Budget: 3}, 0)
	if r := tree.CheckBudget(a, budgets, 0); !r.OK() {
		t.Error(r)
	}
	budgets[org].Spend(4*gpu, 0, hour)
	r := tree.CheckBudget(a, budgets, hour)
	if r.Rule != RuleBudget || r.Queue != org || r.Used != 4 || r.Limit != 3 {
		t.Errorf("%+v", r)
	}
	if got, want := r.String(), `queue "org": 4 of 3 GPU-hours of this period spent`; got != want {
		t.Error(got)
	}
}
