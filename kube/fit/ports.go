package fit

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// ports are ports of the node that pods take.
type ports struct{ having[portsNeed] }

type portsNeed []hostPort

type hostPort struct {
	ip, protocol string
	port         int32
}

// everywhere is the address that stands for all of a node's.
const everywhere = "0.0.0.0"

func (h hostPort) conflicts(o hostPort) bool {
	return h.port == o.port && h.protocol == o.protocol && (h.ip == o.ip || h.ip == everywhere || o.ip == everywhere)
}

// clash reports whether two pods cannot be on one node.
func (list portsNeed) clash(other portsNeed) bool {
	return slices.ContainsFunc(list, func(h hostPort) bool { return slices.ContainsFunc(other, h.conflicts) })
}

// Read lists the ports that a pod takes of its node.
func (f *ports) Read(obj *v1.Pod, _ v1.ResourceList) (Need, bool, error) {
	var list portsNeed
	containers := obj.Spec.Containers
	for i := range obj.Spec.InitContainers { // those that go on beside the others
		if c := &obj.Spec.InitContainers[i]; c.RestartPolicy != nil &&
			*c.RestartPolicy == v1.ContainerRestartPolicyAlways {
			containers = append(slices.Clip(containers), *c)
		}
	}
	for i := range containers {
		for _, p := range containers[i].Ports {
			if p.HostPort == 0 {
				continue
			}
			h := hostPort{ip: p.HostIP, protocol: string(p.Protocol), port: p.HostPort}
			if h.ip == "" {
				h.ip = everywhere
			}
			if h.protocol == "" {
				h.protocol = string(v1.ProtocolTCP)
			}
			list = append(list, h)
		}
	}
	if list == nil {
		return nil, false, nil
	}
	return list, true, nil
}

// Key is the ports.
func (f *ports) Key(p *Neighbour) string {
	if list, ok := Of[portsNeed](p); ok {
		return fmt.Sprint(list)
	}
	return ""
}

// Limit closes nodes on which a port is in use.
func (f *ports) Limit(l *Look, p *Neighbour) {
	list, _ := Of[portsNeed](p)
	for _, h := range list {
		for q := range f.having {
			if others, _ := Of[portsNeed](q); slices.ContainsFunc(others, h.conflicts) {
				l.Shut(q.Where, fmt.Sprintf("host port %d is in use", h.port))
			}
		}
	}
}

// Together has those be on different nodes that want the same port.
func (f *ports) Together(l *Look) {
	for i, p := range l.Pods {
		list, ok := Of[portsNeed](p)
		for k := 0; ok && k < len(l.Pods); k++ {
			if others, has := Of[portsNeed](l.Pods[k]); i != k && has && list.clash(others) {
				l.Apart()
				return
			}
		}
	}
}

// Blocks reports whether both want one port.
func (f *ports) Blocks(_ *World, p, q *Neighbour) []string {
	a, _ := Of[portsNeed](p)
	b, _ := Of[portsNeed](q)
	if a.clash(b) {
		return []string{""}
	}
	return nil
}
