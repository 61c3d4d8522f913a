package limits

import (
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/sched"
	"github.com/muster-gpu/muster/quota"
)

// User numbers users densely in the order in which they are first seen.
func (b *Book) User(name string) int32 {
	id, ok := b.userID[name]
	if !ok {
		id = int32(len(b.names))
		b.userID[name] = id
		b.names = append(b.names, name)
	}
	return id
}

// Users lists the users by number.
func (b *Book) Users() []string { return slices.Clone(b.names) }

// association returns the user's association with a leaf queue.
func (b *Book) association(q, user int32) *assoc {
	k := [2]int32{q, user}
	id, ok := b.assocs[k]
	if !ok {
		id = int32(len(b.users))
		b.users = append(b.users, assoc{queue: q, user: user, since: b.world.Now})
		b.assocs[k] = id
	}
	return &b.users[id]
}

// FairShare is the Fair Tree factor of a job's owner in its queue, in ppm, as of when ranks were last computed. ranked:
// they were computed just now, because the user was unknown, so that those of others may be others, too.
func (b *Book) FairShare(j *job.State) (ppm int64, ranked bool) {
	b.association(j.Queue, j.User)
	id := b.assocs[[2]int32{j.Queue, j.User}]
	if ranked = int(id) >= len(b.ranks); ranked {
		b.rank()
	}
	return int64(b.ranks[id]) * job.Million / int64(max(1, b.ranked)), ranked
}

// RankAgain computes ranks as of now, if the policy wanted some.
func (b *Book) RankAgain() {
	if b.ranks != nil {
		b.rank()
	}
}

// rank computes Slurm's Fair Tree over queues (accounts, with their
// shares) and users (one share each).
func (b *Book) rank() {
	for i := range b.users {
		b.users[i].accrue(b.decay, b.world.Now)
	}
	_, ranks, users := b.fairTree()
	b.ranks, b.ranked = ranks[b.tree.Len():], users
}

// FairShare is a queue, or a user in one, as the Fair Tree sees it.
type FairShare struct {
	Queue, Parent, User string // User empty: the queue itself; Parent empty: right below the root
	Shares              int64
	Usage               int64 // decayed, milli-GPU × milliseconds
	Of                  int64 // the usage of all siblings
	Factor              int64 // of a user: millionths, more is better
}

// FairShares lists queues, parents first, and the users in them with their decayed usage and factor as of now. Usage is
// counted only under a policy that looks at users; false: this one does not. Nothing changes by asking: ranks that
// decisions use are computed when the policy wants them.
func (b *Book) FairShares() ([]FairShare, bool) {
	assocs, ranks, users := b.fairTree()
	n := b.tree.Len()
	below := make([]int64, len(assocs))
	for i := 1; i < len(assocs); i++ {
		below[assocs[i].Parent] += assocs[i].Usage
	}
	list := make([]FairShare, 0, len(assocs))
	for i := 1; i < len(assocs); i++ {
		a := &assocs[i]
		s := FairShare{Shares: a.Shares, Usage: a.Usage, Of: below[a.Parent]}
		if i < n {
			s.Queue, s.Parent = b.tree.Spec(i).Name, b.tree.Spec(i).Parent
		} else {
			u := &b.users[i-n]
			s.Queue, s.User = b.tree.Spec(int(u.queue)).Name, b.names[u.user]
			s.Factor = int64(ranks[i]) * job.Million / int64(max(1, users))
		}
		list = append(list, s)
	}
	return list, b.world.Traits.ByUser
}

// fairTree is the tree of queues and users as it stands, with Slurm's ranks.
func (b *Book) fairTree() (assocs []quota.Assoc, ranks []int, users int) {
	for q := range b.tree.Len() {
		assocs = append(assocs, quota.Assoc{Parent: max(0, b.tree.Parent(q)), Shares: max(1, b.tree.Spec(q).Shares)})
	}
	for _, u := range b.users { // copies: what they have used is not booked by asking
		u.accrue(b.decay, b.world.Now)
		assocs = append(assocs, quota.Assoc{Parent: int(u.queue), Shares: 1, Usage: u.usage.Work, User: true})
	}
	quota.SumUsage(assocs)
	ranks, users = quota.FairTree(assocs)
	return assocs, ranks, users
}

// Factors lists the factors of all waiting jobs by number, as a policy has them whose order is a sum of factors.
func (b *Book) Factors(p sched.Factored, all []*job.State) map[cluster.JobID]sched.Factors {
	_, ranks, users := b.fairTree()
	list := map[cluster.JobID]sched.Factors{}
	for _, j := range all {
		if j == nil || j.State != job.Pending {
			continue
		}
		fair := int64(0)
		if id, known := b.assocs[[2]int32{j.Queue, j.User}]; known {
			fair = int64(ranks[b.tree.Len()+int(id)]) * job.Million / int64(max(1, users))
		}
		list[j.Spec.ID] = p.Factors(b.world.View(), b.world.Job(j), fair)
	}
	return list
}

// Ranks is the Fair Tree ranks in force, by entry of Usage, and of how many they are; nil: none were computed.
func (b *Book) Ranks() (ranks []int, ranked int) { return slices.Clone(b.ranks), b.ranked }

// RestoreRanks goes on with the ranks that were in force.
func (b *Book) RestoreRanks(ranks []int, ranked int) {
	b.ranks, b.ranked = append([]int(nil), ranks...), ranked
}

// UsageRecord is the decayed usage of a user in a queue.
type UsageRecord struct {
	Queue string       `json:"queue"`
	User  string       `json:"user"`
	Since cluster.Time `json:"since"`
	Usage quota.Usage  `json:"usage"`
}

// BudgetRecord is what a queue spent of its GPU-hours.
type BudgetRecord struct {
	Queue string       `json:"queue"`
	Since cluster.Time `json:"since"`
	Spent int64        `json:"spent"` // milli-GPU-milliseconds in period Index
	Index int64        `json:"index"`
}

// Usage lists the decayed usage of users and the budgets of queues.
func (b *Book) Usage() (usage []UsageRecord, budgets []BudgetRecord) {
	for i := range b.users {
		u := &b.users[i]
		usage = append(usage, UsageRecord{b.tree.Name(int(u.queue)), b.names[u.user], u.since, u.usage})
	}
	for q := range b.budgets {
		if g := &b.budgets[q]; g.Limit > 0 {
			budgets = append(budgets, BudgetRecord{b.tree.Name(q), b.queues[q].since, g.Spent, g.Index})
		}
	}
	return usage, budgets
}

// RestoreUsage sets what users and queues used so far, of queues that there are.
func (b *Book) RestoreUsage(usage []UsageRecord, budgets []BudgetRecord) {
	for _, u := range usage {
		q, ok := b.Index(u.Queue)
		if !ok || !b.tree.Leaf(q) {
			continue
		}
		a := b.association(int32(q), b.User(u.User))
		a.since, a.usage = u.Since, u.Usage
	}
	for _, r := range budgets {
		if q, ok := b.Index(r.Queue); ok {
			b.queues[q].since = r.Since
			b.budgets[q].Spent, b.budgets[q].Index = r.Spent, r.Index
		}
	}
}
