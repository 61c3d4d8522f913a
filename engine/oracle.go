package engine

import (
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/links"
	"github.com/muster-gpu/muster/engine/order"
	"github.com/muster-gpu/muster/engine/placement"
	"github.com/muster-gpu/muster/engine/preempt"
	"github.com/muster-gpu/muster/engine/reserve"
	"github.com/muster-gpu/muster/engine/sched"
)

// oracle is the engine as the rooms below ask it: views (sched.Oracle), searches for places (placement.Around) and for
// victims (preempt.Around), and reservations (reserve.Around).
type oracle Engine

var (
	_ sched.Oracle     = (*oracle)(nil)
	_ placement.Around = (*oracle)(nil)
	_ preempt.Around   = (*oracle)(nil)
	_ reserve.Around   = (*oracle)(nil)
)

func (o *oracle) Job(number int32) *job.State { return o.jobs[number] }

func (o *oracle) FairShare(j *job.State) int64 {
	ppm, ranked := o.limits.FairShare(j)
	if ranked {
		o.rekeyed = -1 // any rank may have changed: compare all again
	}
	return ppm
}

func (o *oracle) QueueUse(q int) (cpu cluster.Milli, ram cluster.MiB) {
	return o.limits.Holds(q)
}

func (o *oracle) Speed(j *job.State, gpu string, tasks int) int64 {
	return o.speeds.Of(j, gpu, tasks)
}

func (o *oracle) SpeedsMeasured() bool { return o.speeds.Measured() }

func (o *oracle) MayEnter(j *job.State, partition string) bool {
	e := (*Engine)(o)
	s := e.shapes.Get(j.Base)
	return s.Min == s.Max && e.admits(partition, j.Spec) &&
		e.narrowed(j.Spec, &job.Target{Partition: partition}, j.Base) >= 0
}

func (o *oracle) HowToStop(j *job.State) job.How { return (*Engine)(o).howToStop(j) }

func (o *oracle) Grace(t cluster.Tier) time.Duration { return o.cfg.Stop[t].Grace }

func (o *oracle) Suspends() bool { return (*Engine)(o).freezes() }

func (o *oracle) Undivided() bool { return (*Engine)(o).undivided() }

func (o *oracle) Jobs() []*job.State { return o.jobs }

func (o *oracle) Running() *order.List { return (*Engine)(o).byKey() }

func (o *oracle) Company(j *job.State) *links.Company {
	e := (*Engine)(o)
	return e.links.Company(e.Nodes, e.transmitting, j)
}

func (o *oracle) Ends() *order.List { return (*Engine)(o).byEnd() }

func (o *oracle) EndOf(j *job.State) cluster.Time { return (*Engine)(o).endOf(j) }

func (o *oracle) LimitOf(j *job.State) time.Duration { return (*Engine)(o).limitOf(j) }

func (o *oracle) Moving() []cluster.JobID { return o.defrag.movers }

func (o *oracle) LacksQuota(j *job.State) bool { return o.limits.Lacks(j) }

func (o *oracle) Charge(j *job.State, sign int64) { o.limits.Charge(j, sign) }

func (o *oracle) RunItem(j *job.State) order.Item { return (*Engine)(o).runItem(j) }

func (o *oracle) Booked() *[3]int { return &o.holding }

func (o *oracle) ListBooked(buf []order.Item, place func(j *job.State) order.Item) []order.Item {
	return (*Engine)(o).eachBooked(buf, place)
}
