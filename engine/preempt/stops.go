package preempt

import (
	"math/bits"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
)

// StopRule says how a job is preempted, and how long it has for it.
type StopRule struct {
	How   job.How
	Grace time.Duration
}

// DefaultStop is the rule of each tier where none is configured:
// critical jobs are only ever stopped by a lost node.
var DefaultStop = [3]StopRule{
	{job.Checkpoint, 10 * time.Minute}, {job.Checkpoint, 2 * time.Minute}, {job.Kill, 15 * time.Second}}

// Stops says how jobs are stopped.
type Stops struct {
	Rules [3]StopRule // by tier
	Spec  *cluster.Spec
	Store *inventory.Store
}

// How says how a job is stopped.
func (s *Stops) How(v *job.State) job.How {
	how := s.Rules[v.Spec.Tier].How
	if how == job.Suspend && !s.Keeps(v.Allocs) {
		how = job.Checkpoint
	}
	if how == job.Checkpoint && v.Spec.Checkpoint.None {
		return job.Kill
	}
	return how
}

// HowToLeave says how a job is stopped whose memory cannot stay where it is.
func (s *Stops) HowToLeave(v *job.State) job.How {
	how := s.How(v)
	if how == job.Suspend {
		return Save(v)
	}
	return how
}

// Save says how a job is stopped so that it can go on elsewhere.
func Save(v *job.State) job.How {
	if v.Spec.Checkpoint.None {
		return job.Kill
	}
	return job.Checkpoint
}

// Suspends says of which tiers jobs are suspended, as far as their memory may stay.
func (s *Stops) Suspends() (tiers [3]bool) {
	for t := range s.Rules {
		tiers[t] = s.Rules[t].How == job.Suspend
	}
	return tiers
}

// Any reports whether jobs are suspended at all.
func (s *Stops) Any() bool { return s.Suspends() != [3]bool{} }

// Keeps reports whether the memory of a job can stay on the devices that it holds while
// it is suspended. It would keep a GPU from being partitioned again, and one on which shares
// under MPS are, or come, has to be MPS' alone (NVIDIA's MPS documentation).
func (s *Stops) Keeps(allocs []inventory.Alloc) bool {
	for i := range allocs {
		a := &allocs[i]
		n := &s.Store.Nodes()[a.Node]
		for m := a.GPUs; m != 0; m &= m - 1 {
			recut := !n.Stays(bits.TrailingZeros64(m)) && s.Store.Classes()[n.Class()].Model().MIG()
			if a.Slots != 0 && recut ||
				a.Slots == 0 && (s.Spec.Sharing == cluster.MPS || s.Spec.MIG == cluster.DynamicMIG && recut) {
				return false
			}
		}
	}
	return true
}
