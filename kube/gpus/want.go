package gpus

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
)

// A pod asks for resources by name, and a scheduler cannot make others of them: a replica stays a replica. So what it
// needs besides - isolation from others, memory, a part of the compute - chooses among the nodes that have what it
// names: a replica is enough where a share would be on a machine that shares its GPUs as that node does
// (cluster.Ways.Choose); MIG slices and whole GPUs isolate as much as anything can.

// Want is what a pod needs of each of its GPUs, or parts of them.
type Want struct {
	Isolation cluster.Isolation
	Memory    cluster.MiB   // 0: any
	Cores     cluster.Milli // of a GPU's compute; 0: any
	Prompt    bool          // it cannot wait while others have their turns
}

// Any reports whether anything is wanted.
func (w *Want) Any() bool { return *w != Want{} }

// Text says what is wanted; "": nothing is.
func (w *Want) Text() string {
	var list []string
	if w.Isolation != cluster.Open {
		list = append(list, "isolation "+w.Isolation.String())
	}
	if w.Prompt {
		list = append(list, "a pod that cannot wait for turns")
	}
	if w.Memory > 0 {
		list = append(list, fmt.Sprintf("%d MiB of GPU memory", w.Memory))
	}
	if w.Cores > 0 {
		list = append(list, fmt.Sprintf("%d %% of a GPU's compute", (w.Cores+5)/10))
	}
	return strings.Join(list, ", ")
}

// Gives says what a pod gets of a node by what it asks for, in words; why, that it is not what it wants.
func (c *Names) Gives(replica *Replica, want *Want, sum v1.ResourceList, n *v1.Node) (text, why string) {
	ways, count := c.Ways(n), c.Slices(sum)
	switch {
	case replica.Name != "":
		return c.shareOf(&ways, c.ReplicasOn(n).Of, want)
	case c.SharedSlice(sum) != "":
		return sliceReplica(want)
	case len(count) > 0:
		return slicesGive(&ways, count, want)
	case c.Count(sum) > 0:
		return c.shareOf(&ways, c.PerGPU(n), want)
	}
	return "", ""
}

// shareOf is what a pod gets by one of so many replicas of a node's GPUs.
func (c *Names) shareOf(ways *cluster.Ways, of int, want *Want) (text, why string) {
	switch of {
	case 0:
		return "", "" // its label does not say (Replicable)
	case 1:
		return c.wholeGPU(ways, want)
	}
	part := ways.Model.Memory / cluster.MiB(of)
	r := cluster.Request{GPUs: 1, Share: cluster.Whole / cluster.Milli(of), Memory: want.Memory}
	got, how := ways.Choose(r, want.Isolation, want.Prompt)
	switch {
	case !got.Fractional() || got.Profile != "":
		apart := *want
		apart.Memory, apart.Cores = 0, 0
		why = fmt.Sprintf("it shares GPUs by %s, which is not enough for %s", ways.Sharing, apart.Text())
	case want.Memory > 0 && ways.Model.Memory == 0:
		why = c.unknownMemory()
	case want.Memory > part:
		why = fmt.Sprintf("a replica there is %d MiB of a GPU, not %d", part, want.Memory)
	case want.Cores > r.Share:
		why = fmt.Sprintf("a replica there is %s of a GPU's compute, not %s", percent(r.Share), percent(want.Cores))
	}
	size := ""
	if part > 0 {
		size = fmt.Sprintf(" (%d MiB)", part)
	}
	return fmt.Sprintf("a replica by %s, 1 of %d of a GPU%s: %s", ways.Sharing, of, size,
		strings.TrimPrefix(how, "a share: ")), why
}

// sliceReplica is what a pod gets by replicas of MIG slices, which are by time-slicing only.
func sliceReplica(want *Want) (text, why string) {
	got, how := (&cluster.Ways{}).Choose(cluster.Request{GPUs: 1, Share: 1}, want.Isolation, want.Prompt)
	if !got.Fractional() || want.Memory > 0 || want.Cores > 0 {
		why = "replicas of MIG slices are by time-slicing, which is not enough for " + want.Text()
	}
	return "a replica of a MIG slice by time-slicing: " + strings.TrimPrefix(how, "a share: "), why
}

func percent(part cluster.Milli) string { return fmt.Sprintf("%d %%", part/10) }

func (c *Names) unknownMemory() string {
	return fmt.Sprintf("label %s does not say how much memory its GPUs have", c.Labels.Memory)
}

// WholeGPUs is what a pod has whose GPUs are its own.
const WholeGPUs = "whole GPUs: no other pod is on them"

// Instances is what a pod has by MIG instances.
const Instances = "MIG instances: enforced: memory and compute by the GPU"

// wholeGPU is what a pod gets by whole GPUs of a node, or by slices of one profile that go by that name.
func (c *Names) wholeGPU(ways *cluster.Ways, want *Want) (text, why string) {
	text = WholeGPUs
	slice := strings.Contains(ways.Model.Name, "-MIG-")
	if slice {
		text = Instances
	}
	switch {
	case want.Memory > 0 && ways.Model.Memory == 0:
		why = c.unknownMemory()
	case want.Memory > ways.Model.Memory:
		why = fmt.Sprintf("its GPUs have %d MiB, not %d", ways.Model.Memory, want.Memory)
	case want.Cores > 0 && slice:
		why = "what part of a GPU's compute its MIG instances are, it does not say"
	}
	return text, why
}

// slicesGive is what a pod gets by MIG slices of some profiles.
func slicesGive(ways *cluster.Ways, count map[string]int, want *Want) (text, why string) {
	for _, name := range slices.Sorted(maps.Keys(count)) {
		p, ok := ways.Model.Profile(name)
		switch {
		case !ok && (want.Memory > 0 || want.Cores > 0):
			why = fmt.Sprintf("what %s is of its GPUs is not known", name)
		case !ok:
		case want.Memory > p.Memory:
			why = fmt.Sprintf("%s has %d MiB, not %d", name, p.Memory, want.Memory)
		case want.Cores*cluster.Milli(ways.Model.Compute) > cluster.Milli(p.Compute)*cluster.Whole:
			why = fmt.Sprintf("%s is %d of %d of a GPU's compute", name, p.Compute, ways.Model.Compute)
		}
	}
	_, text = ways.Choose(cluster.Request{GPUs: 1, Profile: "slice"}, want.Isolation, want.Prompt)
	return text, why
}

// Replicable says why the replica of a pod cannot be one of a node's; "": it can.
func (c *Names) Replicable(replica *Replica, want *Want, n *v1.Node) string {
	if !replica.One {
		return ""
	}
	s := c.ReplicasOn(n)
	switch {
	case s.Name != replica.Name:
		return "no " + string(replica.Name)
	case !c.OnlyShared(n):
		return "GPUs that are not shared beside those that are"
	case s.Of == 0:
		return fmt.Sprintf("label %s does not say how many replicas a GPU has (1 to %d)", c.Labels.Replicas,
			mostReplicas)
	case replica.Of != 0 && s.Of != replica.Of:
		return fmt.Sprintf("%d replicas of a GPU, not %d", s.Of, replica.Of)
	case replica.Of != 0 && c.KindFor(want, n) != replica.Kind:
		return "its replicas have no memory of their own, and others' have"
	}
	return ""
}

// Offers says what nodes have of GPUs, and by which names, for pods for which none of them is enough.
func (c *Names) Offers(nodes []*v1.Node) string {
	count := map[string]int{}
	for _, n := range nodes {
		ways, have := c.Ways(n), n.Status.Allocatable
		memory := func(of int) string {
			if ways.Model.Memory == 0 {
				return ""
			}
			return fmt.Sprintf(" with %d MiB", ways.Model.Memory/cluster.MiB(of))
		}
		add := func(name v1.ResourceName, of int) {
			if of > 1 {
				count[fmt.Sprintf("%s by %s, 1 of %d of a GPU%s", name, ways.Sharing, of, memory(of))]++
			} else {
				count[fmt.Sprintf("%s%s", name, memory(1))]++
			}
		}
		if s := c.ReplicasOn(n); s.Of > 0 {
			add(s.Name, s.Of)
		}
		for _, g := range c.GPUs {
			if q := have[v1.ResourceName(g)]; !q.IsZero() {
				add(v1.ResourceName(g), c.PerGPU(n))
			}
		}
		for r, q := range have {
			if _, slice := c.Slice(r); slice && !q.IsZero() {
				count[string(r)]++
			}
		}
		if published, _ := c.published(n.Name); published > 0 {
			count["devices for resource claims"]++
		}
	}
	if len(count) == 0 {
		return "none at all"
	}
	var list []string
	for _, what := range slices.Sorted(maps.Keys(count)) {
		list = append(list, fmt.Sprintf("%s (nodes: %d)", what, count[what]))
	}
	return strings.Join(list, "; ")
}
