// Package lending keeps what services lend for jobs that can be taken back. A service that has fewer replicas than it
// may have lends what the others would hold. Best-effort and elastic jobs may have that, as they make room at any time;
// others start only where enough is left besides.
package lending

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/shape"
	"github.com/muster-gpu/muster/quota"
)

// Book is what services lend, and what of the GPUs is with jobs that do not make room at any time. A nil Book has no
// lenders.
type Book struct {
	st      *inventory.Store
	shapes  *shape.Table
	lenders []lender
	regions []region
	amounts []amount // by class of node
}

// region is classes of nodes to which the replicas of some lenders are confined: the classes of a lender, or of several
// that overlap. What services may have back can be had together if and only if each region has enough for those of
// its lenders (Hall, "On Representatives of Subsets", 1935, here for amounts).
type region struct {
	classes inventory.ClassSet
	lenders []int // indexes, of all whose classes are within these
}

// mostRegions bounds the regions. GPU models, of which there are a few, make classes differ for lenders; beyond it the
// unions are left out.
const mostRegions = 64

// lender is a service with what it has.
type lender struct {
	cluster.Lender
	classes inventory.ClassSet // of nodes on which its replicas can be
	each    cluster.Milli      // of a replica
	have    int                // replicas that hold devices
}

// owed is what a service may have back.
func (l *lender) owed() cluster.Milli { return cluster.Milli(max(0, l.Replicas-l.have)) * l.each }

// amount is milli-GPU of a class of nodes: of the healthy GPUs on nodes that take jobs, and what of them is held by
// replicas of lenders and by jobs that do not make room at any time.
type amount struct{ all, firm cluster.Milli }

// New is a book without lenders.
func New(st *inventory.Store, shapes *shape.Table) *Book { return &Book{st: st, shapes: shapes} }

// Any reports whether a service lends.
func (b *Book) Any() bool { return b != nil && len(b.lenders) > 0 }

// Lenders are the services that lend.
func (b *Book) Lenders() (list []cluster.Lender) {
	for i := range b.lenders {
		list = append(list, b.lenders[i].Lender)
	}
	return list
}

// Replace has these services lend, and no others. One whose replica cannot be is left out.
func (b *Book) Replace(list []cluster.Lender, jobs []*job.State) {
	b.lenders = nil
	for _, l := range list {
		if l.Service != "" && l.Replica != nil && job.CheckTasks(l.Replica) == "" {
			b.lenders = append(b.lenders, lender{Lender: l})
		}
	}
	b.Recount(jobs)
}

// Recount counts all again: nodes, or the lenders, are others than before.
func (b *Book) Recount(jobs []*job.State) {
	if !b.Any() {
		return
	}
	for i := range b.lenders {
		l := &b.lenders[i]
		l.have = 0
		l.classes, l.each = b.shapes.Reach(l.Replica)
	}
	b.regions = regionsOf(b.lenders)
	b.amounts = make([]amount, len(b.st.Classes()))
	for i := range b.st.Nodes() {
		if n := &b.st.Nodes()[i]; n.TakesJobs() {
			b.amounts[n.Class()].all += cluster.Whole * cluster.Milli(bits.OnesCount64(n.Healthy()))
		}
	}
	for _, j := range jobs {
		if j != nil && (j.Booked() || j.Dest != nil) {
			b.Charge(j, 1)
		}
	}
}

// regionsOf lists the regions of lenders: first those of one lender.
func regionsOf(lenders []lender) (list []region) {
	add := func(set inventory.ClassSet) {
		same := func(r region) bool { return r.classes == set }
		if !set.Empty() && len(list) < mostRegions && !slices.ContainsFunc(list, same) {
			list = append(list, region{classes: set})
		}
	}
	for i := range lenders {
		add(lenders[i].classes)
	}
	single := slices.Clone(list)
	for i := 0; i < len(list); i++ {
		for k := range single {
			if o := &single[k].classes; list[i].classes.Minus(o) != list[i].classes { // they overlap
				union := list[i].classes
				union.Union(o)
				add(union)
			}
		}
	}
	for i := range list {
		for k := range lenders {
			if lenders[k].classes.Minus(&list[i].classes) == (inventory.ClassSet{}) {
				list[i].lenders = append(list[i].lenders, k)
			}
		}
	}
	return list
}

// Charge counts what a job holds (sign 1), or does so no more (-1).
func (b *Book) Charge(j *job.State, sign int64) {
	if !b.Any() {
		return
	}
	keeps := b.keeps(j)
	if l := b.of(j.Spec); l != nil {
		l.have += int(sign)
	}
	for i := range j.Allocs {
		a := &j.Allocs[i]
		n := &b.st.Nodes()[a.Node]
		m := min(a.Milli(), keeps)
		if keeps -= m; n.TakesJobs() && int(n.Class()) < len(b.amounts) {
			b.amounts[n.Class()].firm += cluster.Milli(sign) * m
		}
	}
}

// of is the lender of which a job is a replica; nil: none.
func (b *Book) of(spec *cluster.Job) *lender {
	if b == nil || spec.Service == "" {
		return nil
	}
	i := slices.IndexFunc(b.lenders, func(l lender) bool { return l.Service == spec.Service })
	if i < 0 {
		return nil
	}
	return &b.lenders[i]
}

// Servers reports whether a job is a replica of a service that has whole servers back.
func (b *Book) Servers(j *job.State) bool {
	l := b.of(j.Spec)
	return l != nil && l.Servers
}

// keeps is the milli-GPU that a job does not give back at any time: nothing of a best-effort or elastic job, but the
// smallest size of an elastic job that is critical.
func (b *Book) keeps(j *job.State) cluster.Milli {
	elastic := j.Spec.Elastic.Min < j.Spec.Elastic.Max
	switch {
	case j.Spec.Tier == cluster.BestEffort || elastic && j.Spec.Tier != cluster.Critical:
		return 0
	case elastic:
		return b.smallest(j)
	}
	return cluster.MaxMilli
}

func (b *Book) smallest(j *job.State) cluster.Milli {
	s := b.shapes.At(j.Shape)
	return b.shapes.MilliOf(s, int(s.Min))
}

// Closed is the classes of nodes on which a job is not to start now: too little would be left of what services may have
// back.
func (b *Book) Closed(j *job.State) (set inventory.ClassSet) {
	for _, r := range b.against(j) {
		set.Union(&r.classes)
	}
	return set
}

// Bars reports whether there are such nodes.
func (b *Book) Bars(j *job.State) bool { return len(b.against(j)) > 0 }

// Shuts reports whether a job is not to have some devices.
func (b *Book) Shuts(j *job.State, allocs []inventory.Alloc) bool {
	if !b.Any() {
		return false
	}
	closed := b.Closed(j)
	return slices.ContainsFunc(allocs, func(a inventory.Alloc) bool {
		return a.GPUs != 0 && closed.Has(b.st.Nodes()[a.Node].Class())
	})
}

// ShutsAll reports whether a job is not to start anywhere.
func (b *Book) ShutsAll(j *job.State) bool {
	if !b.Any() {
		return false
	}
	closed := b.Closed(j)
	return !closed.Empty() && (j.Home != nil && b.Shuts(j, j.Home) || b.shapes.At(j.Shape).Shut(&closed))
}

// against lists the regions in which too little would be left if a job started there.
func (b *Book) against(j *job.State) (list []*region) {
	if !b.Any() || b.of(j.Spec) != nil || b.keeps(j) == 0 {
		return nil
	}
	need, reach := b.smallest(j), b.shapes.At(j.Shape).Any
	if need == 0 {
		return nil
	}
	for i := range b.regions {
		r := &b.regions[i]
		if reach.Minus(&r.classes) != reach && b.matters(r) && b.left(r) < need-b.held(j, r) {
			list = append(list, r)
		}
	}
	return list
}

// held is what a job that starts elsewhere has in a region.
func (b *Book) held(j *job.State, r *region) (m cluster.Milli) {
	for i := range j.Allocs {
		if r.classes.Has(b.st.Nodes()[j.Allocs[i].Node].Class()) {
			m += j.Allocs[i].Milli()
		}
	}
	return m
}

// matters reports whether services that may have something back make up a region; otherwise smaller ones say all.
func (b *Book) matters(r *region) bool {
	var set inventory.ClassSet
	for _, i := range r.lenders {
		if b.lenders[i].owed() > 0 {
			set.Union(&b.lenders[i].classes)
		}
	}
	return !set.Empty() && set == r.classes
}

// owed is what the lenders of a region may have back.
func (b *Book) owed(r *region) (m cluster.Milli) {
	for _, i := range r.lenders {
		m += b.lenders[i].owed()
	}
	return m
}

// left is what is left in a region of what no replica and no job has that does not make room, without what its lenders
// may have back.
func (b *Book) left(r *region) (m cluster.Milli) {
	for class := range b.amounts {
		if r.classes.Has(int32(class)) {
			m += b.amounts[class].all - b.amounts[class].firm
		}
	}
	return m - b.owed(r)
}

// Text says which services keep a job from starting, where, and what would let it; "": none does.
func (b *Book) Text(j *job.State) string {
	var list []string
	for _, r := range b.against(j) {
		var names []string
		for _, i := range r.lenders {
			if b.lenders[i].owed() > 0 {
				names = append(names, b.lenders[i].Service)
			}
		}
		slices.Sort(names)
		who, verb, need := "service "+names[0], "lends", "it needs"
		if len(names) > 1 {
			who, verb, need = "services "+strings.Join(names, ", "), "lend", "they need"
		}
		list = append(list, fmt.Sprintf("%s %s %s of %s, which only best-effort and elastic jobs may have until %s them:"+
			" %s left for others, %s asked; more is left when one of the others ends, or when less is lent",
			who, verb, quota.GPUs(b.owed(r)), b.models(r), need, quota.GPUs(max(0, b.left(r))),
			quota.GPUs(b.smallest(j))))
	}
	return strings.Join(list, "; ")
}

// models names those of the GPUs of a region.
func (b *Book) models(r *region) string {
	var names []string
	for i := range b.st.Classes() {
		if name := b.st.Classes()[i].Model().Name; r.classes.Has(int32(i)) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// Aside returns what has the amounts be again as they are now, after what is foreseen was charged.
func (b *Book) Aside() (restore func()) {
	if !b.Any() {
		return func() {}
	}
	lenders, amounts := slices.Clone(b.lenders), slices.Clone(b.amounts)
	return func() { b.lenders, b.amounts = lenders, amounts }
}

// Check compares the book with the jobs.
func (b *Book) Check(jobs []*job.State) error {
	if !b.Any() {
		return nil
	}
	again := &Book{st: b.st, shapes: b.shapes, lenders: slices.Clone(b.lenders)}
	again.Recount(jobs)
	if !slices.Equal(again.amounts, b.amounts) {
		return fmt.Errorf("lending: by class %+v, want %+v", b.amounts, again.amounts)
	}
	for i := range b.lenders {
		if b.lenders[i].have != again.lenders[i].have {
			return fmt.Errorf("lending: service %s has %d replicas, want %d", b.lenders[i].Service, b.lenders[i].have,
				again.lenders[i].have)
		}
	}
	return nil
}
