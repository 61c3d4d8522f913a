package engine

import (
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/limits"
	"github.com/muster-gpu/muster/engine/order"
	"github.com/muster-gpu/muster/engine/past"
	"github.com/muster-gpu/muster/engine/plan"
	"github.com/muster-gpu/muster/engine/reserve"
	"github.com/muster-gpu/muster/engine/sched"
	"github.com/muster-gpu/muster/engine/speed"
)

// Snapshot is everything that an engine knows and that its configuration does
// not say: plain facts, so that another version of this program, or another
// policy, can go on from them. An engine restored from it decides as the one
// that wrote it would have.
type Snapshot struct {
	Now    cluster.Time   `json:"now"`
	Hash   uint64         `json:"hash,string"`
	Policy string         `json:"policy"` // under which the keys hold
	Next   cluster.JobID  `json:"next"`   // the number of the next new job
	Nodes  []cluster.Node `json:"nodes"`
	// nodes that a person drained, whether they are down or not
	Drained []string                `json:"drained,omitempty"`
	Given   []string                `json:"given_back,omitempty"` // lent nodes that are given back
	Queues  []cluster.Queue         `json:"queues,omitempty"`     // as they were last set
	Closed  []cluster.Queue         `json:"closed,omitempty"`     // removed, but jobs of theirs still run
	Users   []string                `json:"users,omitempty"`      // in the order in which they were first seen
	Traffic string                  `json:"traffic,omitempty"`    // policy by which the network treats jobs' traffic
	Jobs    []job.Record            `json:"jobs,omitempty"`       // by number
	Arrays  []ArrayRecord           `json:"arrays,omitempty"`
	Usage   []limits.UsageRecord    `json:"usage,omitempty"`
	Budgets []limits.BudgetRecord   `json:"budgets,omitempty"`
	Advance []reserve.AdvanceRecord `json:"advance,omitempty"`
	Ranks   []int                   `json:"ranks,omitempty"` // fair-share ranks in force, by entry of Usage
	Ranked  int                     `json:"ranked,omitempty"`
	Rekeyed cluster.Time            `json:"rekeyed,omitempty"`
	Rerun   cluster.Time            `json:"rerun,omitempty"`
	Elastic int                     `json:"elastic,omitempty"`
	Past    *past.Record            `json:"past,omitempty"`
	Fresh   bool                    `json:"pass_due,omitempty"` // something is to be looked at in the next step
	Planned *plan.Record            `json:"planned,omitempty"`
	// what jobs in shares of one GPU were measured to do to each other
	Pairs  []speed.PairRecord `json:"pairs,omitempty"`
	Paces  []speed.PaceRecord `json:"paces,omitempty"`        // how fast jobs were measured to go
	Looked cluster.Time       `json:"defrag_round,omitempty"` // the last round in which moves were looked for

	// nodes of which Nodes says the size, whatever the configuration says
	Resized []string `json:"resized,omitempty"`
	Changed []string `json:"changed,omitempty"` // nodes that Nodes describes, whatever the configuration says
	Named
}

// Named is what jobs name besides their queues and partitions.
type Named struct {
	Sets    []cluster.NodeSet `json:"sets,omitempty"`    // of nodes
	Lenders []cluster.Lender  `json:"lenders,omitempty"` // services that lend what they do not run
}

// ArrayRecord is the elements of an array that wait for a place, in order.
type ArrayRecord struct {
	ID      cluster.JobID   `json:"id"`
	Waiting []cluster.JobID `json:"waiting"`
}

// Snapshot writes down what the engine knows. It changes nothing.
func (e *Engine) Snapshot() Snapshot {
	s := e.Common()
	s.Past = e.past.Record()
	var named []string // sets of nodes, by jobs that are not done
	var arrays []cluster.JobID
	for i := range e.jobs {
		if e.jobs[i] == nil {
			continue
		}
		s.Jobs = append(s.Jobs, *e.Record(cluster.JobID(i)))
		if e.shapes.HasNodeSets() && e.jobs[i].State != job.Done {
			named = append(named, e.jobs[i].Spec.Nodes)
		}
		if a := e.jobs[i].Spec.Array; a != nil && !slices.Contains(arrays, a.ID) {
			arrays = append(arrays, a.ID)
		}
	}
	s.Sets = e.shapes.SetsNamed(named)
	for _, id := range arrays {
		if waiting := e.deps.Waiting(id); len(waiting) > 0 {
			s.Arrays = append(s.Arrays, ArrayRecord{id, slices.Clone(waiting)})
		}
	}
	return s
}

// Common is a snapshot without jobs, arrays and the record of completed jobs (Past), for a driver that stores the
// jobs that Changed lists one by one: elements that wait for a place in their array are then restored in the
// order of their numbers.
func (e *Engine) Common() Snapshot {
	s := Snapshot{Now: e.w.Now, Hash: e.hash, Policy: e.cfg.Policy.Name(), Next: cluster.JobID(len(e.jobs)),
		Nodes: e.Nodes(), Traffic: e.links.Name(),
		Users: e.limits.Users(), Elastic: e.elastic, Fresh: e.fresh || e.epoch != e.seenAt,
		Rekeyed: e.rekeyed, Rerun: e.rerunAt, Looked: e.rounds.Last,
		Pairs: e.speeds.PairRecords(), Paces: e.speeds.PaceRecords(), Named: Named{Lenders: e.lending.Lenders()}}
	s.Planned = e.plan.Record()
	for i := range e.st.Nodes() {
		if n := &e.st.Nodes()[i]; n.Drained() {
			s.Drained = append(s.Drained, n.Spec().Name)
		}
		if n := &e.st.Nodes()[i]; n.GivenBack() {
			s.Given = append(s.Given, n.Spec().Name)
		}
		if n := &e.st.Nodes()[i]; n.Resized() && !n.Changed() {
			s.Resized = append(s.Resized, n.Spec().Name)
		}
		if n := &e.st.Nodes()[i]; n.Changed() {
			s.Changed = append(s.Changed, n.Spec().Name)
		}
	}
	s.Queues, s.Closed = e.limits.Specs()
	s.Usage, s.Budgets = e.limits.Usage()
	s.Ranks, s.Ranked = e.limits.Ranks()
	s.Advance = e.resv.Records()
	return s
}

// Past writes down what completed jobs tell; nil: nothing is learned from them.
func (e *Engine) Past() *past.Record { return e.past.Record() }

// PastRevision grows whenever Past becomes another.
func (e *Engine) PastRevision() int64 { return e.past.Revision() }

// Knows reports whether the engine knows a job, which may be done.
func (e *Engine) Knows(id cluster.JobID) bool { return e.job(id) != nil }

// Record writes down what the engine knows of a job; nil: nothing.
func (e *Engine) Record(id cluster.JobID) *job.Record {
	j := e.job(id)
	if j == nil {
		return nil
	}
	r := j.Record(e.mode == sched.Conservative)
	if j.State == job.Pending {
		r.Singles = slices.Clone(e.deps.Singles(id))
	}
	return r
}

// Changed lists the jobs whose records the last step changed, in no order. It
// is valid until the next step.
func (e *Engine) Changed() []cluster.JobID { return e.touched }

// touch notes that a job's record changes.
func (e *Engine) touch(j *job.State) {
	e.victims.Touched(j)
	if !j.Touched {
		j.Touched = true
		e.touched = append(order.Double(e.touched), j.Spec.ID)
	}
}

// untouch begins a new step.
func (e *Engine) untouch() {
	for _, id := range e.touched {
		e.jobs[id].Touched = false
	}
	e.touched = e.touched[:0]
}

// Now is the time of the last step, or the last instant that was looked at.
func (e *Engine) Now() cluster.Time { return e.w.Now }
