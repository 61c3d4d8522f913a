package engine

import (
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/job"
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
	n := e.tree.Len()
	below := make([]int64, len(assocs))
	for i := 1; i < len(assocs); i++ {
		below[assocs[i].Parent] += assocs[i].Usage
	}
	list := make([]FairShare, 0, len(assocs))
	for i := 1; i < len(assocs); i++ {
		a := &assocs[i]
		s := FairShare{Shares: a.Shares, Usage: a.Usage, Of: below[a.Parent]}
		if i < n {
			s.Queue, s.Parent = e.tree.Spec(i).Name, e.tree.Spec(i).Parent
		} else {
			u := &e.limits.users[i-n]
			s.Queue, s.User = e.tree.Spec(int(u.queue)).Name, e.users.names[u.user]
			s.Factor = int64(ranks[i]) * job.Million / int64(max(1, users))
		}
		list = append(list, s)
	}
	return list, e.traits.ByUser
}

// fairTree is the tree of queues and users as it stands, with Slurm's ranks.
func (e *Engine) fairTree() (assocs []quota.Assoc, ranks []int, users int) {
	for q := range e.tree.Len() {
		assocs = append(assocs, quota.Assoc{Parent: max(0, e.tree.Parent(q)), Shares: max(1, e.tree.Spec(q).Shares)})
	}
	for _, u := range e.limits.users { // copies: what they have used is not booked by asking
		u.accrue(e.limits.decay, e.now)
		assocs = append(assocs, quota.Assoc{Parent: int(u.queue), Shares: 1, Usage: u.usage.Work, User: true})
	}
	quota.SumUsage(assocs)
	ranks, users = quota.FairTree(assocs)
	return assocs, ranks, users
}

// Factors are what a job's priority is a weighted sum of: of a job in millionths, as weights in points.
type Factors struct {
	Age, FairShare, Size, Partition int64
	Own                             int64 // the job's own priority, which is added as it is
}

// Factored is a policy whose order is a sum of weighted factors. People are shown them; no decision
// depends on this method.
type Factored interface {
	// Factors returns the factors of a waiting job whose owner's Fair Tree factor is fair, in millionths.
	Factors(v View, j JobView, fair int64) Factors
	Weights() Factors
}

// Factors returns the weights and the factors of all waiting jobs, by number; nil where the policy's
// order is no sum of factors.
func (e *Engine) Factors() (weights *Factors, jobs map[cluster.JobID]Factors) {
	p, ok := e.cfg.Policy.(Factored)
	if !ok {
		return nil, nil
	}
	w := p.Weights()
	_, ranks, users := e.fairTree()
	jobs = map[cluster.JobID]Factors{}
	for _, j := range e.jobs {
		if j == nil || j.State != job.Pending {
			continue
		}
		fair := int64(0)
		if id, known := e.limits.userID[[2]int32{j.Queue, j.User}]; known {
			fair = int64(ranks[e.tree.Len()+int(id)]) * job.Million / int64(max(1, users))
		}
		jobs[j.Spec.ID] = p.Factors(View{e}, JobView{e, j}, fair)
	}
	return &w, jobs
}
