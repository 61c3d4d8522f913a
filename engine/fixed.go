package engine

import (
	"fmt"

	"github.com/muster-gpu/muster/cluster"
)

// Where the GPUs of a node are partitioned by somebody else, slices go to the
// instances that there are; a GPU in MIG mode is never handed out whole, and one
// that is not, never in slices.

// fixed is the geometry of a node whose instances stay as they are.
type fixed struct {
	cut       uint64       // devices in MIG mode
	made      uint64       // of them, those on which instances are made as needed
	instances [][]existing // by device
}

// existing is one MIG instance.
type existing struct {
	profile string
	start   int
	mask    uint8
}

func fixedOf(n *cluster.Node, model *cluster.GPUModel) (*fixed, error) {
	geometry, isFixed, err := n.Geometry(model)
	if err != nil {
		return nil, fmt.Errorf("mig: %w", err)
	}
	if !isFixed {
		return nil, nil
	}
	f := &fixed{instances: make([][]existing, n.GPUs)}
	for dev, list := range geometry {
		if list != nil {
			f.cut |= 1 << dev
		}
		for _, in := range list {
			if in.Profile == cluster.AsNeeded {
				f.made |= 1 << dev
				continue
			}
			p, _ := model.Profile(in.Profile)
			f.instances[dev] = append(f.instances[dev], existing{p.Name, in.Start, p.Mask(in.Start)})
		}
	}
	return f, nil
}

// whole is the devices that may be handed out whole, or in shares.
func (n *nodeState) whole() uint64 {
	if n.fixed == nil {
		return n.healthy
	}
	return n.healthy &^ n.fixed.cut
}

// isCut reports whether a device consists of instances that stay as they are.
func (n *nodeState) isCut(dev int) bool { return n.fixed != nil && n.fixed.cut>>dev&1 == 1 }

// stays reports whether a device's instances, if it can have any, stay as they are.
func (n *nodeState) stays(dev int) bool { return n.fixed != nil && n.fixed.made>>dev&1 == 0 }

// idleInstances counts the free instances of a profile on a device.
func (n *nodeState) idleInstances(dev int, profile string) (count int) {
	for i := range n.fixed.instances[dev] {
		in := &n.fixed.instances[dev][i]
		if in.profile == profile && n.devs[dev].slots&in.mask == 0 {
			count++
		}
	}
	return count
}

// startOn returns where a slice goes on a device: the legal start with the least
// loss of future options, or the first free instance where they are fixed; -1:
// there is no room.
func (n *nodeState) startOn(m *cluster.GPUModel, p *cluster.SliceProfile, dev int, wanted []int64) int {
	switch {
	case !n.stays(dev):
		return startOf(m, p, &n.devs[dev], wanted)
	case n.isCut(dev):
		for i := range n.fixed.instances[dev] {
			if in := &n.fixed.instances[dev][i]; in.profile == p.Name && n.devs[dev].slots&in.mask == 0 {
				return in.start
			}
		}
	}
	return -1
}
