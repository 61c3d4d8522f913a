package sim

import (
	"github.com/muster-gpu/muster/cluster"
)

// rateOf asks the model for a job's speed on what it holds.
func (w *World) rateOf(j *jobRun) int64 {
	p := w.placement(j)
	rate := int64(1_000_000)
	if w.opt.Model != nil {
		rate = w.opt.Model.Rate(&j.entry.Job, p)
	}
	if p.Want > 0 && p.Tasks != p.Want { // elastic: linear unless the model says otherwise
		rate = rate * int64(p.Tasks) / int64(p.Want)
	}
	if c := &j.entry.Job.Checkpoint; c.Interval > 0 && c.Cost > 0 && !c.None {
		rate = rate * int64(c.Interval/1000) / int64((c.Interval+c.Cost)/1000) // periodic checkpoints stop the work
	}
	return max(1, rate)
}

// placement describes what a job holds.
func (w *World) placement(j *jobRun) Placement {
	p := Placement{Share: cluster.Whole, Want: j.entry.Job.NumTasks()}
	first := int32(-1)
	seen := int32(-1)
	level := cluster.LevelNode
	for i := range j.allocs {
		a := &j.allocs[i]
		n := &w.spec.Nodes[a.Node]
		p.Tasks += int(a.Tasks)
		p.GPUs += int(a.Milli()+cluster.Whole-1) / int(cluster.Whole)
		if a.Share > 0 {
			p.Share = cluster.Milli(a.Share)
		}
		if first < 0 {
			first, p.GPU = a.Node, n.Model
		}
		if a.Node != seen {
			p.Nodes++
			seen = a.Node
			level = max(level, w.distance(first, a.Node))
		}
	}
	p.Level = level
	return p
}

// distance is the level that two nodes share: node, rack, fabric, or any.
func (w *World) distance(a, b int32) cluster.Level {
	x, y := &w.spec.Nodes[a], &w.spec.Nodes[b]
	switch {
	case a == b:
		return cluster.LevelNode
	case x.NVLink != "" && x.NVLink == y.NVLink:
		return cluster.LevelNode // one NVLink domain: as near as inside a node
	case x.Rack == y.Rack:
		return cluster.LevelRack
	case x.Fabric == y.Fabric:
		return cluster.LevelFabric
	}
	return cluster.LevelFabric + 1
}
