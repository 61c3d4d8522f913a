package cluster

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Instance is a MIG instance that exists: its profile and first memory slice.
type Instance struct {
	Profile string
	Start   int
}

// AsNeeded stands for the instances of a GPU in MIG mode on which the engine makes instances on
// demand.
const AsNeeded = "*"

// Unpartitioned is Node.MIG for a node without any GPU in MIG mode.
const Unpartitioned = "none"

// Geometry reads Node.MIG: the instances of each GPU in MIG mode, by device; nil for a GPU that is
// not. fixed says that instances never change; otherwise the engine makes instances on demand.
//
// The text is "none", or the number and instances of each GPU in MIG mode:
// "0:3g.40gb@0,3g.40gb@4;1:1g.10gb@0". One without instances is "0:"; "0:*" is one with changing
// instances, an Instance with the profile AsNeeded.
func (n *Node) Geometry(m *GPUModel) (geometry [][]Instance, fixed bool, err error) {
	if n.MIG == "" {
		return nil, false, nil
	}
	geometry = make([][]Instance, n.GPUs)
	if n.MIG == Unpartitioned {
		return geometry, true, nil
	}
	for _, part := range strings.Split(n.MIG, ";") {
		number, list, ok := strings.Cut(part, ":")
		dev, err := strconv.Atoi(number)
		switch {
		case !ok || err != nil:
			return nil, true, fmt.Errorf("%q is not GPU:PROFILE@START,..., such as 0:3g.40gb@0,3g.40gb@4", part)
		case dev < 0 || dev >= n.GPUs:
			return nil, true, fmt.Errorf("GPU %d: the node has GPUs 0 to %d", dev, n.GPUs-1)
		case geometry[dev] != nil:
			return nil, true, fmt.Errorf("GPU %d is described twice", dev)
		}
		if geometry[dev], err = m.instances(list); err != nil {
			return nil, true, fmt.Errorf("GPU %d: %w", dev, err)
		}
	}
	return geometry, true, nil
}

// instances reads the instances of one GPU, which must be able to coexist.
func (m *GPUModel) instances(text string) ([]Instance, error) {
	list := []Instance{}
	switch {
	case text == "":
		return list, nil
	case text == AsNeeded && m.MemSlots == 0:
		return nil, fmt.Errorf("%s cannot be partitioned", m.Name)
	case text == AsNeeded:
		return append(list, Instance{Profile: AsNeeded}), nil
	}
	var all taken
	for _, word := range strings.Split(text, ",") {
		name, at, ok := strings.Cut(word, "@")
		start, err := strconv.Atoi(at)
		if !ok || err != nil {
			return nil, fmt.Errorf("%q is not PROFILE@START, such as 3g.40gb@4", word)
		}
		p, ok := m.Profile(name)
		switch {
		case !ok:
			return nil, m.Lacks(name)
		case !slices.Contains(p.Starts, start):
			return nil, fmt.Errorf("%s cannot start at memory slice %d; %v are possible", p.Name, start, p.Starts)
		}
		if all, ok = all.add(m, p, start); !ok {
			return nil, fmt.Errorf("%s@%d overlaps the instances before it", p.Name, start)
		}
		list = append(list, Instance{p.Name, start})
	}
	return list, nil
}

// Lacks is the error for a MIG profile that the model does not have; it lists the existing ones.
func (m *GPUModel) Lacks(profile string) error {
	if len(m.Profiles) == 0 {
		return fmt.Errorf("%s does not offer MIG profile %s: it cannot be partitioned", m.Name, profile)
	}
	var have []string
	for i := range m.Profiles {
		have = append(have, m.Profiles[i].Name)
	}
	return fmt.Errorf("%s does not offer MIG profile %s; it offers %s", m.Name, profile, strings.Join(have, ", "))
}

// GeometryText formats what Geometry reads; a nil list is a GPU that is not in MIG mode.
func GeometryText(geometry [][]Instance) string {
	var parts []string
	for dev, list := range geometry {
		if list == nil {
			continue
		}
		var words []string
		for _, in := range list {
			if in.Profile == AsNeeded {
				words = append(words, AsNeeded)
				continue
			}
			words = append(words, fmt.Sprintf("%s@%d", in.Profile, in.Start))
		}
		parts = append(parts, fmt.Sprintf("%d:%s", dev, strings.Join(words, ",")))
	}
	if parts == nil {
		return Unpartitioned
	}
	return strings.Join(parts, ";")
}

// Contents is what a layout holds, the largest first: "3g.40gb + 2 x 2g.20gb".
func (m *GPUModel) Contents(layout []Instance) string {
	var parts []string
	for i := len(m.Profiles) - 1; i >= 0; i-- {
		n := 0
		for _, in := range layout {
			if in.Profile == m.Profiles[i].Name {
				n++
			}
		}
		switch {
		case n == 1:
			parts = append(parts, m.Profiles[i].Name)
		case n > 1:
			parts = append(parts, fmt.Sprintf("%d x %s", n, m.Profiles[i].Name))
		}
	}
	return strings.Join(parts, " + ")
}
