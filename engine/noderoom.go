package engine

import (
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/order"
)

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
	kinds := make([]int32, len(st.Classes())) // of each class
	for ci := range st.Classes() {
		kinds[ci] = int32(ci)
		for k := range ci {
			if st.Classes()[k].Model().Name == st.Classes()[ci].Model().Name {
				kinds[ci] = kinds[k]
				break
			}
		}
	}
	for i := range st.Nodes() {
		if n := &st.Nodes()[i]; n.TakesJobs() {
			buf = append(buf, NodeRoom{int32(popcount(n.Healthy())), int32(n.FreeGPUs()), kinds[n.Class()], n.Class(), n.Rack()})
		}
	}
	return buf
}

// Classes is the set of node classes on which tasks of the job with GPUs can ever run, a
// bit each.
func (j JobView) Classes() [inventory.MaxKinds / 64]uint64 { return j.e.shapes.At(j.j.Base).Any }

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
		return job.Million, false
	}
	return d.Apart(j.j.Spec, gpu, l), true
}

// Crowds returns, by node, how many gangs that are on several nodes have tasks there: their
// tasks use its links. It uses the memory of buf.
func (s *Site) Crowds(buf []int32) []int32 {
	n := buf[:0]
	for range s.in.Nodes() {
		n = append(n, 0)
	}
	var at order.Cursor
	running := s.e.byKey()
	for it, ok := running.At(&at); ok; it, ok = running.At(&at) {
		at.Next()
		allocs := s.e.jobs[it.ID].Allocs
		if len(allocs) < 2 || s.e.st.Together(allocs, cluster.LevelNode) {
			continue
		}
		for i := range allocs {
			if !s.uses(allocs[:i], allocs[i].Node) {
				n[allocs[i].Node]++
			}
		}
	}
	return n
}

// skewed is the part of its speed that a job is taken to lose on several nodes of which nobody
// knows more than that its largest message is more than a tenth of the model (Tiresias).
const skewed = 0.3

// Losses returns the parts of its speed that a gang is believed to lose on several nodes of a
// rack, and of several racks, on the GPUs that it would get first.
func (s *Site) Losses() [2]float64 {
	gpu := ""
	if len(s.stage.Classes) > 0 {
		gpu = s.in.Classes()[s.stage.Classes[0]].Model().Name
	}
	return View{s.e}.Losses(s.Job(), gpu)
}

// Losses returns the parts of its speed that a gang is believed to lose on several nodes of a
// rack, and of several racks, on GPUs of a model: by what is known of distances, else by its skew.
func (v View) Losses(j JobView, gpu string) (loss [2]float64) {
	for i, l := range []cluster.Level{cluster.LevelRack, cluster.LevelFabric} {
		switch ppm, known := v.Apart(j, gpu, l); {
		case known:
			loss[i] = min(max(1-float64(ppm)/job.Million, 0), 1)
		case j.Spec().Skew > 100:
			loss[i] = skewed
		}
	}
	return loss
}

// Explainer is a Planner that says in words what it noted when it planned.
type Explainer interface {
	// Explain says what is in the memo of a job's target, or, of one that got nothing, in that of
	// the last plan; "": nothing.
	Explain(t *job.Target, plan []int64) string
}

// explained is what the policy says of a job, to be put behind what the engine says.
func (e *Engine) explained(j *job.State) string {
	x, ok := e.plans.planner.(Explainer)
	if !ok || j.Target == nil {
		return ""
	}
	if text := x.Explain(j.Target, e.plans.memo); text != "" {
		return "; " + text
	}
	return ""
}
