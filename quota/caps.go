package quota

// Caps counts what each user holds in the queues that limit users, and the running jobs of queues
// that limit them. Users are dense numbers assigned by the caller; amounts are milli-GPU. A queue's
// caps hold for its whole subtree: a user's GPUs in all children count together.
type Caps struct {
	tree *Tree
	jobs []int    // running jobs per node
	held [][]held // per node with a user cap, by user; grows with new users
}

type held struct {
	milli Milli
	jobs  int
}

// NewCaps returns empty counts for a tree.
func NewCaps(t *Tree) *Caps {
	return &Caps{tree: t, jobs: make([]int, t.Len()), held: make([][]held, t.Len())}
}

// Charge adds m milli-GPU and a number of running jobs for a user in q and its ancestors; the same
// with both negated undoes it. Resizing a running job charges 0 jobs.
func (c *Caps) Charge(q, user int, m Milli, jobs int) {
	for ; q != Root; q = c.tree.nodes[q].parent {
		c.jobs[q] += jobs
		if s := &c.tree.nodes[q].spec; s.UserGPUs == 0 && s.UserJobs == 0 {
			continue
		}
		for len(c.held[q]) <= user {
			c.held[q] = append(c.held[q], held{})
		}
		c.held[q][user].milli += m
		c.held[q][user].jobs += jobs
	}
}

// user returns what a user holds in q, if q limits that.
func (c *Caps) user(q, user int) held {
	if user < len(c.held[q]) {
		return c.held[q][user]
	}
	return held{}
}

// Jobs returns the running jobs in q and below it.
func (c *Caps) Jobs(q int) int { return c.jobs[q] }

// Check returns the first cap, from q upwards, that forbids m more milli-GPU and so many more jobs
// for a user in q: the user's GPUs, the queue's running jobs, the user's running jobs.
func (c *Caps) Check(q, user int, m Milli, jobs int) Refusal {
	for ; q != Root; q = c.tree.nodes[q].parent {
		s, h := &c.tree.nodes[q].spec, c.user(q, user)
		switch {
		case s.UserGPUs > 0 && m > 0 && h.milli+m > s.UserGPUs:
			return c.tree.refuse(RuleUserGPUs, q, h.milli, s.UserGPUs, m)
		case s.MaxJobs > 0 && jobs > 0 && c.jobs[q]+jobs > s.MaxJobs:
			return c.tree.refuse(RuleMaxJobs, q, int64(c.jobs[q]), int64(s.MaxJobs), int64(jobs))
		case s.UserJobs > 0 && jobs > 0 && h.jobs+jobs > s.UserJobs:
			return c.tree.refuse(RuleUserJobs, q, int64(h.jobs), int64(s.UserJobs), int64(jobs))
		}
	}
	return Refusal{}
}
