package engine

import (
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/sched"
	"github.com/muster-gpu/muster/quota"
)

// FairShare is a queue, or a user in one, as the Fair Tree sees it.
type FairShare struct {
	Queue, Parent, User string // User empty: the queue itself; Parent empty: right below the root
	Shares              int64
	Usage               int64 // decayed, milli-GPU × milliseconds
	Of                  int64 // the usage of all siblings
	Factor              int64 // of a user: millionths, more is better
}

// FairShares lists queues, parents first, and the users in them with their decayed usage and factor as
// of the last step. Usage is counted only under a policy that looks at users; false: this one does not.
// Nothing changes by asking: ranks that decisions use are computed when the policy wants them.
func (e *Engine) FairShares() ([]FairShare, bool) {
	assocs, ranks, users := e.fairTree()
	n := e.w.Tree.Len()
	below := make([]int64, len(assocs))
	for i := 1; i < len(assocs); i++ {
		below[assocs[i].Parent] += assocs[i].Usage
	}
	list := make([]FairShare, 0, len(assocs))
	for i := 1; i < len(assocs); i++ {
		a := &assocs[i]
		s := FairShare{Shares: a.Shares, Usage: a.Usage, Of: below[a.Parent]}
		if i < n {
			s.Queue, s.Parent = e.w.Tree.Spec(i).Name, e.w.Tree.Spec(i).Parent
		} else {
			u := &e.limits.users[i-n]
			s.Queue, s.User = e.w.Tree.Spec(int(u.queue)).Name, e.users.names[u.user]
			s.Factor = int64(ranks[i]) * job.Million / int64(max(1, users))
		}
		list = append(list, s)
	}
	return list, e.w.Traits.ByUser
}

// fairTree is the tree of queues and users as it stands, with Slurm's ranks.
func (e *Engine) fairTree() (assocs []quota.Assoc, ranks []int, users int) {
	for q := range e.w.Tree.Len() {
		assocs = append(assocs,
			quota.Assoc{Parent: max(0, e.w.Tree.Parent(q)), Shares: max(1, e.w.Tree.Spec(q).Shares)})
	}
	for _, u := range e.limits.users { // copies: what they have used is not booked by asking
		u.accrue(e.limits.decay, e.w.Now)
		assocs = append(assocs, quota.Assoc{Parent: int(u.queue), Shares: 1, Usage: u.usage.Work, User: true})
	}
	quota.SumUsage(assocs)
	ranks, users = quota.FairTree(assocs)
	return assocs, ranks, users
}

// Factors returns the weights and the factors of all waiting jobs, by number; nil where the policy's
// order is no sum of factors.
func (e *Engine) Factors() (weights *sched.Factors, jobs map[cluster.JobID]sched.Factors) {
	p, ok := e.cfg.Policy.(sched.Factored)
	if !ok {
		return nil, nil
	}
	w := p.Weights()
	_, ranks, users := e.fairTree()
	jobs = map[cluster.JobID]sched.Factors{}
	for _, j := range e.jobs {
		if j == nil || j.State != job.Pending {
			continue
		}
		fair := int64(0)
		if id, known := e.limits.userID[[2]int32{j.Queue, j.User}]; known {
			fair = int64(ranks[e.w.Tree.Len()+int(id)]) * job.Million / int64(max(1, users))
		}
		jobs[j.Spec.ID] = p.Factors(e.w.View(), e.w.Job(j), fair)
	}
	return &w, jobs
}
