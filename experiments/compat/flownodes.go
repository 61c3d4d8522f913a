package compat

import (
	"cmp"
	"slices"
)

// flowNodes is the placement of ElasticFlow's simulator (8.3). It matters only because a job costs
// less in a place where a job of its size was before.
type flowNodes struct {
	nodes   int
	free    []int
	classes [][]*flowSet // by the number of their free GPUs or, if none is free, the size of the last job
	where   map[int]*flowSet
}

// flowSet is whole nodes that jobs share.
type flowSet struct {
	nodes, jobs []int
	used, tag   int
}

// flowSwitch is the number of nodes of a switch where there are two; in that simulator both
// switches number their nodes alike.
const flowSwitch = 32

func newFlowNodes(nodes int) *flowNodes {
	n := &flowNodes{nodes: nodes, classes: make([][]*flowSet, len(gandivaSizes)), where: map[int]*flowSet{}}
	for i := range nodes {
		n.free = append(n.free, i)
	}
	return n
}

// number is a node's number within its switch.
func (n *flowNodes) number(node int) int {
	if n.nodes == 2*flowSwitch {
		return node % flowSwitch
	}
	return node
}

func (s *flowSet) room() int { return slotNode*len(s.nodes) - s.used }

// flowClass is the largest size that divides the free GPUs.
func flowClass(free int) int {
	for c := len(gandivaSizes) - 1; c > 0; c-- {
		if free%gandivaSizes[c] == 0 {
			return c
		}
	}
	return 0
}

func (n *flowNodes) sort(class int) {
	slices.SortStableFunc(n.classes[class], func(a, b *flowSet) int { return cmp.Compare(a.used, b.used) })
}

// place finds nodes for all jobs with GPUs: the largest first, then those of less than a node by
// size.
func (n *flowNodes) place(w *FlowWorld) {
	for _, size := range []int{slotNode, 4, 2, 1} {
		for _, i := range w.known {
			if g := w.jobs[i].want; g == size || size == slotNode && g > size {
				n.put(i, g)
			}
		}
	}
}

// put finds nodes for a job.
func (n *flowNodes) put(i, gpus int) {
	own := slices.Index(gandivaSizes, gpus)
	for c := len(gandivaSizes); c > own; c-- {
		class := c % len(gandivaSizes)
		if c == len(gandivaSizes) {
			class = own
		}
		if len(n.classes[class]) == 0 {
			continue
		}
		s := n.classes[class][0]
		n.classes[class] = slices.Delete(n.classes[class], 0, 1)
		if s.room() < gpus {
			n.classes[class] = append(n.classes[class], s)
			continue
		}
		s.used += gpus
		s.jobs = append(s.jobs, i)
		n.where[i] = s
		to := own
		if f := s.room(); f > 0 {
			to = flowClass(f)
			s.tag = gandivaSizes[to]
		}
		n.classes[to] = append(n.classes[to], s)
		n.sort(to)
		n.sort(class)
		return
	}
	k := (gpus + slotNode - 1) / slotNode
	s := &flowSet{nodes: slices.Clone(n.free[:k]), jobs: []int{i}, used: gpus, tag: gpus}
	n.free = n.free[k:]
	n.where[i] = s
	to := own
	if f := s.room(); f > 0 {
		to = flowClass(f)
	}
	n.classes[to] = append(n.classes[to], s)
	n.sort(to)
}

// release removes a job from its nodes, if it has any.
func (n *flowNodes) release(i, gpus int) {
	s := n.where[i]
	if s == nil {
		return
	}
	delete(n.where, i)
	s.used -= gpus
	s.jobs = slices.DeleteFunc(s.jobs, func(o int) bool { return o == i })
	free := s.room()
	if s.used > 0 && free == s.tag {
		return
	}
	for c := range n.classes {
		n.classes[c] = slices.DeleteFunc(n.classes[c], func(o *flowSet) bool { return o == s })
	}
	if s.used == 0 {
		n.free = append(n.free, s.nodes...)
		slices.SortStableFunc(n.free, func(a, b int) int { return cmp.Compare(n.number(a), n.number(b)) })
		return
	}
	c := flowClass(free)
	s.tag = gandivaSizes[c]
	n.classes[c] = append(n.classes[c], s)
	n.sort(c)
}

// cached returns the jobs that are where a job of their size has been, and records all positions.
func (n *flowNodes) cached(w *FlowWorld, warm map[[2]int]bool) map[int]bool {
	holds := make([]*flowSet, n.nodes)
	large := map[*flowSet]bool{}
	for c := range n.classes {
		for _, s := range n.classes[c] {
			large[s] = gandivaSizes[c] >= slotNode
			for _, node := range s.nodes {
				holds[node] = s
			}
		}
	}
	out, seen := map[int]bool{}, map[*flowSet]bool{}
	for node, s := range holds {
		if s == nil || seen[s] {
			continue
		}
		jobs := s.jobs
		if large[s] {
			jobs = jobs[:1]
			seen[s] = true
		}
		first := slotNode * node
		for _, i := range jobs {
			at := [2]int{first, w.jobs[i].want}
			out[i] = warm[at]
			warm[at] = true
			first += w.jobs[i].want
		}
	}
	return out
}
