package inventory

import (
	"fmt"

	"github.com/muster-gpu/muster/cluster"
)

// HasInstance reports whether a GPU of the node has a fixed instance of the profile.
func (n *Node) HasInstance(model *cluster.GPUModel, profile string) bool {
	p, ok := model.Profile(profile)
	for _, list := range n.fixed.instances {
		for i := range list {
			if ok && list[i].profile == p.Name {
				return true
			}
		}
	}
	return false
}

// MasksOf lists the possible memory slices of an instance of a profile on a GPU.
func (n *Node) MasksOf(p *cluster.SliceProfile, dev int) (list []uint8) {
	if !n.Stays(dev) {
		for _, s := range p.Starts {
			list = append(list, p.Mask(s))
		}
		return list
	}
	for _, in := range n.fixed.instances[dev] {
		if in.profile == p.Name {
			list = append(list, in.mask)
		}
	}
	return list
}

// If the GPUs of a node are partitioned externally, slices go to the existing instances. A GPU in
// MIG mode is never handed out whole, and one that is not is never handed out in slices.

// fixed is the instances of a node on which they cannot be changed.
type fixed struct {
	cut       uint64       // devices in MIG mode
	made      uint64       // those of cut on which instances are made as needed
	instances [][]Instance // by device
}

// Instance is one MIG instance.
type Instance struct {
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
	f := &fixed{instances: make([][]Instance, n.GPUs)}
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
			f.instances[dev] = append(f.instances[dev], Instance{p.Name, in.Start, p.Mask(in.Start)})
		}
	}
	return f, nil
}

// Whole is the devices that may be handed out whole, or in shares.
func (n *Node) Whole() uint64 {
	if n.fixed == nil {
		return n.healthy
	}
	return n.healthy &^ n.fixed.cut
}

// IsCut reports whether a device consists of fixed instances.
func (n *Node) IsCut(dev int) bool { return n.fixed != nil && n.fixed.cut>>dev&1 == 1 }

// Stays reports whether a device's instances, if it can have any, are fixed.
func (n *Node) Stays(dev int) bool { return n.fixed != nil && n.fixed.made>>dev&1 == 0 }

// idleInstances counts the free instances of a profile on a device.
func (n *Node) idleInstances(dev int, profile string) (count int) {
	for i := range n.fixed.instances[dev] {
		in := &n.fixed.instances[dev][i]
		if in.profile == profile && n.devs[dev].slots&in.mask == 0 {
			count++
		}
	}
	return count
}

// StartOn returns where a slice starts on a device: the legal start with the least loss of future
// options, or the first free instance if they are fixed; -1: there is no room.
func (n *Node) StartOn(m *cluster.GPUModel, p *cluster.SliceProfile, dev int, wanted []int64) int {
	switch {
	case !n.Stays(dev):
		return StartOf(m, p, &n.devs[dev], wanted)
	case n.IsCut(dev):
		for i := range n.fixed.instances[dev] {
			if in := &n.fixed.instances[dev][i]; in.profile == p.Name && n.devs[dev].slots&in.mask == 0 {
				return in.start
			}
		}
	}
	return -1
}

// Cut is the devices in MIG mode.
func (f *fixed) Cut() uint64 { return f.cut }

// Made is the devices in MIG mode on which instances are made as needed.
func (f *fixed) Made() uint64 { return f.made }

// Instances is the existing instances, by device.
func (f *fixed) Instances() [][]Instance { return f.instances }

// Profile is its name.
func (i *Instance) Profile() string { return i.profile }

// Start is its first memory slice.
func (i *Instance) Start() int { return i.start }

// Mask is its memory slices.
func (i *Instance) Mask() uint8 { return i.mask }
