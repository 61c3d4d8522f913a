package sched

import (
	"math/bits"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
)

// NodeRoom is a node that takes jobs, as a policy sees it.
type NodeRoom struct {
	GPUs, Free int32 // healthy GPUs, and those of them that are wholly free
	Kind       int32 // GPU model, numbered in the order in which models joined
	Class      int32 // nodes of a class suit the same jobs (JobView.Classes)
	Rack       int32 // equal numbers are the same rack
}

// NodeRooms appends the nodes that take jobs to buf, in the order in which they joined. Devices of
// stopping jobs count as free unless they are already promised.
func (v View) NodeRooms(buf []NodeRoom) []NodeRoom {
	st := v.w.Store
	kinds := make([]int32, len(st.Classes())) // by class
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
			buf = append(buf, NodeRoom{int32(bits.OnesCount64(n.Healthy())), int32(n.FreeGPUs()), kinds[n.Class()],
				n.Class(), n.Rack()})
		}
	}
	return buf
}

// Device is a GPU that is, or can be, divided into MIG instances.
type Device struct {
	Node    int32
	GPU     int
	Model   *cluster.GPUModel
	Fixed   []cluster.Instance // all its instances, which cannot be changed; nil: instances are made as needed
	Busy    bool               // held whole, or in shares
	Slots   uint8              // memory slices that are taken
	Compute int                // compute slices that are taken
}

// Devices lists the GPUs on which plans may place jobs on instances: healthy ones of nodes that
// take jobs. If GPUs must not be divided there are none.
func (v View) Devices() (list []Device) {
	if v.w.Oracle.Undivided() {
		return nil
	}
	for id := range v.w.Store.Nodes() {
		n := &v.w.Store.Nodes()[id]
		model := v.w.Store.Classes()[n.Class()].Model()
		for dev := range n.Devices() {
			d := &n.Devices()[dev]
			if !n.TakesJobs() || !model.MIG() || n.Healthy()>>dev&1 == 0 || n.Fixed() != nil && !n.IsCut(dev) {
				continue
			}
			g := Device{Node: int32(id), GPU: dev, Model: model, Slots: d.Slots(), Compute: int(d.Compute()),
				Busy: n.Free()>>dev&1 == 0 && d.Slots() == 0 && !n.IsCut(dev)}
			if n.Stays(dev) {
				g.Fixed = []cluster.Instance{}
				for _, in := range n.Fixed().Instances()[dev] {
					g.Fixed = append(g.Fixed, cluster.Instance{Profile: in.Profile(), Start: in.Start()})
				}
			}
			list = append(list, g)
		}
	}
	return list
}

// Host returns the free CPU and RAM of a node.
func (v View) Host(node int32) (cpu cluster.Milli, ram cluster.MiB) {
	n := &v.w.Store.Nodes()[node]
	return n.CPU(), n.RAM()
}

// Kinds lists the GPU models of the cluster, in the order in which their first nodes joined. The
// list belongs to the engine: it must not be changed.
func (v View) Kinds() []inventory.Kind { return v.w.Store.ListKinds() }
