// Package explain says in words what is in a job's way: what there is room for where it may run, which jobs have what
// it needs or are to leave it, beside which it does not go, what quotas, reservations and the plan say; and when it is
// expected to start. It tries and restores, and changes nothing.
package explain

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/lending"
	"github.com/muster-gpu/muster/engine/limits"
	"github.com/muster-gpu/muster/engine/links"
	"github.com/muster-gpu/muster/engine/loans"
	"github.com/muster-gpu/muster/engine/order"
	"github.com/muster-gpu/muster/engine/pending"
	"github.com/muster-gpu/muster/engine/placement"
	"github.com/muster-gpu/muster/engine/plan"
	"github.com/muster-gpu/muster/engine/preempt"
	"github.com/muster-gpu/muster/engine/reserve"
	"github.com/muster-gpu/muster/engine/running"
	"github.com/muster-gpu/muster/engine/sched"
	"github.com/muster-gpu/muster/engine/shape"
	"github.com/muster-gpu/muster/engine/speed"
	"github.com/muster-gpu/muster/engine/words"
)

// Rooms are what explanations are made from.
type Rooms struct {
	Places   *placement.Finder
	Placer   placement.Placer
	Speeds   *speed.Book
	Links    *links.Book
	Running  *running.Jobs
	Limits   *limits.Book
	Loans    *loans.Book
	Plan     *plan.Book
	Victims  *preempt.Finder
	Reserved *reserve.Book
	Line     *pending.Line
	Deps     *pending.Deps
	Strict   bool                      // no job passes one that is blocked
	Clock    func(cluster.Time) string // writes an instant
}

// Explainer explains the jobs of a world as it is.
type Explainer struct {
	places   *placement.Finder
	placer   placement.Placer
	world    *sched.World
	st       *inventory.Store
	speeds   *speed.Book
	links    *links.Book
	running  *running.Jobs
	limits   *limits.Book
	lending  *lending.Book
	loans    *loans.Book
	plan     *plan.Book
	victims  *preempt.Finder
	reserved *reserve.Book
	line     *pending.Line
	deps     *pending.Deps
	strict   bool
	clock    func(cluster.Time) string
}

// New explains from these rooms.
func New(r *Rooms) *Explainer {
	return &Explainer{places: r.Places, placer: r.Placer, world: r.Places.World,
		st: r.Places.World.Store, speeds: r.Speeds, links: r.Links, running: r.Running, limits: r.Limits,
		lending: r.Places.Lending, loans: r.Loans, plan: r.Plan, victims: r.Victims, reserved: r.Reserved,
		line: r.Line, deps: r.Deps, strict: r.Strict, clock: r.Clock}
}

// job is a job by number; nil: there is none.
func (x *Explainer) job(id cluster.JobID) *job.State {
	if all := x.jobs(); id >= 0 && int(id) < len(all) {
		return all[id]
	}
	return nil
}

func (x *Explainer) jobs() []*job.State { return x.places.Around.Jobs() }

// Where lists the nodes that a job is on.
func (x *Explainer) Where(j *job.State) string {
	var names []string
	for i := range j.Allocs {
		n := x.st.Nodes()[j.Allocs[i].Node].Spec().Name
		if len(names) == 0 || names[len(names)-1] != n {
			names = append(names, n)
		}
	}
	return strings.Join(names, ",")
}

// Memory says where a suspended job's memory is.
func (x *Explainer) Memory(j *job.State) string {
	var list []string
	for i := range j.Home {
		a := &j.Home[i]
		if a.GPUs == 0 || inventory.OnNode(j.Home[:i], a.Node) {
			continue
		}
		var devs uint64
		for _, o := range j.Home {
			if o.Node == a.Node {
				devs |= o.GPUs
			}
		}
		list = append(list, words.Devices(devs)+" of "+x.st.Nodes()[a.Node].Spec().Name)
	}
	if len(list) == 0 {
		return x.st.Nodes()[j.Home[0].Node].Spec().Name
	}
	return strings.Join(list, ", ")
}

// Suspended says what keeps a suspended job, which leaves its memory at an instant (Never: not at all), from going on
// where that is; "": it is not suspended.
func (x *Explainer) Suspended(j *job.State, leaves cluster.Time) string {
	if j.Home == nil {
		return ""
	}
	text := "suspended: its memory is on " + x.Memory(j)
	switch {
	case leaves != cluster.Never:
		text += ", which it leaves for any others at " + x.clock(leaves)
	case j.Spec.Checkpoint.None || j.IgnoresCheckpoint:
		text += ", and it saves nothing: it goes on there only"
	}
	for i := range j.Home {
		if n := &x.st.Nodes()[j.Home[i].Node]; !n.TakesJobs() {
			return fmt.Sprintf("%s, and %s takes no jobs now", text, n.Spec().Name)
		}
	}
	var ids []cluster.JobID
	x.places.Around.Running().Walk(func(it order.Item) bool {
		if v := x.jobs()[it.ID]; inventory.Overlap(v.Allocs, j.Home) {
			ids = append(ids, v.Spec.ID)
		}
		return true
	})
	if len(ids) == 0 {
		return text + ", and CPU cores or RAM beside it are not free"
	}
	return text + "; " + x.named(ids, "more jobs have others of them", func(v *job.State) string {
		return v.Label() + " has " + x.common(v.Allocs, j.Home)
	})
}

// common names the devices that are in both.
func (x *Explainer) common(a, b []inventory.Alloc) string {
	var list []string
	for i := range a {
		var devs uint64
		for k := range b {
			if a[i].Node == b[k].Node {
				devs |= a[i].GPUs & b[k].GPUs
			}
		}
		if devs == 0 {
			continue
		}
		if text := words.On(x.st, a[i].Node, devs); !slices.Contains(list, text) {
			list = append(list, text)
		}
	}
	return strings.Join(list, " and ")
}

// Waking says for which nodes a job waits that starts.
func (x *Explainer) Waking(j *job.State) string {
	if x.st.Asleep() == 0 || j.State != job.Starting {
		return ""
	}
	var names []string
	for i := range j.Allocs {
		if n := x.st.Nodes()[j.Allocs[i].Node].Spec(); n.Asleep > 0 && !slices.Contains(names, n.Name) {
			names = append(names, n.Name)
		}
	}
	what := "nodes are waking"
	switch len(names) {
	case 0:
		return ""
	case 1:
		what = "node is waking"
	}
	ready := max(0, j.Started.Add(inventory.WakeTime(x.st, j.Allocs)).Sub(x.world.Now))
	return fmt.Sprintf("; %d %s, ready in about %s: %s", len(names), what,
		cluster.FormatDuration(ready.Round(time.Second)), strings.Join(names, ","))
}

// Company says which other jobs are on a job's devices.
func (x *Explainer) Company(j *job.State) string {
	list := slices.Clone(j.Guests)
	if j.Hosted() {
		h := x.jobs()[j.GuestOf-1]
		list = append([]cluster.JobID{h.Spec.ID}, h.Guests...)
	}
	text := ""
	for _, id := range list {
		if id != j.Spec.ID {
			text += ", " + x.jobs()[id].Label()
		}
	}
	if text != "" {
		text = ", beside " + text[2:]
	}
	return text
}

// MostNamed bounds how many jobs, or nodes, are named of those for which a job waits.
const MostNamed = 5

// Leavers says for which jobs a placed one waits, by number, and what they are to leave.
func (x *Explainer) Leavers(j *job.State) string {
	var ids []cluster.JobID
	for i := range j.Allocs {
		for _, id := range x.st.Nodes()[j.Allocs[i].Node].Stopping() {
			if slices.Contains(x.jobs()[id].Waiters, j.Spec.ID) && !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
	}
	return x.named(ids, "more", func(v *job.State) string { return v.Label() + " to leave " + x.leftBy(j, v) })
}

// named says something of each of some jobs, by number; of those beyond MostNamed only how many they are.
func (x *Explainer) named(ids []cluster.JobID, rest string, text func(v *job.State) string) string {
	slices.Sort(ids)
	var list []string
	for i, id := range ids {
		if i == MostNamed {
			list = append(list, fmt.Sprintf("%d %s", len(ids)-i, rest))
			break
		}
		list = append(list, text(x.jobs()[id]))
	}
	return strings.Join(list, ", ")
}

// leftBy says what of a placed job's devices one that leaves is in the way on, or is to
// leave parts of; else it is CPU or RAM that it leaves.
func (x *Explainer) leftBy(j, v *job.State) string {
	var list []string
	for i := range j.Allocs {
		a := &j.Allocs[i]
		var devs uint64
		for _, o := range v.GoingAllocs() {
			if o.Excludes(a) {
				devs |= o.GPUs & a.GPUs
			}
		}
		for k := range v.Claims {
			if c := &v.Claims[k]; c.By == j.Spec.ID && c.Node == a.Node {
				devs |= c.GPUs & a.GPUs
			}
		}
		if devs == 0 {
			continue
		}
		if text := words.On(x.st, a.Node, devs); !slices.Contains(list, text) {
			list = append(list, text)
		}
	}
	if len(list) == 0 {
		return "CPU cores or RAM"
	}
	return strings.Join(list, " and ")
}

// Shunned says beside which jobs one does not go that would have room there, of all such devices on that where most
// would be left of its own speed; "": there is none.
func (x *Explainer) Shunned(j *job.State, s *shape.Shape) (text string) {
	r, best := &s.Sets[0].Request, int64(-1)
	if !x.speeds.KnowsPairs() || !r.Fractional() || r.Profile != "" {
		return ""
	}
	site := x.places.Look(placement.Request{In: x.st}, j, s, inventory.Domain{}, nil)
	for id := range x.st.Nodes() {
		n := &x.st.Nodes()[id]
		if !n.TakesJobs() || !s.Any.Has(n.Class()) {
			continue
		}
		for m := x.speeds.Shunned(n, j) & n.Healthy(); m != 0; m &= m - 1 {
			dev := bits.TrailingZeros64(m)
			others := x.speeds.Tenants(n, dev, j)
			if own := x.speeds.Among(j, others...); own > best {
				if _, ok := site.DeviceLeft(n, dev, r); ok {
					d, _ := x.speeds.Disturbs(j, others)
					best, text = own, x.disturbed(j, others, d)
				}
			}
		}
	}
	return text
}

// disturbed is why a job does not go beside others.
func (x *Explainer) disturbed(j *job.State, others []*job.State, d speed.Disturbed) string {
	names := ""
	for _, o := range others {
		names += ", " + cmp.Or(o.Spec.Model, o.Label())
	}
	names = names[2:]
	switch d.Job {
	case j:
		return fmt.Sprintf("beside %s it would be at %s of its speed, it asks for %s", names, partText(d.Left),
			leastText(x.speeds.Least(j)))
	case nil:
		return fmt.Sprintf("beside %s it would be at %s of its speed, and cost the others %s of theirs", names,
			partText(d.Left), partText(d.Lost))
	}
	return fmt.Sprintf("beside it %s would be at %s of its speed, and asks for %s", d.Job.Label(), partText(d.Left),
		leastText(x.speeds.Least(d.Job)))
}

// partText writes ppm as a factor, to the hundredth and never more than it is.
func partText(ppm int64) string { return fmt.Sprintf("%.2f", float64(ppm/10_000)/100) }

// leastText writes the part of its speed that a job asks for as it was stated.
func leastText(ppm int64) string { return fmt.Sprintf("%g", float64(ppm)/job.Million) }
