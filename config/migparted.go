package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/muster-gpu/muster/cluster"
)

// MIGConfigs are the ways in which nodes can be partitioned, by name, in the format of NVIDIA's mig-parted, as
// mig-manager reads it from a ConfigMap.
type MIGConfigs struct{ list map[string][]migEntry }

// migEntry is the configuration of some of a node's GPUs.
type migEntry struct {
	Devices migDevices     `yaml:"devices"`
	Filter  any            `yaml:"device-filter"` // PCI ids of the models to which it applies: one, or a list
	Enabled bool           `yaml:"mig-enabled"`
	Slices  map[string]int `yaml:"mig-devices"` // number of instances on a GPU, by profile
}

// migDevices are indices of GPUs; all: every GPU.
type migDevices struct {
	all  bool
	list []int
}

// UnmarshalYAML reads "all" or a list of numbers.
func (m *migDevices) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		if n.Value != "all" {
			return fmt.Errorf("devices: %q is neither all nor a list of numbers, such as [0, 1]", n.Value)
		}
		m.all = true
		return nil
	}
	if err := DecodeNode(n, &m.list); err != nil {
		return errors.New("devices: neither all nor a list of numbers, such as [0, 1]")
	}
	return nil
}

// ReadMIGConfigs reads such a file. Other keys of mig-parted are ignored.
func ReadMIGConfigs(text string) (*MIGConfigs, error) {
	var f struct {
		Version string                `yaml:"version"`
		Configs map[string][]migEntry `yaml:"mig-configs"`
	}
	if err := yaml.Unmarshal([]byte(text), &f); err != nil {
		return nil, err
	}
	switch {
	case f.Version != "v1":
		return nil, fmt.Errorf("version: %q is not v1", f.Version)
	case len(f.Configs) == 0:
		return nil, errors.New(
			"mig-configs: there are none; such as mig-configs: {all-disabled: [{devices: all, mig-enabled: false}]}")
	}
	return &MIGConfigs{f.Configs}, nil
}

// Names lists the configurations in alphabetical order.
func (c *MIGConfigs) Names() []string { return slices.Sorted(maps.Keys(c.list)) }

// MIGOffer is what a partitioned node has: GPUs that stay whole, and slices by profile.
type MIGOffer struct {
	Whole  int
	Slices map[string]int
}

// Equal reports whether two offers are the same.
func (o MIGOffer) Equal(p MIGOffer) bool { return o.Whole == p.Whole && maps.Equal(o.Slices, p.Slices) }

// Text describes the offer: 2 GPUs, 14 1g.10gb.
func (o MIGOffer) Text() string {
	var list []string
	if o.Whole > 0 {
		list = append(list, fmt.Sprintf("%d GPUs", o.Whole))
	}
	for _, p := range slices.Sorted(maps.Keys(o.Slices)) {
		list = append(list, fmt.Sprintf("%d %s", o.Slices[p], p))
	}
	return strings.Join(list, ", ")
}

// Offer says what a configuration makes of a node with this many GPUs of a model. The error names the entry and
// the profile that is impossible. Nodes do not say which models a device-filter means: an entry with a filter
// counts for a model that has all of its profiles.
func (c *MIGConfigs) Offer(name string, m *cluster.GPUModel, gpus int) (MIGOffer, error) {
	entries, ok := c.list[name]
	if !ok {
		return MIGOffer{}, cluster.Unknown("configuration", name, c.Names())
	}
	made := make([]*migEntry, gpus)
	var others error // why filtered entries do not apply
	for i := range entries {
		e := &entries[i]
		if err := e.check(m); err != nil {
			if err = fmt.Errorf("%s: entry %d: %w", name, i, err); e.Filter == nil {
				return MIGOffer{}, err
			}
			others = errors.Join(others, err)
			continue
		}
		for _, dev := range e.devices(gpus) {
			if dev < 0 || dev >= gpus {
				return MIGOffer{}, fmt.Errorf("%s: entry %d: devices: GPU %d: the node has GPUs 0 to %d", name, i, dev,
					gpus-1)
			}
			if before := made[dev]; before != nil &&
				!(before.Enabled == e.Enabled && maps.Equal(before.Slices, e.Slices)) {
				return MIGOffer{}, fmt.Errorf("%s: entry %d: devices: GPU %d is described twice, as %v and as %v", name,
					i, dev, before.Slices, e.Slices)
			}
			made[dev] = e
		}
	}
	o := MIGOffer{Slices: map[string]int{}}
	for dev, e := range made {
		switch {
		case e == nil && others != nil:
			return MIGOffer{}, others
		case e == nil:
			return MIGOffer{}, fmt.Errorf("%s: no entry describes GPU %d, so its partitioning is unknown", name, dev)
		case !e.Enabled:
			o.Whole++
		}
		for p, n := range e.Slices {
			if e.Enabled {
				o.Slices[p] += n
			}
		}
	}
	return o, nil
}

func (e *migEntry) devices(gpus int) []int {
	if !e.Devices.all {
		return e.Devices.list
	}
	list := make([]int, gpus)
	for i := range list {
		list[i] = i
	}
	return list
}

// check reports whether a GPU of a model can have the instances of an entry.
func (e *migEntry) check(m *cluster.GPUModel) error {
	switch {
	case !e.Enabled && len(e.Slices) > 0:
		return errors.New("mig-devices: mig-enabled is false")
	case !e.Enabled:
		return nil
	case len(e.Slices) == 0:
		return errors.New("mig-devices: a GPU in MIG mode without instances is of no use, and the device plugin refuses it")
	}
	var profiles []*cluster.SliceProfile
	for _, name := range slices.Sorted(maps.Keys(e.Slices)) {
		p, ok := m.Profile(name)
		n := e.Slices[name]
		switch {
		case !ok || p.Name != name:
			return m.Lacks(name)
		case n < 1 || n > m.MemSlots:
			return fmt.Errorf("mig-devices: %d instances of %s; 1 to %d are possible", n, name, len(p.Starts))
		}
		for range n {
			profiles = append(profiles, p)
		}
	}
	if !together(m, profiles, 0, 0, false) {
		return fmt.Errorf("mig-devices: a GPU of model %s cannot have %s at once", m.Name,
			MIGOffer{Slices: e.Slices}.Text())
	}
	return nil
}

// together reports whether instances fit on one GPU in addition to what is used of it: memory slices as bits,
// compute slices, and its media engines. Equal profiles are adjacent.
func together(m *cluster.GPUModel, profiles []*cluster.SliceProfile, slots uint8, compute int, media bool) bool {
	if len(profiles) == 0 {
		return true
	}
	p := profiles[0]
	if compute+p.Compute > m.Compute || media && p.Media() {
		return false
	}
	return slices.ContainsFunc(p.Starts, func(start int) bool {
		return slots&p.Mask(start) == 0 &&
			together(m, profiles[1:], slots|p.Mask(start), compute+p.Compute, media || p.Media())
	})
}
