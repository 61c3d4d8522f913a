package engine

import (
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/links"
	"github.com/muster-gpu/muster/engine/order"
	"github.com/muster-gpu/muster/engine/placement"
	"github.com/muster-gpu/muster/engine/reserve"
	"github.com/muster-gpu/muster/engine/sched"
)

// oracle is the engine as the rooms below ask it: views (sched.Oracle), searches for places (placement.Around) and
// reservations (reserve.Around).
type oracle Engine

var (
	_ sched.Oracle     = (*oracle)(nil)
	_ placement.Around = (*oracle)(nil)
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
	return s.Min == s.Max && e.admission.Admits(partition, j.Spec) &&
		e.admission.Narrowed(j.Spec, &job.Target{Partition: partition}, j.Base) >= 0
}

func (o *oracle) HowToStop(j *job.State) job.How { return o.stops.How(j) }

func (o *oracle) Grace(t cluster.Tier) time.Duration { return o.stops.Rules[t].Grace }

func (o *oracle) Suspends() bool { return o.stops.Any() }

// Undivided: where the driver does not choose GPUs no instance can be made, and an advance reservation counts on whole
// GPUs.
func (o *oracle) Undivided() bool { return o.cfg.Unshared || o.resv.HasAdvance() }

func (o *oracle) Jobs() []*job.State { return o.jobs }

func (o *oracle) Running() *order.List { return o.running.ByKey() }

func (o *oracle) Company(j *job.State) *links.Company {
	e := (*Engine)(o)
	return e.links.Company(e.Nodes, e.running.Started, j)
}

func (o *oracle) Ends() *order.List { return o.running.ByEnd() }

func (o *oracle) Moving() []cluster.JobID { return o.moves.OnTheWay() }
