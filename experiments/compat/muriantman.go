package compat

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/engine/sched"
)

// MuriAntMan is Muri's world under its AntMan, whose rules are particular to that simulator
// (section 7): it holds GPUs for jobs that cannot start yet, charges them a load that is a sum of
// doubles, and runs opportunistic jobs on GPUs of several others. So they are here and not a
// policy; the engine books the running jobs. If counted, a policy of ours decides instead, and GPUs
// are only counted.
func MuriAntMan(counted bool) Profile {
	p := Muri()
	p.Name, p.sharing = "muri-antman", &antManWorld{counted: counted}
	return p
}

const antManNodes, antManNode = 8, 8 // nodes, GPUs of each

// antManWorld is the rules' state: for each GPU, its guarantee job and its load.
type antManWorld struct {
	w       *World
	counted bool
	holder  [antManNodes * antManNode]*job
	load    [antManNodes * antManNode]float64
	planned map[cluster.JobID]bool
}

// antManJob is a job's state.
type antManJob struct {
	opportunistic bool
	has           []int // GPUs
	node          int   // node to which its GPUs bind it; -1
	complete      bool
}

// Loads are variables, so that they are summed in doubles. A guarantee job's load is added in two
// parts.
var antManHold, antManStart, antManGuest, antManMost = 0.1, 0.01, 0.9, 0.8

func (m *antManWorld) enter(j *job) error {
	j.node = -1
	switch {
	case !m.counted:
		j.entry.Job.GPUTypes = []string{antManKinds[count(j.opportunistic)]}
	case j.opportunistic:
		j.entry.Job.Tier = cluster.BestEffort
	}
	return j.measure()
}

// antManKinds are the engine's two layers of the cluster: jobs of one kind share with jobs of the
// other, and not among themselves.
var antManKinds = [2]string{"V100-32GB", "T4-16GB"}

func (m *antManWorld) ready(w *World, cfg *engine.Config) error {
	if m.w = w; m.counted {
		cfg.Speeds = m
		return nil
	}
	cfg.Policy, cfg.Spec = m, cluster.Spec{}
	for _, kind := range antManKinds {
		cfg.Spec.Nodes = append(cfg.Spec.Nodes, cluster.Node{Name: kind, Model: kind, GPUs: antManNodes * antManNode})
	}
	return nil
}

func (m *antManWorld) ran(*job) {}

// order puts guarantee jobs first, then sorts by arrival.
func (m *antManWorld) order(live []*job) {
	slices.SortStableFunc(live, func(a, b *job) int {
		return cmp.Or(cmp.Compare(count(a.opportunistic), count(b.opportunistic)), cmp.Compare(a.submit, b.submit),
			cmp.Compare(a.entry.Job.ID, b.entry.Job.ID))
	})
}

// settle sets the pace of opportunistic jobs by their partners.
func (m *antManWorld) settle(live []*job) error {
	if m.counted {
		m.settleCounted(live)
		return nil
	}
	for _, j := range live {
		if j.running != m.planned[j.entry.Job.ID] {
			return fmt.Errorf("compat: job %d runs: %t; planned: %t", j.entry.Job.ID, j.running, !j.running)
		}
		if !j.running || !j.opportunistic {
			continue
		}
		j.cur = j.step
		for _, g := range j.has {
			if h := m.holder[g]; h != nil && h.complete {
				j.cur = max(j.cur, antManPace(j.busy, h))
			}
		}
	}
	return nil
}

// settleCounted is settle with the devices that the engine assigned.
func (m *antManWorld) settleCounted(live []*job) {
	for _, j := range live {
		j.cur = j.step
		for _, o := range live {
			switch {
			case !j.opportunistic || !j.running || !o.running || o == j || o.devices != j.devices:
			case o.opportunistic:
				j.cur = max(j.cur, 2*j.step)
			default:
				j.cur = max(j.cur, antManPace(j.busy, o))
			}
		}
	}
}

// Speed implements sched.Speeds.
func (*antManWorld) Speed(*cluster.Job, string, int) int64 { return 1_000_000 }

// Slice implements sched.Speeds: there are no MIG instances here.
func (*antManWorld) Slice(*cluster.Job, string, string, int64) int64 { return 1_000_000 }

// Beside implements sched.Speeds: guarantee jobs do not slow down.
func (*antManWorld) Beside(j *cluster.Job, _ string, others []*cluster.Job) int64 {
	if j.Tier == cluster.BestEffort {
		return 1_000_000 / int64(1+len(others))
	}
	return 1_000_000
}

// antManPace is the seconds per iteration of an opportunistic job next to another: as many of the
// other's iterations as its stages need, each in the part of the resources that the other leaves.
func antManPace(a [3]float64, other *job) float64 {
	c := other.busy
	k := math.Floor(a[0] / (c[1] + c[2]))
	if x := math.Mod(a[0], c[1]+c[2]); x > 0 {
		k++
		a[1] -= min(a[1], c[2], (c[1]+c[2])-x)
	}
	k += math.Floor(a[1] / (c[0] + c[2]))
	if x := math.Mod(a[1], c[0]+c[2]); x > 0 {
		k++
		if x < c[0] {
			a[2] -= min(a[2], (c[0]+c[1])-x)
		}
	}
	k += math.Floor(a[2] / (c[0] + c[1]))
	if math.Mod(a[2], c[0]+c[1]) > c[0] {
		k++
	}
	return k * other.step
}

// ended removes a job's load from its GPUs.
func (m *antManWorld) ended(j *job) {
	for _, g := range j.has {
		if j.opportunistic {
			m.load[g] -= antManGuest
		} else {
			m.load[g] -= antManHold
			m.holder[g] = nil
		}
	}
}

// Name implements sched.Policy.
func (*antManWorld) Name() string { return "muri-antman" }

// Traits makes it plan once at every instant.
func (*antManWorld) Traits() sched.Traits {
	return sched.Traits{Backfill: engine.Skip, Round: 1, Gated: true}
}

// Key implements sched.Policy.
func (*antManWorld) Key(sched.View, sched.JobView) engine.Key { return engine.Key{} }

// Plan lets every waiting job try once.
func (m *antManWorld) Plan(v sched.View, jobs []sched.JobView) sched.Plan {
	m.planned = map[cluster.JobID]bool{}
	for _, j := range m.w.live {
		switch {
		case j.complete:
		case j.opportunistic:
			m.squeeze(j)
		default:
			m.hold(j)
		}
		if j.complete {
			m.planned[j.entry.Job.ID] = true
		}
	}
	plan := sched.Plan{Targets: make([]engine.Target, len(jobs)), Next: v.Now() + 1}
	for i, j := range jobs {
		plan.Targets[i].Idle = !m.planned[j.Spec().ID]
	}
	return plan
}

// unheld lists the GPUs of a node without a guarantee job.
func (m *antManWorld) unheld(node int) (list []int) {
	for g := node * antManNode; g < (node+1)*antManNode; g++ {
		if m.holder[g] == nil {
			list = append(list, g)
		}
	}
	return list
}

// take assigns GPUs to a guarantee job.
func (m *antManWorld) take(j *job, gpus []int) {
	for _, g := range gpus {
		m.holder[g] = j
		m.load[g] += antManHold - antManStart
	}
	j.has = append(j.has, gpus...)
}

// hold assigns a guarantee job GPUs without other guarantee jobs: on one node, or whole nodes; the
// job keeps what does not suffice, and waits for the rest.
func (m *antManWorld) hold(j *job) {
	n := j.entry.Job.GPUs()
	missing := n - len(j.has)
	switch {
	case n > antManNode:
		for node := 0; node < antManNodes && missing > 0; node++ {
			if free := m.unheld(node); len(free) == antManNode {
				m.take(j, free)
				missing -= antManNode
			}
		}
	default:
		if j.node < 0 {
			j.node = m.home(n)
		}
		if j.node >= 0 {
			free := m.unheld(j.node)
			m.take(j, free[:min(missing, len(free))])
		}
	}
	if len(j.has) < n {
		return
	}
	j.complete = true
	for _, g := range j.has {
		m.load[g] += antManStart
	}
}

// home is the first node with enough GPUs, otherwise the one with most; -1: there is none.
func (m *antManWorld) home(n int) int {
	best, most := -1, 0
	for node := range antManNodes {
		free := len(m.unheld(node))
		if free >= n {
			return node
		}
		if free > most {
			best, most = node, free
		}
	}
	return best
}

// squeeze starts an opportunistic job on the GPUs with the least load, on any nodes.
func (m *antManWorld) squeeze(j *job) {
	var list []int
	for g := range m.load {
		if m.load[g] < antManMost {
			list = append(list, g)
		}
	}
	n := j.entry.Job.GPUs()
	if len(list) < n {
		return
	}
	slices.SortStableFunc(list, func(a, b int) int { return cmp.Compare(m.load[a], m.load[b]) })
	for _, g := range list[:n] {
		m.load[g] += antManGuest
	}
	j.has, j.complete = list[:n], true
}
