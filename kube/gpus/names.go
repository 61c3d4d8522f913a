// Package gpus says what of pods and nodes is GPUs: the resources that count as such, slices and replicas of them, what
// labels of nodes say of them, and what a pod gets of a node by the name that it asks for.
package gpus

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/kube/amount"
)

// Labels are the labels of nodes that say what is where.
type Labels struct {
	Stated
	racks, fabrics []string                    // that topologies name
	cores          [cluster.MostCores][]string // likewise, by level: what is above fabrics, from near to far
}

// Stated are the labels that are configured; an empty one is not looked at.
type Stated struct {
	Product, Memory, Replicas, Sharing, Clique, Rack, Fabric, Core string

	Count string // how many GPUs it has, in slices or not
	// how its GPUs are to be partitioned, what has become of that, and how slices are offered
	Config, State, Strategy string
}

// Where Topograph (up to v0.5, and from v1 on) and the examples of Kueue's topologies write where nodes are,
// for what neither the configuration nor a topology names otherwise.
var (
	cliques = []string{"network.topology.nvidia.com/accelerator", "accelerator.topograph.run/domain"}
	racks   = []string{"network.topology.nvidia.com/leaf", "fabric.topograph.run/tier-0",
		"cloud.provider.com/topology-rack"}
	fabrics = []string{"network.topology.nvidia.com/spine", "fabric.topograph.run/tier-1",
		"cloud.provider.com/topology-block"}
	cores = [cluster.MostCores][]string{{"network.topology.nvidia.com/core", "fabric.topograph.run/tier-2"},
		{"fabric.topograph.run/tier-3"}, {"fabric.topograph.run/tier-4"}, {"fabric.topograph.run/tier-5"}}
)

// SetTopologies takes over which labels topologies name, each from far to near: the nearest but for the node's own and
// an NVLink domain's is the rack's, the one before it the fabric's, and those before that the cores'. false: they are
// as before.
func (l *Labels) SetTopologies(topologies [][]string) bool {
	var racks, fabrics []string
	var above [cluster.MostCores][]string
	for _, t := range topologies {
		t = slices.DeleteFunc(slices.Clone(t), func(label string) bool {
			return label == v1.LabelHostname || label == l.Clique || slices.Contains(cliques, label)
		})
		if n := len(t); n > 0 {
			racks = append(racks, t[n-1])
			fabrics = append(fabrics, t[max(0, n-2):n-1]...)
			for i := range min(max(0, n-2), cluster.MostCores) {
				above[i] = append(above[i], t[n-3-i])
			}
		}
	}
	if slices.Equal(racks, l.racks) && slices.Equal(fabrics, l.fabrics) &&
		slices.EqualFunc(above[:], l.cores[:], slices.Equal) {
		return false
	}
	l.racks, l.fabrics, l.cores = racks, fabrics, above
	return true
}

// known are the labels of a level above fabrics that are not stated.
func (l *Labels) known(level int) []string { return slices.Concat(l.cores[level], cores[level]) }

// Place says where a node is, by its labels: in which NVLink domain, rack and fabric, and below which cores, from near
// to far.
func (l *Labels) Place(labels map[string]string) (clique, rack, fabric string, above []string) {
	first := func(stated string, known ...string) string {
		if v := labels[stated]; stated != "" && v != "" {
			return v
		}
		for _, name := range known {
			if v := labels[name]; v != "" {
				return v
			}
		}
		return ""
	}
	stated := l.Core
	for level := range cluster.MostCores {
		name := first(stated, l.known(level)...)
		if name == "" {
			break
		}
		above, stated = append(above, name), ""
	}
	return first(l.Clique, cliques...), first(l.Rack, slices.Concat(l.racks, racks)...),
		first(l.Fabric, slices.Concat(l.fabrics, fabrics)...), above
}

// Domain is a label of nodes that says where they are, and the level of the topology that it stands for.
type Domain struct {
	Label string
	Level cluster.Level
}

// Domains lists the labels that say where nodes are, from near to far, and of a level the stated one first.
func (l *Labels) Domains() (list []Domain) {
	type level struct {
		level  cluster.Level
		stated string
		known  []string
	}
	levels := []level{{cluster.LevelNVLink, l.Clique, cliques},
		{cluster.LevelRack, l.Rack, slices.Concat(l.racks, racks)},
		{cluster.LevelFabric, l.Fabric, slices.Concat(l.fabrics, fabrics)}, {cluster.LevelCore, l.Core, l.known(0)}}
	for i := 1; i < cluster.MostCores; i++ {
		levels = append(levels, level{cluster.LevelCore + cluster.Level(i), "", l.known(i)})
	}
	for _, d := range levels {
		if d.stated != "" {
			list = append(list, Domain{d.stated, d.level})
		}
		for _, name := range d.known {
			list = append(list, Domain{name, d.level})
		}
	}
	return list
}

// Level is the level of the topology that a label of nodes stands for.
func (l *Labels) Level(label string) (cluster.Level, bool) {
	if label == v1.LabelHostname {
		return cluster.LevelNode, true
	}
	for _, d := range l.Domains() {
		if d.Label == label {
			return d.Level, true
		}
	}
	return cluster.LevelAny, false
}

// Names say what counts as GPUs in a cluster. They belong to one goroutine.
type Names struct {
	GPUs   []string // extended resources
	Labels Labels
	// Published is what drivers publish of a node's devices: how many GPUs, and their product; nil: nothing.
	Published func(node string) (gpus int, product string)

	models map[labelled]string
}

func (c *Names) published(node string) (gpus int, product string) {
	if c.Published == nil {
		return 0, ""
	}
	return c.Published(node)
}

// MIG slices are resources of their own (nvidia.com/mig-3g.40gb): the device plugin says how many of each profile a
// node has, not on which GPU. Which instance a pod gets, the kubelet decides.

// Slice reads the profile of a MIG resource: nvidia.com/mig-1g.10gb.me is 1g.10gb+me; "", false: it is none.
func (c *Names) Slice(name v1.ResourceName) (profile string, ok bool) {
	for _, g := range c.GPUs {
		vendor, _, _ := strings.Cut(g, "/")
		// replicas of a slice are none
		if text, found := strings.CutPrefix(string(name), vendor+"/mig-"); found && text != "" &&
			!strings.HasSuffix(text, sharedSuffix) {
			if base, media := strings.CutSuffix(text, ".me"); media {
				return base + "+me", true
			}
			return text, true
		}
	}
	return "", false
}

// Slices counts MIG slices by profile.
func (c *Names) Slices(list v1.ResourceList) map[string]int {
	var count map[string]int
	for name, q := range list {
		if profile, ok := c.Slice(name); ok && amount.Count(&q) > 0 {
			if count == nil {
				count = map[string]int{}
			}
			count[profile] += int(min(amount.Count(&q), 1<<16))
		}
	}
	return count
}

// Requests is what a pod asks for or holds, as kube-scheduler counts it: of a pod that is being resized in place the
// most of what is specified, what its node set aside for it and what it has.
func Requests(obj *v1.Pod) v1.ResourceList {
	return resourcehelper.PodRequests(obj,
		resourcehelper.PodResourcesOptions{UseStatusResources: true,
			InPlacePodLevelResourcesVerticalScalingEnabled: true})
}

// Count adds the resources that count as GPUs.
func (c *Names) Count(list v1.ResourceList) int {
	n := int64(0)
	for _, name := range c.GPUs {
		if q, ok := list[v1.ResourceName(name)]; ok {
			n += min(amount.Count(&q), 1<<20)
		}
	}
	return int(min(n, 1<<20))
}

// RequestOf is what a pod asks for of what the engine counts.
func (c *Names) RequestOf(obj *v1.Pod) cluster.Request { return c.RequestIn(Requests(obj)) }

// RequestIn is that of what a pod asks for in all. A pod that asks for several MIG slices, or for whole GPUs beside
// one, is counted per node and no more (Uncounted).
func (c *Names) RequestIn(sum v1.ResourceList) cluster.Request {
	r := cluster.Request{GPUs: c.Count(sum), CPU: amount.Milli(sum.Cpu()), RAM: amount.MiB(sum.Memory(), true)}
	count := c.Slices(sum)
	if r.GPUs > 0 || len(count) != 1 {
		return r
	}
	for profile, n := range count {
		if n == 1 {
			r.GPUs, r.Profile = 1, profile
		}
	}
	return r
}

// Uncounted is what a pod asks for that the engine does not count.
func (c *Names) Uncounted(obj *v1.Pod, requests v1.ResourceList) (list map[v1.ResourceName]int64) {
	r := c.RequestIn(requests)
	replica := c.ReplicaIn(obj, requests, &r)
	for name, q := range requests {
		if c.counts(name) || amount.Count(&q) == 0 || c.isSliceOf(&r, name) || replica.One && name == replica.Name {
			continue
		}
		if list == nil {
			list = map[v1.ResourceName]int64{}
		}
		list[name] = amount.Count(&q)
	}
	return list
}

// CountedAs is the resource by which a pod has a part of a GPU, one, which the engine counts; "": it has none.
func (c *Names) CountedAs(replica *Replica, r *cluster.Request, requests v1.ResourceList) v1.ResourceName {
	if replica.One {
		return replica.Name
	}
	for name := range requests {
		if c.isSliceOf(r, name) {
			return name
		}
	}
	return ""
}

// isSliceOf reports whether a resource is the slice that a request is for.
func (c *Names) isSliceOf(r *cluster.Request, name v1.ResourceName) bool {
	profile, ok := c.Slice(name)
	return ok && profile == r.Profile
}

// counts reports whether the engine counts a resource.
func (c *Names) counts(name v1.ResourceName) bool {
	return name == v1.ResourceCPU || name == v1.ResourceMemory || slices.Contains(c.GPUs, string(name))
}

// Has reports whether a resource is GPUs, slices of them or replicas of either.
func (c *Names) Has(name v1.ResourceName) bool {
	_, slice := c.Slice(name)
	return slice || c.Shared(name) || slices.Contains(c.GPUs, string(name))
}

// Asked reports whether a pod asks for GPUs or parts of them, by whatever name.
func (c *Names) Asked(obj *v1.Pod) bool {
	if len(obj.Spec.ResourceClaims) > 0 {
		return true
	}
	for name, q := range Requests(obj) {
		base := v1.ResourceName(strings.TrimSuffix(string(name), sharedSuffix))
		if !q.IsZero() && (c.Has(name) || c.Has(base)) {
			return true
		}
	}
	return false
}

// Whole is how many GPUs of a node are not in slices; those that are come last.
func Whole(n *cluster.Node) int {
	first, _, cut := strings.Cut(n.MIG, ":")
	if whole := 0; cut {
		if _, err := fmt.Sscan(first, &whole); err == nil {
			return whole
		}
	}
	return n.GPUs
}

// Selects reports whether a node with these labels has all of a selector.
func Selects(selector, labels map[string]string) bool {
	for k, v := range selector {
		if labels[k] != v {
			return false
		}
	}
	return true
}

// SelectorText is a selector as text.
func SelectorText(selector map[string]string) string {
	var list []string
	for k, v := range selector {
		list = append(list, k+"="+v)
	}
	slices.Sort(list)
	return strings.Join(list, ",")
}
