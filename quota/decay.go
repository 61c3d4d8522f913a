package quota

import (
	"fmt"
	"math"
	"math/bits"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// GPUHour is an hour of one GPU in the unit of usage, milli-GPU × milliseconds.
// int64 holds 2.5 billion of them: 100,000 GPUs for almost three years; decayed
// usage and the spending of one period stay far below.
const GPUHour int64 = 1000 * 3600 * 1000

// Work returns the use of m milli-GPU from one instant to another, in milli-GPU × milliseconds.
// Instants are rounded down to milliseconds, so that the parts of an interval sum up to exactly the
// whole, however it is divided.
func Work(m Milli, from, to cluster.Time) int64 {
	return m * (millis(to) - millis(from))
}

// millis is the whole milliseconds of an instant, rounded down.
func millis(t cluster.Time) int64 { return floorDiv(int64(t), int64(time.Millisecond)) }

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// Decay is the rule by which usage decays: at the end of every period it is multiplied by
// 0.5^(period/half-life), rounded down to a unit (Slurm: PriorityCalcPeriod,
// PriorityDecayHalfLife). Periods are counted from Time 0.
type Decay struct {
	Period   time.Duration
	HalfLife time.Duration // 0: usage is kept for ever
	factor   uint64        // Q62
}

// The defaults of Slurm's multifactor plugin.
const (
	DefaultDecayPeriod = 5 * time.Minute
	DefaultHalfLife    = 7 * 24 * time.Hour
)

// NewDecay precomputes the factor.
func NewDecay(period, halfLife time.Duration) (Decay, error) {
	if period <= 0 || halfLife < 0 {
		return Decay{}, fmt.Errorf("decay with a period of %s and a half-life of %s: the period must be positive, the half-life not negative", period, halfLife)
	}
	d := Decay{Period: period, HalfLife: halfLife, factor: one}
	if halfLife > 0 {
		d.factor = halving(int64(period), int64(halfLife))
	}
	return d, nil
}

// Usage is an amount of decayed usage, as of a period. The zero value is no
// usage at all.
type Usage struct {
	Work   int64 `json:"work,omitempty"`   // milli-GPU × milliseconds
	Period int64 `json:"period,omitempty"` // index of the period up to which Work has decayed
}

// periodOf returns the index of the period that now lies in.
func (d Decay) periodOf(now cluster.Time) int64 { return floorDiv(int64(now), int64(d.Period)) }

// Advance decays u up to the period of now. Advancing step by step and at once give identical
// results. Earlier instants have no effect.
func (d Decay) Advance(u *Usage, now cluster.Time) {
	to := d.periodOf(now)
	if to <= u.Period {
		return
	}
	n := to - u.Period
	u.Period = to
	if d.factor == one {
		return
	}
	// Each step rounds down, so a power of the factor would give a different result; but after some
	// sixty half-lives nothing is left.
	for ; n > 0 && u.Work > 0; n-- {
		u.Work = scale(u.Work, d.factor)
	}
}

// Add adds work (milli-GPU × milliseconds) done in the period of now. A sum beyond int64 saturates.
func (d Decay) Add(u *Usage, work int64, now cluster.Time) {
	d.Advance(u, now)
	sum, carry := bits.Add64(uint64(u.Work), uint64(max(0, work)), 0)
	if carry != 0 || sum > math.MaxInt64 {
		sum = math.MaxInt64
	}
	u.Work = int64(sum)
}

// Value returns u decayed to now, without changing it.
func (d Decay) Value(u Usage, now cluster.Time) int64 {
	d.Advance(&u, now)
	return u.Work
}

// NextPeriod returns the start of the period after that of now, when values next change by
// themselves.
func (d Decay) NextPeriod(now cluster.Time) cluster.Time {
	return cluster.Time((d.periodOf(now) + 1) * int64(d.Period))
}

// DefaultBudgetPeriod is the period of a budget that states none.
const DefaultBudgetPeriod = 30 * 24 * time.Hour

// Budget is a queue's GPU-hours per period. Periods follow each other without a gap from Anchor on;
// a remainder is not carried over.
type Budget struct {
	Limit  int64         // GPU-hours; 0: no budget, nothing is ever refused
	Period time.Duration // positive
	Anchor cluster.Time  // the start of period 0
	Spent  int64         // in period Index, milli-GPU × milliseconds
	Index  int64
}

// NewBudget returns a queue's budget. The anchor is an instant at which a
// period starts; the engine uses Time 0, which is Spec.Epoch on the calendar.
func NewBudget(q *cluster.Queue, anchor cluster.Time) Budget {
	b := Budget{Limit: q.Budget, Period: q.Period, Anchor: anchor}
	if b.Period <= 0 {
		b.Period = DefaultBudgetPeriod
	}
	return b
}

func (b *Budget) indexOf(now cluster.Time) int64 {
	return floorDiv(int64(now-b.Anchor), int64(b.Period))
}

// roll starts the period of now if it has not started yet.
func (b *Budget) roll(now cluster.Time) {
	if i := b.indexOf(now); i > b.Index {
		b.Index, b.Spent = i, 0
	}
}

// Spend adds m milli-GPU from one instant to another. The part before the period of to belongs to
// past periods and is ignored.
func (b *Budget) Spend(m Milli, from, to cluster.Time) {
	b.roll(to)
	start := b.Anchor + cluster.Time(b.Index*int64(b.Period))
	if from = max(from, start); to > from {
		b.Spent += Work(m, from, to)
	}
}

// Left returns what may still be spent in the period of now, milli-GPU ×
// milliseconds; never negative, math.MaxInt64 without a budget.
func (b *Budget) Left(now cluster.Time) int64 {
	if b.Limit == 0 {
		return math.MaxInt64
	}
	c := *b
	c.roll(now)
	return max(0, c.total()-c.Spent)
}

// total is the limit in the unit of Spent, saturated.
func (b *Budget) total() int64 {
	if b.Limit > math.MaxInt64/GPUHour {
		return math.MaxInt64
	}
	return b.Limit * GPUHour
}

// Renews returns the start of the period after that of now.
func (b *Budget) Renews(now cluster.Time) cluster.Time {
	return (b.Anchor + cluster.Time(b.indexOf(now)*int64(b.Period))).Add(b.Period)
}

// RunsOut returns when the budget is spent if m milli-GPU stay in use from
// now on; cluster.Never if it renews first or there is none.
func (b *Budget) RunsOut(now cluster.Time, m Milli) cluster.Time {
	if b.Limit == 0 || m <= 0 {
		return cluster.Never
	}
	ms := (b.Left(now) + m - 1) / m
	if ms > int64(cluster.MaxDuration/time.Millisecond) {
		return cluster.Never
	}
	if end := now.Add(time.Duration(ms) * time.Millisecond); end < b.Renews(now) {
		return end
	}
	return cluster.Never
}

// CheckBudget refuses a job in q if the budget of its queue or of an ancestor is spent. Budgets are
// indexed by node; jobs that already run are up to the policy. Amounts in the refusal are
// GPU-hours.
func (t *Tree) CheckBudget(q int, budgets []Budget, now cluster.Time) Refusal {
	for p := q; p != Root; p = t.nodes[p].parent {
		if b := &budgets[p]; b.Limit > 0 && b.Left(now) == 0 {
			return t.refuse(RuleBudget, p, b.Spent/GPUHour, b.Limit, 0)
		}
	}
	return Refusal{}
}
