package engine

import "github.com/muster-gpu/muster/cluster"

// NodeRoom is a node that takes jobs, as a policy sees it.
type NodeRoom struct {
	GPUs, Free int32 // healthy ones, and those of them that are wholly free
	Kind       int32 // which GPU model, counted in the order in which they joined
	Class      int32 // nodes of a class suit the same jobs (JobView.Classes)
	Rack       int32 // equal numbers are near
}

// NodeRooms appends the nodes that take jobs to buf, in the order in which they joined.
// What jobs hold that stop is not free, unless it is promised to nobody yet.
func (v View) NodeRooms(buf []NodeRoom) []NodeRoom {
	st := &v.e.st
	kinds := make([]int32, len(st.classes)) // of each class
	for ci := range st.classes {
		kinds[ci] = int32(ci)
		for k := range ci {
			if st.classes[k].model.Name == st.classes[ci].model.Name {
				kinds[ci] = kinds[k]
				break
			}
		}
	}
	for i := range st.nodes {
		if n := &st.nodes[i]; n.indexed {
			buf = append(buf, NodeRoom{int32(popcount(n.healthy)), int32(n.nfree), kinds[n.class], n.class, n.rack})
		}
	}
	return buf
}

// Classes is the set of node classes on which tasks of the job with GPUs can ever run, a
// bit each.
func (j JobView) Classes() [maxClasses / 64]uint64 { return j.e.shapeAt(j.j.base).any }

// Distances is a Speeds that knows what distance between a gang's tasks costs.
type Distances interface {
	// Apart returns a job's speed on several nodes that are in one domain of a level, and
	// of no nearer one, in ppm of that on one node.
	Apart(j *cluster.Job, gpu string, l cluster.Level) int64
}

// Apart returns what is believed of the job's speed on several nodes of a domain of a level,
// in ppm of that on one node (see Distances); known: something is.
func (v View) Apart(j JobView, gpu string, l cluster.Level) (ppm int64, known bool) {
	d, ok := v.e.cfg.Speeds.(Distances)
	if !ok {
		return million, false
	}
	return d.Apart(j.j.spec, gpu, l), true
}
