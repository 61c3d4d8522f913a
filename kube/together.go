package kube

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/kube/amount"
	"github.com/muster-gpu/muster/kube/fit"
	"github.com/muster-gpu/muster/kube/fit/shared"
	"github.com/muster-gpu/muster/kube/gpus"
)

// Pods that use one resource claim at a time share its devices, by turns, or by MPS if the
// claim's configuration for its driver says so. Who else is on the devices is known here:
// so who wants to be kept apart from others, and what that is not enough for, is not put on
// them with somebody else, whichever of them was there first. Which devices a claim gets
// that is still open, is chosen among those that have the memory and the compute that its
// pod wants.

// claimWay is how pods share the devices of a claim.
type claimWay struct {
	sharing cluster.Sharing
	memory  cluster.MiB // of each device that a pod may use; 0: no limit
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

// claimWay is how pods share the devices that a claim has, or where it has none yet, the
// weakest way among those that it may get (sizeOf looks for them).
func (d *Driver) claimWay(key string, c *resourceapi.ResourceClaim) claimWay {
	if a := d.allocation(key); a != nil {
		return d.wayOf(a)
	}
	return d.dra.ways[jsonText(c.Spec)]
}

// wayOf is how pods share allocated devices, the weakest way among them.
func (d *Driver) wayOf(a *resourceapi.AllocationResult) (w claimWay) {
	first := true
	for i := range a.Devices.Results {
		r := &a.Devices.Results[i]
		if !slices.Contains(d.opt.Drivers, r.Driver) {
			continue
		}
		way := d.configured(a.Devices.Config, r)
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
func (d *Driver) configured(list []resourceapi.DeviceAllocationConfiguration,
	r *resourceapi.DeviceRequestAllocationResult) (w claimWay) {
	other := "MigDeviceConfig" // is of the other kind of device
	if device, ok := d.pools().Part(structured.MakeDeviceID(r.Driver, r.Pool, r.Device)); ok &&
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
				w = claimWay{}
				continue
			}
			w = claimWay{sharing: cluster.MPS}
			if l := config.Sharing.MPS.Limit; l != nil {
				w.memory = amount.MiB(l, false)
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
func (w claimWay) weaker(o claimWay) claimWay {
	if w.sharing != cluster.MPS || o.sharing != cluster.MPS {
		return claimWay{}
	}
	return claimWay{sharing: cluster.MPS, memory: min(w.memory, o.memory)}
}

// enough says why this way is not enough for what somebody wants; "": it is.
func (w *claimWay) enough(want *gpus.Want) string {
	got, _ := (&cluster.Ways{Sharing: w.sharing}).Choose(cluster.Request{GPUs: 1, Share: 1, Memory: w.memory},
		want.Isolation, want.Prompt)
	if !got.Fractional() || want.Isolation > cluster.Open && w.memory == 0 || want.Memory > w.memory {
		return want.Text()
	}
	return ""
}

// mates lists who has the devices of a claim besides the pods of a gang.
func (d *Driver) mates(key string, g *gang) (list []*pod) {
	add := func(p *pod) {
		if p != nil && p.gang != g && !p.over() && !slices.Contains(list, p) {
			list = append(list, p)
		}
	}
	if c := d.dra.claims[key]; c != nil {
		for i := range c.Status.ReservedFor {
			add(d.pods[c.Status.ReservedFor[i].UID])
		}
	}
	if grant := d.dra.grants[key]; grant != nil {
		for p := range grant.pods {
			add(p)
		}
	}
	slices.SortFunc(list, podOrder)
	return list
}

// limitShared keeps a pod off devices of its claims on which others are, if that is not enough
// for one of them, or makes one slower than it accepts.
func (d *Driver) limitShared(l *fit.Look, p *pod) {
	for _, key := range p.claimed.keys {
		c := d.dra.claims[key]
		if c == nil {
			continue
		}
		if counts, err := d.sizeOf(key, &p.Want); err != nil || counts.Sum() == 0 {
			continue // not of GPUs
		}
		l.Never(d.tooSmall(key, c, &p.Want))
		all := d.mates(key, p.gang)
		for _, o := range l.Pods {
			if q := d.podOf(o); q == p || slices.Contains(q.claimed.keys, key) {
				all = append(all, q)
			}
		}
		if len(all) > 1 {
			l.Never(cmp.Or(d.apart(key, c, all), d.slowTogether(key, c, all)))
		}
	}
}

// apart says who of those on the devices of a claim wants to be kept apart from the others
// more than they are; "": nobody.
func (d *Driver) apart(key string, c *resourceapi.ResourceClaim, all []*pod) string {
	w := d.claimWay(key, c)
	for _, p := range all {
		if text := w.enough(&p.Want); text != "" {
			return fmt.Sprintf("resource claim %s is for %d pods at a time, which share by %s: that is not enough for %s of pod %s (a claim of a template is one pod's own)", c.Name, len(all), w.sharing, text, p.obj.Name)
		}
	}
	return ""
}

// slowTogether says who of those on the devices of a claim would be slower than it accepts;
// "": nobody.
func (d *Driver) slowTogether(key string, c *resourceapi.ResourceClaim, all []*pod) string {
	w := d.claimWay(key, c)
	company := shared.CompanyOf(d.cfg.Speeds, w.sharing)
	if company == nil {
		return ""
	}
	list := make([]shared.Sharer, 0, len(all))
	for _, p := range all {
		list = append(list, d.sharerOf(p))
	}
	for i, p := range all {
		var others []string
		for k := range list {
			if k != i {
				others = append(others, list[k].Model)
			}
		}
		if v := company.Among(list[i].Model, others); v < list[i].Least {
			return fmt.Sprintf("pod %s would be at %.2f of its speed beside others on the devices of resource claim %s, and asks for %g", p.obj.Name, float64(v)/shared.PPM, c.Name, float64(list[i].Least)/shared.PPM)
		}
	}
	return ""
}

// tooSmall says of a claim that has its devices that they are not what a pod wants.
func (d *Driver) tooSmall(key string, c *resourceapi.ResourceClaim, want *gpus.Want) string {
	a := d.allocation(key)
	if a == nil {
		return ""
	}
	for i := range a.Devices.Results {
		r := &a.Devices.Results[i]
		if p, ok := d.pools().Part(structured.MakeDeviceID(r.Driver, r.Pool, r.Device)); ok &&
			!p.Enough(want.Memory, want.Cores) {
			return fmt.Sprintf("resource claim %s has device %s, which is not enough for %s", c.Name, r.Device,
				want.Text())
		}
	}
	return ""
}

// unfit lists the devices of a node that are not what a pod wants.
func (d *Driver) unfit(want *gpus.Want, node string) []structured.DeviceID {
	return d.pools().Unfit(want.Memory, want.Cores, node)
}

// settledClaims lists the claims of a pod by which it matters which they are: they have
// devices, or others use them.
func (d *Driver) settledClaims(p *pod) (keys []string) {
	for _, key := range p.claimed.keys {
		if d.allocation(key) != nil || len(d.mates(key, p.gang)) > 0 {
			keys = append(keys, key)
		}
	}
	return keys
}

// devicesGive says what a pod gets by its claims, in words; "": no GPUs.
func (d *Driver) devicesGive(p *pod) (text string) {
	for _, key := range p.claimed.keys {
		c, a := d.dra.claims[key], d.allocation(key)
		if c == nil || a == nil || d.pools().Weigh(a).Sum() == 0 {
			continue
		}
		w, mates := d.claimWay(key, c), len(d.mates(key, nil))-1
		switch counts := d.pools().Weigh(a); {
		case mates > 0 && w.sharing == cluster.MPS && w.memory > 0:
			text = fmt.Sprintf("devices of resource claim %s with %d other pods by mps: enforced: memory (%d MiB) by MPS", c.Name, mates, w.memory)
		case mates > 0:
			text = fmt.Sprintf("devices of resource claim %s with %d other pods by %s: declared only: nothing limits memory", c.Name, mates, w.sharing)
		case counts.Milli > 0:
			text = "MIG instances: enforced: memory and compute by the GPU"
		default:
			text = "whole GPUs: no other pod is on them"
		}
	}
	return text
}
