package quota

import (
	"fmt"
	"strconv"

	"github.com/muster-gpu/muster/cluster"
)

// Rule is what forbids a job.
type Rule uint8

// The rules. Reclaim can cure RuleAvailable, and RuleLimit of an ancestor (from which siblings
// borrow); the others depend only on the queue or the user.
const (
	Allowed       Rule = iota
	RuleLimit          // the queue's burst limit
	RuleCritical       // critical jobs must fit the guarantee
	RuleReserve        // the rest is kept for the critical tier
	RuleAvailable      // guaranteed to other queues and not lent by them, or lent out already
	RuleUserGPUs       // cap on one user's GPUs
	RuleMaxJobs        // cap on the queue's running jobs
	RuleUserJobs       // cap on one user's running jobs
	RuleBudget         // GPU-hours of the period
)

var ruleNames = []string{"allowed", "limit", "critical", "reserve", "available", "user-gpus", "max-jobs", "user-jobs",
	"budget"}

// String returns the rule's name.
func (r Rule) String() string {
	if int(r) < len(ruleNames) {
		return ruleNames[r]
	}
	return fmt.Sprintf("invalid(%d)", uint8(r))
}

// MarshalText implements encoding.TextMarshaler.
func (r Rule) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *Rule) UnmarshalText(b []byte) error {
	for i, n := range ruleNames {
		if n == string(b) {
			*r = Rule(i)
			return nil
		}
	}
	return cluster.Unknown("quota rule", string(b), ruleNames)
}

// Refusal is the rule that forbids a job. The zero value: none does. The amounts are milli-GPU,
// jobs for the job caps, GPU-hours for budgets.
type Refusal struct {
	Rule  Rule   `json:"rule,omitempty"`
	Queue int    `json:"queue,omitempty"` // the node with the rule
	Name  string `json:"name,omitempty"`  // its name
	Used  int64  `json:"used,omitempty"`
	Limit int64  `json:"limit,omitempty"`
	Asked int64  `json:"asked,omitempty"` // Used+Asked > Limit
}

// OK reports that nothing forbids the job.
func (r Refusal) OK() bool { return r.Rule == Allowed }

// String describes it in one line, in GPUs.
func (r Refusal) String() string {
	used, limit, asked := FormatGPUs(r.Used), FormatGPUs(r.Limit), GPUs(r.Asked)
	queue := "queue " + strconv.Quote(r.Name)
	if r.Queue == Root {
		queue = "the cluster"
	}
	switch r.Rule {
	case Allowed:
		return "allowed"
	case RuleLimit:
		return fmt.Sprintf("%s: %s asked, %s used, limit %s", queue, asked, used, limit)
	case RuleCritical:
		return fmt.Sprintf("%s: %s asked for a critical job, %s used by critical jobs, guarantee %s", queue, asked,
			used, limit)
	case RuleReserve:
		return fmt.Sprintf("%s: %s asked, %s of %s used or kept for the critical tier", queue, asked, used, limit)
	case RuleAvailable:
		return fmt.Sprintf("%s: %s asked, %s of %s used", queue, asked, used, limit)
	case RuleUserGPUs:
		return fmt.Sprintf("%s: %s asked, the user holds %s, user limit %s", queue, asked, used, limit)
	case RuleMaxJobs:
		return fmt.Sprintf("%s: %d jobs running, at most %d", queue, r.Used, r.Limit)
	case RuleUserJobs:
		return fmt.Sprintf("%s: the user runs %d jobs, at most %d", queue, r.Used, r.Limit)
	case RuleBudget:
		return fmt.Sprintf("%s: %d of %d GPU-hours of this period spent", queue, r.Used, r.Limit)
	}
	return r.Rule.String()
}

// GPUs is "1 GPU" or "2.5 GPUs".
func GPUs(m Milli) string {
	if m == 1000 {
		return "1 GPU"
	}
	return FormatGPUs(m) + " GPUs"
}

// FormatGPUs formats milli-GPU as GPUs: "4", "0.5".
func FormatGPUs(m Milli) string {
	s := ""
	if m < 0 {
		s, m = "-", -m
	}
	s += strconv.FormatInt(m/1000, 10)
	if rest := m % 1000; rest != 0 {
		frac := fmt.Sprintf(".%03d", rest)
		for frac[len(frac)-1] == '0' {
			frac = frac[:len(frac)-1]
		}
		s += frac
	}
	return s
}

// binding is the node that bounds what is available, and the use of its quota at its level before
// more is taken.
type binding struct {
	node  int
	used  Milli // idle reserve included
	limit Milli
	held  Milli // remains idle for the critical tier when more is taken
}

// available is Kueue's formula (cohort tree, per flavor and resource):
//
//	available(root) = subtree - usage
//	available(n)    = max(0, local-usage) + min(available(parent),
//	                  (subtree-local) - max(0, usage-local) + borrowingLimit)
//
// with borrowingLimit = limit - guarantee, evaluated as if the node's usage
// and the hold of everything on the way up changed by so much.
func (t *Tree) available(q int, dOcc, dHeld Milli) (Milli, binding) {
	n := &t.nodes[q]
	occ := n.occ + dOcc
	if q == Root {
		return n.subtree - occ, binding{Root, n.occ, n.subtree, n.held + dHeld}
	}
	up, bind := t.available(n.parent, max(0, occ-n.local)-n.bubble(), dHeld)
	if n.limit != cluster.Unlimited {
		most := n.subtree - n.local + n.limit - n.guarantee
		if free := most - max(0, occ-n.local); free < up {
			up, bind = free, binding{q, n.bubble(), most, n.held + dHeld}
		}
	}
	return max(0, n.local-occ) + up, bind
}

// Available returns how many more milli-GPU the quota allows q to use for non-critical work: its
// guarantee and what it may borrow, by Kueue's formula, with the idle reserve counted as used. What
// is not guaranteed to any queue belongs to the root and can be borrowed by all. It is negative
// after a cut of capacity or quota. Whether devices are free is a separate question.
func (t *Tree) Available(q int) Milli {
	if t.open {
		return Boundless
	}
	free, _ := t.available(q, 0, 0)
	return free
}

// Potential returns the most milli-GPU that q could use with the current amounts if all other
// queues were idle (Kueue's potential): min(local + potential(parent), subtree + borrowingLimit).
func (t *Tree) Potential(q int) Milli {
	if t.open {
		return Boundless
	}
	n := &t.nodes[q]
	if q == Root {
		return n.subtree
	}
	most := n.local + t.Potential(n.parent)
	if n.limit != cluster.Unlimited {
		most = min(most, n.subtree+n.limit-n.guarantee)
	}
	return most
}

// Check returns the rule, if any, that forbids m more milli-GPU in q for a job of the tier. In this
// order: the limit of q and its ancestors, from the queue upwards, together with the guarantee for
// critical jobs; then what is available.
func (t *Tree) Check(q int, m Milli, tier cluster.Tier) Refusal {
	if t.open || m <= 0 {
		return Refusal{}
	}
	critical := tier == cluster.Critical
	for p := q; p != Root; p = t.nodes[p].parent {
		n := &t.nodes[p]
		if n.limit != cluster.Unlimited && n.used+m > n.limit {
			return t.refuse(RuleLimit, p, n.used, n.limit, m)
		}
		if critical && n.crit+m > n.guarantee {
			return t.refuse(RuleCritical, p, n.crit, n.guarantee, m)
		}
	}
	dHeld := t.nodes[q].fill(m, critical)
	free, bind := t.available(q, m+dHeld, dHeld)
	if free >= 0 {
		return Refusal{}
	}
	rule := RuleAvailable
	if -free <= bind.held {
		rule = RuleReserve // it would fit without the idle reserve
	}
	return t.refuse(rule, bind.node, bind.used, bind.limit, m)
}

func (t *Tree) refuse(rule Rule, q int, used, limit, asked int64) Refusal {
	return Refusal{Rule: rule, Queue: q, Name: t.nodes[q].spec.Name, Used: used, Limit: limit, Asked: asked}
}
