package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/kube/fit"
	"github.com/muster-gpu/muster/kube/fit/claims"
	"github.com/muster-gpu/muster/kube/gpus"
)

// Which devices a claim gets on a node, the allocator of kube-scheduler says
// (k8s.io/dynamic-resource-allocation): selectors, counts, constraints across
// requests, devices that are parts of others. Here is what it has to know, and
// what the engine counts of it.

// pools is what the slices say, read again if they changed.
func (d *Driver) pools() *claims.Pools {
	if d.dra.found == nil {
		d.dra.found = claims.Read(d.dra.slices, d.opt.Drivers)
	}
	return d.dra.found
}

// taken is which devices claims have.
type taken struct {
	devices map[claims.Pool]map[structured.DeviceID]bool // false: a pod that holds its place pays for it, and may leave
	others  map[string]int                               // by node: GPUs, rounded up, for which no pod of ours pays
}

// devicesTaken is that now.
func (d *Driver) devicesTaken() *taken {
	if d.dra.used != nil {
		return d.dra.used
	}
	t := &taken{devices: map[claims.Pool]map[structured.DeviceID]bool{}, others: map[string]int{}}
	milli, found := map[string]int64{}, d.pools()
	add := func(key string, a *resourceapi.AllocationResult) {
		payer := d.dra.payer[key]
		fixed := payer == nil || payer.Where == "" || payer.gang == nil
		for i := range a.Devices.Results {
			r := &a.Devices.Results[i]
			if r.AdminAccess != nil && *r.AdminAccess {
				continue
			}
			p, id := claims.Pool{Driver: r.Driver, Name: r.Pool}, structured.MakeDeviceID(r.Driver, r.Pool, r.Device)
			if t.devices[p] == nil {
				t.devices[p] = map[structured.DeviceID]bool{}
			}
			t.devices[p][id] = fixed
			if at, ok := found.Part(id); ok && fixed {
				milli[at.Node] += at.Milli
			}
		}
	}
	for key := range d.dra.claims {
		if a := d.allocation(key); a != nil {
			add(key, a)
		}
	}
	for key, g := range d.dra.grants { // of claims that are gone already
		if d.dra.claims[key] == nil || d.dra.claims[key].UID != g.uid {
			add(key, g.allocation)
		}
	}
	for node, m := range milli {
		t.others[node] = int((m + cluster.Whole - 1) / cluster.Whole)
	}
	d.dra.used = t
	return t
}

// takenOn is which devices that a node reaches are taken; ever: only those that no
// pod of ours, if it left, would free.
func (d *Driver) takenOn(node string, ever bool) sets.Set[structured.DeviceID] {
	list, t := sets.New[structured.DeviceID](), d.devicesTaken()
	for _, p := range d.pools().Reach(node) {
		for id, fixed := range t.devices[p] {
			if fixed || !ever {
				list.Insert(id)
			}
		}
	}
	return list
}

// searchFor bounds how long devices are searched for in one go: constraints can
// make that very long.
const searchFor = time.Second

// allocate chooses devices of a node for claims, none of those that are taken.
func (d *Driver) allocate(n *v1.Node, used sets.Set[structured.DeviceID],
	list []*resourceapi.ResourceClaim) ([]resourceapi.AllocationResult, error) {
	ctx, cancel := context.WithTimeout(context.Background(), searchFor)
	defer cancel()
	return d.pools().Search(ctx, d.dra.classes, n, used, list)
}

// published is what drivers publish of a node's GPUs.
func (d *Driver) published(node string) (gpus int, product string) {
	return d.pools().GPUs(node), d.pools().Product(node)
}

// sizeOf is what a claim counts for: what it has, or the least that it would get
// of an empty node if a pod wants so much. Counting more than that would keep it off nodes where it can
// be met; that it gets more on others, those learn who come after it.
func (d *Driver) sizeOf(key string, want *gpus.Want) (claims.Size, error) {
	if a := d.allocation(key); a != nil {
		return d.pools().Weigh(a), nil
	}
	c := d.dra.claims[key]
	spec := jsonText(c.Spec)
	text := fmt.Sprint(spec, want.Memory, want.Cores)
	if s, ok := d.dra.sizes[text]; ok {
		return s, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), searchFor)
	defer cancel()
	best, err := (*claims.Size)(nil), claims.ErrNone
	forms := claims.Forms(c)
	for _, name := range d.nodeNames() {
		for _, form := range forms {
			results, e := d.pools().Search(ctx, d.dra.classes, d.nodes[name].obj, sets.New(d.unfit(want, name)...),
				[]*resourceapi.ResourceClaim{form})
			switch {
			case e == nil:
				way := d.wayOf(&results[0])
				if w, ok := d.dra.ways[spec]; ok {
					way = way.weaker(w)
				}
				d.dra.ways[spec] = way
				if s := d.pools().Weigh(&results[0]); best == nil || s.Sum() < best.Sum() {
					best = &s
				}
			case !errors.Is(e, claims.ErrNone) && ctx.Err() == nil:
				err = e
			}
		}
		if best != nil && (!d.varies(c) || ctx.Err() != nil) {
			break
		}
	}
	switch {
	case best != nil:
		d.dra.sizes[text] = *best
		return *best, nil
	case !errors.Is(err, claims.ErrNone):
		return claims.Size{}, fmt.Errorf("resource claim %s: %w", c.Name, err)
	}
	if want.Memory > 0 || want.Cores > 0 {
		return claims.Size{},
			fmt.Errorf("resource claim %s asks for devices that no node has with what its pod wants (%s)", c.Name,
				want.Text())
	}
	return claims.Size{}, fmt.Errorf("resource claim %s asks for devices that no node has", c.Name)
}

// varies reports whether a claim may count for more on one node than on another.
func (d *Driver) varies(c *resourceapi.ResourceClaim) bool {
	return d.pools().Cut() || slices.ContainsFunc(c.Spec.Devices.Requests, func(r resourceapi.DeviceRequest) bool {
		return len(r.FirstAvailable) > 0 || r.Exactly != nil &&
			r.Exactly.AllocationMode == resourceapi.DeviceAllocationModeAll
	})
}

// nodeNames lists the nodes that there are, by name.
func (d *Driver) nodeNames() (names []string) {
	for name, n := range d.nodes {
		if n.obj != nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// limitDevices bounds nodes by on which of them the claims of the gang can be met, and of how many
// of its pods. Who would have to leave for that, the engine decides: it counts
// GPUs, so a node is closed only where it counts more than there is, because what
// is free is not what the claims ask for.
func (d *Driver) limitDevices(l *fit.Look, pods []*pod) {
	open := false
	for _, p := range pods {
		for _, key := range p.claimed.keys {
			if a := d.allocation(key); a == nil {
				open = true
			} else {
				l.ShutIf("where its resource claims are allocated", func(n *v1.Node) bool { return !reaches(a, n) })
			}
		}
	}
	if !open {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), searchFor)
	defer cancel()
	l.Open(func(name string, n *v1.Node) {
		most, why := d.fitting(ctx, pods, n, true)
		if most > 0 {
			if now, text := d.fitting(ctx, pods, n, false); now < most && now < d.roomFor(pods, name) {
				most, why = now, text
			}
		}
		l.Most(name, int64(most), why)
	})
}

// fitting counts how many of the gang's pods get their devices on a node, one
// after the other; ever: if all who may leave had left.
func (d *Driver) fitting(ctx context.Context, pods []*pod, n *v1.Node, ever bool) (count int, why string) {
	used := d.takenOn(n.Name, ever).Insert(d.unfit(&pods[0].Want, n.Name)...)
	made, failed := map[string]bool{}, map[string]bool{}
	for _, p := range pods {
		var open []*resourceapi.ResourceClaim
		for _, key := range p.claimed.keys {
			if c := d.dra.claims[key]; c != nil && d.allocation(key) == nil && !made[key] {
				open = append(open, c)
			}
		}
		if failed[p.claimed.wants] && len(open) > 0 {
			continue
		}
		results, err := d.pools().Search(ctx, d.dra.classes, n, used, open)
		if err != nil {
			failed[p.claimed.wants], why = true, "its resource claims"
			if !errors.Is(err, claims.ErrNone) {
				why += " (" + err.Error() + ")"
			}
			continue
		}
		count++
		for i := range results {
			made[open[i].Namespace+"/"+open[i].Name] = true
			for k := range results[i].Devices.Results {
				r := &results[i].Devices.Results[k]
				used.Insert(structured.MakeDeviceID(r.Driver, r.Pool, r.Device))
			}
		}
	}
	return count, why
}
