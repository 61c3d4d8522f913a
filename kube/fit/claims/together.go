package claims

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/kube/amount"
	"github.com/muster-gpu/muster/kube/fit"
	"github.com/muster-gpu/muster/kube/fit/shared"
	"github.com/muster-gpu/muster/kube/gpus"
	"github.com/muster-gpu/muster/kube/patch"
)

// Pods that use one resource claim at a time share its devices, by turns, or by MPS if the claim's configuration for
// its driver says so. Which other pods are on the devices is known here: so a pod that wants isolation from others,
// where that way is not enough for it, is not put on them with another, whichever of them was there first. The devices
// of a claim that is still open are chosen among those that have the memory and the compute that its pod wants.

// Way is how pods share the devices of a claim.
type Way struct {
	Sharing cluster.Sharing
	Memory  cluster.MiB // of each device that a pod may use; 0: no limit
}

// deviceConfig is what of a driver's configuration is about sharing (NVIDIA's DRA driver:
// GpuConfig, of whole GPUs, and MigDeviceConfig).
type deviceConfig struct {
	Kind    string
	Sharing struct {
		Strategy string
		MPS      struct {
			Limit *resource.Quantity `json:"defaultPinnedDeviceMemoryLimit"`
		} `json:"mpsConfig"`
	}
}

// way is how pods share the devices that a claim has, or where it has none yet, the
// weakest way among those that it may get (sizeOf looks for them).
func (all *Claims) way(key string, c *resourceapi.ResourceClaim) Way {
	if a := all.allocation(key); a != nil {
		return all.wayOf(a)
	}
	return all.ways[string(patch.JSON(c.Spec))]
}

// wayOf is how pods share allocated devices, the weakest way among them.
func (all *Claims) wayOf(a *resourceapi.AllocationResult) (w Way) {
	first := true
	for i := range a.Devices.Results {
		r := &a.Devices.Results[i]
		if !slices.Contains(all.drivers, r.Driver) {
			continue
		}
		way := all.configured(a.Devices.Config, r)
		if !first {
			way = way.weaker(w)
		}
		w, first = way, false
	}
	return w
}

// configured is the way that a driver takes from the configuration of an allocation for one
// of its devices: the last that holds for its request and such a device, those of the
// claim after those of its class. One that cannot be read says nothing: then they take turns.
func (all *Claims) configured(list []resourceapi.DeviceAllocationConfiguration,
	r *resourceapi.DeviceRequestAllocationResult) (w Way) {
	other := "MigDeviceConfig" // is of the other kind of device
	if device, ok := all.pools().Part(structured.MakeDeviceID(r.Driver, r.Pool, r.Device)); ok &&
		device.Milli < cluster.Whole {
		other = "GpuConfig"
	}
	for _, source := range []resourceapi.AllocationConfigSource{resourceapi.AllocationConfigSourceClass,
		resourceapi.AllocationConfigSourceClaim} {
		for i := range list {
			o := list[i].Opaque
			if list[i].Source != source || o == nil || o.Driver != r.Driver || !holdsFor(list[i].Requests, r.Request) {
				continue
			}
			var config deviceConfig
			switch err := json.Unmarshal(o.Parameters.Raw, &config); {
			case err == nil && config.Kind == other:
				continue
			case err != nil || config.Sharing.Strategy != "MPS":
				w = Way{}
				continue
			}
			w = Way{Sharing: cluster.MPS}
			if l := config.Sharing.MPS.Limit; l != nil {
				w.Memory = amount.MiB(l, false)
			}
		}
	}
	return w
}

// holdsFor reports whether a configuration of some requests is that of one, which may be
// an alternative of one of them (request/alternative).
func holdsFor(requests []string, name string) bool {
	main, _, _ := strings.Cut(name, "/")
	return len(requests) == 0 || slices.Contains(requests, name) || slices.Contains(requests, main)
}

// weaker is what both ways keep to.
func (w Way) weaker(o Way) Way {
	if w.Sharing != cluster.MPS || o.Sharing != cluster.MPS {
		return Way{}
	}
	return Way{Sharing: cluster.MPS, Memory: min(w.Memory, o.Memory)}
}

// enough says why this way is not enough for what a pod wants; "": it is.
func (w *Way) enough(want *gpus.Want) string {
	got, _ := (&cluster.Ways{Sharing: w.Sharing}).Choose(cluster.Request{GPUs: 1, Share: 1, Memory: w.Memory},
		want.Isolation, want.Prompt)
	if !got.Fractional() || want.Isolation > cluster.Open && w.Memory == 0 || want.Memory > w.Memory {
		return want.Text()
	}
	return ""
}

// mates lists the pods that have the devices of a claim, but for those of one pod's gang; nil: all.
func (all *Claims) mates(key string, but *fit.Neighbour) (list []*fit.Neighbour) {
	add := func(p *fit.Neighbour) {
		if p != nil && (but == nil || !all.books.Same(p, but)) && !over(p.Obj) && !slices.Contains(list, p) {
			list = append(list, p)
		}
	}
	if c := all.claims[key]; c != nil {
		for i := range c.Status.ReservedFor {
			add(all.books.Find(c.Status.ReservedFor[i].UID))
		}
	}
	if grant := all.grants[key]; grant != nil {
		for p := range grant.pods {
			add(p)
		}
	}
	slices.SortFunc(list, func(p, q *fit.Neighbour) int { return fit.Order(p.Obj, q.Obj) })
	return list
}

// limitShared keeps a pod off devices of its claims on which others are, if that is not enough
// for one of them, or makes one slower than it accepts.
func (all *Claims) limitShared(l *fit.Look, p *fit.Neighbour) {
	for _, key := range all.books.Part(p).Keys {
		c := all.claims[key]
		if c == nil {
			continue
		}
		if counts, err := all.sizeOf(key, &p.Want); err != nil || counts.Sum() == 0 {
			continue // not of GPUs
		}
		l.Never(all.tooSmall(key, c, &p.Want))
		those := all.mates(key, p)
		for _, q := range l.Pods {
			if q == p || slices.Contains(all.books.Part(q).Keys, key) {
				those = append(those, q)
			}
		}
		if len(those) > 1 {
			l.Never(cmp.Or(all.apart(key, c, those), all.slowTogether(key, c, those)))
		}
	}
}

// apart says which of those on the devices of a claim wants more isolation from the others than there is; "": none.
func (all *Claims) apart(key string, c *resourceapi.ResourceClaim, those []*fit.Neighbour) string {
	w := all.way(key, c)
	for _, p := range those {
		if text := w.enough(&p.Want); text != "" {
			return fmt.Sprintf("resource claim %s is for %d pods at a time, which share by %s: that is not enough for %s of pod %s (a claim of a template is one pod's own)", c.Name, len(those), w.Sharing, text, p.Obj.Name)
		}
	}
	return ""
}

// slowTogether says which of those on the devices of a claim would be slower than it accepts; "": none.
func (all *Claims) slowTogether(key string, c *resourceapi.ResourceClaim, those []*fit.Neighbour) string {
	w := all.way(key, c)
	company := shared.CompanyOf(all.books.Speeds(), w.Sharing)
	if company == nil {
		return ""
	}
	list := make([]shared.Sharer, 0, len(those))
	for _, p := range those {
		list = append(list, all.books.Sharer(p))
	}
	for i, p := range those {
		var others []string
		for k := range list {
			if k != i {
				others = append(others, list[k].Model)
			}
		}
		if v := company.Among(list[i].Model, others); v < list[i].Least {
			return fmt.Sprintf("pod %s would be at %.2f of its speed beside others on the devices of resource claim %s, and asks for %g", p.Obj.Name, float64(v)/shared.PPM, c.Name, float64(list[i].Least)/shared.PPM)
		}
	}
	return ""
}

// tooSmall says of a claim that has its devices that they are not what a pod wants.
func (all *Claims) tooSmall(key string, c *resourceapi.ResourceClaim, want *gpus.Want) string {
	a := all.allocation(key)
	if a == nil {
		return ""
	}
	for i := range a.Devices.Results {
		r := &a.Devices.Results[i]
		if p, ok := all.pools().Part(structured.MakeDeviceID(r.Driver, r.Pool, r.Device)); ok &&
			!p.Enough(want.Memory, want.Cores) {
			return fmt.Sprintf("resource claim %s has device %s, which is not enough for %s", c.Name, r.Device,
				want.Text())
		}
	}
	return ""
}

// unfit lists the devices of a node that are not what a pod wants.
func (all *Claims) unfit(want *gpus.Want, node string) []structured.DeviceID {
	return all.pools().Unfit(want.Memory, want.Cores, node)
}

// settled lists the claims of a pod by which it matters which they are: they have
// devices, or others use them.
func (all *Claims) settled(p *fit.Neighbour) (keys []string) {
	for _, key := range all.books.Part(p).Keys {
		if all.allocation(key) != nil || len(all.mates(key, p)) > 0 {
			keys = append(keys, key)
		}
	}
	return keys
}

// Gives says what a pod gets by its claims, in words; "": no GPUs.
func (all *Claims) Gives(p *fit.Neighbour) (text string) {
	for _, key := range all.books.Part(p).Keys {
		c, a := all.claims[key], all.allocation(key)
		if c == nil || a == nil || all.pools().Weigh(a).Sum() == 0 {
			continue
		}
		w, mates := all.way(key, c), len(all.mates(key, nil))-1
		switch counts := all.pools().Weigh(a); {
		case mates > 0 && w.Sharing == cluster.MPS && w.Memory > 0:
			text = fmt.Sprintf("devices of resource claim %s with %d other pods by mps: enforced: memory (%d MiB) by MPS", c.Name, mates, w.Memory)
		case mates > 0:
			text = fmt.Sprintf("devices of resource claim %s with %d other pods by %s: declared only: nothing limits memory", c.Name, mates, w.Sharing)
		case counts.Milli > 0:
			text = gpus.Instances
		default:
			text = gpus.WholeGPUs
		}
	}
	return text
}

// over reports whether a pod holds nothing any more, though it is still there.
func over(obj *v1.Pod) bool {
	return obj.Status.Phase == v1.PodSucceeded || obj.Status.Phase == v1.PodFailed
}
