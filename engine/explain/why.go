package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/links"
	"github.com/muster-gpu/muster/engine/order"
	"github.com/muster-gpu/muster/engine/pending"
	"github.com/muster-gpu/muster/engine/placement"
	"github.com/muster-gpu/muster/engine/reserve"
	"github.com/muster-gpu/muster/engine/shape"
	"github.com/muster-gpu/muster/engine/words"
)

// Why is a job's present state: what blocks it, which jobs hold what it needs,
// and when it is expected to start.
type Why struct {
	Job      cluster.JobID
	Name     string
	State    string // pending, placed, starting, running, stopping, done
	Waiting  time.Duration
	Ahead    int      // eligible jobs before it in its order; -1: it is not in line
	Blockers []string // every one, not the first
	Holders  []string // running jobs that hold what it needs, soonest end first
	Text     string   // what it holds, or how it ended
	Expected cluster.Time
	Rough    bool // Expected is from the amount of work ahead, not from promises
}

// ForeseenEnd is when a job was seen to leave its devices, by a look ahead.
type ForeseenEnd struct {
	At    cluster.Time
	Limit bool // at its time limit
}

// Why explains a job. Others are said to leave as was foreseen, if it was: by the same look ahead as the start that is
// told.
func (x *Explainer) Why(id cluster.JobID, ends map[cluster.JobID]ForeseenEnd) Why {
	j := x.job(id)
	y := x.now(id, j, ends)
	if j != nil && j.State != job.Done && j.Target != nil && j.Target.Deadline != job.DeadlineUnanswered {
		y.Text = strings.TrimPrefix(y.Text+"; "+j.Target.Deadline.String(), "; ")
	}
	return y
}

// now explains a job as it is; nil: there is none.
func (x *Explainer) now(id cluster.JobID, j *job.State, ends map[cluster.JobID]ForeseenEnd) Why {
	if j == nil {
		return Why{Job: id, State: "unknown", Ahead: -1, Expected: cluster.Never}
	}
	y := Why{Job: id, Name: j.Spec.Name, State: j.State.String(), Ahead: -1, Expected: cluster.Never}
	switch j.State {
	case job.Pending:
		y.Waiting = x.world.Now.Sub(j.Since)
		if !j.Eligible {
			y.Blockers = []string{x.Parked(j)}
			if j.Parked == job.ParkedBegin {
				y.Expected = j.Spec.Begin
			}
			return y
		}
		x.whyPending(j, &y, ends)
	case job.Done:
		y.Text = "ended " + j.Reason.String() + " at " + x.clock(j.Ended)
	case job.Placed:
		y.Text = fmt.Sprintf("has %s on %s", words.Holds(x.st, j.Allocs), x.Where(j))
		y.Blockers = []string{"waits for " + x.Leavers(j)}
		y.Expected = x.world.Now
	default:
		y.Text = fmt.Sprintf("%s on %s since %s%s%s", words.Holds(x.st, j.Allocs), x.Where(j), x.clock(j.Started),
			x.Company(j), x.Waking(j)+x.plan.Explained(j)+x.onNetwork(j))
	}
	return y
}

// Parked says why a job is not in line.
func (x *Explainer) Parked(j *job.State) string {
	switch j.Parked {
	case job.ParkedHold:
		return "held by a person until it is released"
	case job.ParkedBegin:
		return "not to begin before " + x.clock(j.Spec.Begin)
	case job.ParkedDependency:
		return x.dependencyText(j)
	case job.ParkedArray:
		return fmt.Sprintf("its array runs at most %d at once", j.Spec.Array.Cap)
	case job.ParkedPlan:
		return x.plan.Text(j, x.clock)
	case job.ParkedSingleton:
		return "singleton: an earlier job of its name and user is not done"
	}
	return "not in line"
}

// NoMoves says why no moves were looked for that let a job start.
func (x *Explainer) NoMoves(j *job.State) string {
	switch {
	case j.State != job.Pending:
		return "no moves are looked for: it is " + j.State.String()
	case !j.Eligible:
		return "no move would help: " + x.Parked(j)
	case !x.limits.Allows(j, x.world.LeastMilli(j)):
		r := x.limits.Check(j, x.world.LeastMilli(j))
		return "no move would help: " + x.limits.Text(&r, j, x.clock)
	}
	return "no moves are looked for: others come before it, or it waits for more than room"
}

// dependencyText says which conditions do not hold yet.
func (x *Explainer) dependencyText(j *job.State) string {
	var texts []string
	for i := range j.Spec.After {
		d := &j.Spec.After[i]
		o := x.job(d.Job)
		if v, _ := x.deps.Stands(j, d, x.world.Now); d.Type == cluster.Singleton || o == nil || v != pending.Unmet {
			continue
		}
		text := fmt.Sprintf("%s of job %d (%s)", d.Type, d.Job, o.State)
		if d.Elements > 1 {
			text = fmt.Sprintf("%s of jobs %d to %d (%d of them not done)", d.Type, d.Job, d.Last(),
				x.deps.Live(d))
		}
		if d.Delay > 0 {
			text += " + " + cluster.FormatDuration(d.Delay)
		}
		texts = append(texts, text)
	}
	if j.Spec.AnyOf {
		return "waits for " + strings.Join(texts, " or ")
	}
	return "waits for " + strings.Join(texts, ", ")
}

func (x *Explainer) whyPending(j *job.State, y *Why, ends map[cluster.JobID]ForeseenEnd) {
	before := x.before(j)
	y.Ahead = len(before)
	s := x.world.Shapes.At(j.Shape)
	if j.Home != nil {
		y.Text = "its memory is on " + x.Memory(j)
	}
	least := x.world.LeastMilli(j)
	r := x.limits.Check(j, least)
	if !r.OK() && !r.Lent() {
		y.Blockers = append(y.Blockers, x.limits.Text(&r, j, x.clock))
	}
	if text := x.lending.Text(j); text != "" {
		y.Blockers = append(y.Blockers, text)
	}
	all := placement.Request{In: x.st, Placer: x.placer}
	all.IgnoreLoans = true
	beside := all
	beside.Reserved = x.reserved.Limits(j, placement.Candidate)
	fits := x.places.Fits(beside, j, s)
	switch free := x.places.Fits(all, j, s); {
	case !free:
		y.Blockers = append(y.Blockers, cmp.Or(x.Shunned(j, s), x.Suspended(j, x.world.LeavesHomeAt(j)), x.Room(j, s)))
		if text := x.Fragments(j, s); text != "" {
			y.Blockers = append(y.Blockers, text)
		}
	case !fits && beside.Reserved != nil:
		y.Blockers = append(y.Blockers, "would delay a reservation: "+x.reservationText(j))
	case len(y.Blockers) == 0 && len(before) > 0:
		first := before[0]
		y.Blockers = append(y.Blockers, "order: "+first.Label()+" comes first and does not fit yet")
	}
	if text := x.holdText(j); text != "" {
		y.Blockers = append(y.Blockers, text)
	}
	if text := x.loans.Text(j); text != "" && !fits {
		y.Blockers = append(y.Blockers, text)
	}
	if list, from := x.victims.Protected(j, s); len(list) > 0 {
		y.Blockers = append(y.Blockers,
			fmt.Sprintf("minimum run time: %s on what it needs; the first may be preempted from %s on",
				words.Jobs(len(list)), x.clock(from)))
	}
	y.Holders = x.holders(j, s, ends)
	y.Expected = x.expectedStart(j, before)
	if y.Expected != cluster.Never && len(before) > MostAhead {
		y.Expected, y.Rough = max(y.Expected, x.workAhead(before)), true
	}
}

// before lists the eligible jobs that come before j in line, the first in line first. A pass picks the best
// of the heads again and again: comparing two jobs deep in their groups could give several jobs one place.
func (x *Explainer) before(j *job.State) []*job.State {
	list := x.line.Order()
	return list[:max(0, slices.Index(list, j))]
}

func (x *Explainer) reservationText(j *job.State) string {
	end := x.world.Now.Add(j.ExpectedRun(x.world.LimitOf(j)))
	var parts []string
	for _, w := range x.reserved.Windows() {
		switch {
		case w.At >= end || w.Job == j.Spec.ID:
		case w.Hold:
			parts = append(parts,
				fmt.Sprintf("GPUs are being held for job %d since %s", w.Job, x.heldSince(x.job(w.Job))))
		default:
			parts = append(parts, fmt.Sprintf("job %d starts at %s", w.Job, x.clock(w.At)))
		}
	}
	for _, a := range x.reserved.Advance() {
		if a.Start() < end && a.End() > x.world.Now && !a.Inside(j) {
			parts = append(parts, fmt.Sprintf("%s begins at %s", a.Name(), x.clock(a.Start())))
		}
	}
	return strings.Join(parts, ", ")
}

// holdText says what is held for a job; "": nothing is.
func (x *Explainer) holdText(j *job.State) string {
	windows := x.reserved.Windows()
	i := slices.IndexFunc(windows, func(w reserve.Window) bool { return w.Hold && w.Job == j.Spec.ID })
	if i < 0 {
		return ""
	}
	var names []string
	gpus, have := 0, 0
	windows[i].Each(func(node int32, takes int) {
		n := &x.st.Nodes()[node]
		gpus, have = gpus+takes, have+min(takes, int(n.FreeGPUs()))
		if names = append(names, n.Spec().Name); len(names) > MostNamed {
			names[MostNamed] = "..."
			names = names[:MostNamed+1]
		}
	})
	what := "room is"
	if gpus > 0 {
		what = "GPUs are"
	}
	text := fmt.Sprintf("%s being held for it since %s on %s", what, x.heldSince(j), strings.Join(names, ","))
	if gpus > 0 {
		text += fmt.Sprintf(": %d of %d are free", have, gpus)
	}
	return text
}

func (x *Explainer) heldSince(j *job.State) string { return x.clock(x.reserved.HeldSince(j)) }

// holders lists running jobs on devices that suit the job, soonest end first.
func (x *Explainer) holders(j *job.State, s *shape.Shape, ends map[cluster.JobID]ForeseenEnd) []string {
	const most = 5
	var out []string
	more, lacks := 0, x.limits.Lacks(j)
	x.running.ByEnd().Walk(func(it order.Item) bool {
		v := x.jobs()[it.ID]
		if !x.victims.Useful(s, v, lacks) || j.Home != nil && !lacks && !inventory.Overlap(v.Allocs, j.Home) {
			return true
		}
		if len(out) == most {
			more++
			return true
		}
		out = append(out, fmt.Sprintf("%s: %s on %s, %s", v.Label(), words.Holds(x.st, v.Allocs),
			x.Where(v), x.leavesText(v, ends)))
		return true
	})
	if more > 0 {
		out = append(out, fmt.Sprintf("and %d more", more))
	}
	return out
}

// leavesText says when a job leaves its devices: as was foreseen, else as was stated. A time limit is when it
// ends at the latest.
func (x *Explainer) leavesText(v *job.State, ends map[cluster.JobID]ForeseenEnd) string {
	if f, ok := ends[v.Spec.ID]; ok {
		return EndText(f.Limit, x.seconds(f.At))
	}
	switch at := x.world.EndOf(v); {
	case at >= cluster.Time(cluster.MaxDuration):
		return "expected to end at an unknown time"
	default:
		return EndText(v.Spec.Estimate == 0 || v.State != job.Placed && at == v.LimitAt, x.seconds(at))
	}
}

// EndText says when a job ends: as is expected, or at its time limit if it runs so long.
func EndText(limit bool, at string) string {
	if limit {
		return "ends at the latest at " + at + ", its time limit"
	}
	return "expected to end at " + at
}

// seconds writes an instant that is expected: no better than to the second.
func (x *Explainer) seconds(t cluster.Time) string {
	if t > cluster.Time(time.Minute) {
		t = cluster.Time(time.Duration(t).Round(time.Second))
	}
	return x.clock(t)
}

// OnNetwork says how a running job's traffic is treated and what it loses to others; false: it transmits nothing over
// a network that is described.
func (x *Explainer) OnNetwork(id cluster.JobID) (links.View, bool) {
	j := x.job(id)
	if j == nil || j.State != job.Starting && j.State != job.Running {
		return links.View{}, false
	}
	nodes := func() []cluster.Node { return inventory.Described(x.st) }
	return x.links.View(nodes, x.running.Started(), j)
}

// onNetwork says in words what a running job loses on the network; "": nothing.
func (x *Explainer) onNetwork(j *job.State) string {
	v, yes := x.OnNetwork(j.Spec.ID)
	if !yes || v.Takes <= v.Alone {
		return ""
	}
	text := fmt.Sprintf("; on the network an iteration takes %s instead of %s", v.Takes.Round(time.Millisecond),
		v.Alone.Round(time.Millisecond))
	if len(v.With) > 0 {
		w := &v.With[0]
		text += fmt.Sprintf(", as job %d %s transmits over %s, too", w.Job, x.jobs()[w.Job].Spec.Name, w.Link)
		if len(v.With) > 1 {
			text += fmt.Sprintf(" (and %d others)", len(v.With)-1)
		}
	}
	return text
}
