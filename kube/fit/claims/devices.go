package claims

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
	"github.com/muster-gpu/muster/kube/gpus"
	"github.com/muster-gpu/muster/kube/patch"
)

// Which devices a claim gets on a node, the allocator of kube-scheduler says
// (k8s.io/dynamic-resource-allocation): selectors, counts, constraints across
// requests, devices that are parts of others. Here is what it has to know, and
// what the engine counts of it.

// pools is what the slices say, read again if they changed.
func (all *Claims) pools() *Pools {
	if all.found == nil {
		all.found = Read(all.slices, all.drivers)
	}
	return all.found
}

// taken is which devices claims have.
type taken struct {
	devices map[Pool]map[structured.DeviceID]bool // false: a pod that holds its place pays for it, and may leave
	others  map[string]int                        // by node: GPUs, rounded up, for which no pod of ours pays
}

// devicesTaken is that now.
func (all *Claims) devicesTaken() *taken {
	if all.used != nil {
		return all.used
	}
	t := &taken{devices: map[Pool]map[structured.DeviceID]bool{}, others: map[string]int{}}
	milli, found := map[string]int64{}, all.pools()
	add := func(key string, a *resourceapi.AllocationResult) {
		payer := all.payer[key]
		fixed := payer == nil || payer.Where == "" || !all.books.Ours(payer)
		for i := range a.Devices.Results {
			r := &a.Devices.Results[i]
			if r.AdminAccess != nil && *r.AdminAccess {
				continue
			}
			p, id := Pool{Driver: r.Driver, Name: r.Pool}, structured.MakeDeviceID(r.Driver, r.Pool, r.Device)
			if t.devices[p] == nil {
				t.devices[p] = map[structured.DeviceID]bool{}
			}
			t.devices[p][id] = fixed
			if at, ok := found.Part(id); ok && fixed {
				milli[at.Node] += at.Milli
			}
		}
	}
	for key := range all.claims {
		if a := all.allocation(key); a != nil {
			add(key, a)
		}
	}
	for key, g := range all.grants { // of claims that are gone already
		if all.claims[key] == nil || all.claims[key].UID != g.uid {
			add(key, g.allocation)
		}
	}
	for node, m := range milli {
		t.others[node] = int((m + cluster.Whole - 1) / cluster.Whole)
	}
	all.used = t
	return t
}

// takenOn is which devices that a node reaches are taken; ever: only those that no
// pod of ours, if it left, would free.
func (all *Claims) takenOn(node string, ever bool) sets.Set[structured.DeviceID] {
	list, t := sets.New[structured.DeviceID](), all.devicesTaken()
	for _, p := range all.pools().Reach(node) {
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
func (all *Claims) allocate(n *v1.Node, used sets.Set[structured.DeviceID],
	list []*resourceapi.ResourceClaim) ([]resourceapi.AllocationResult, error) {
	ctx, cancel := context.WithTimeout(context.Background(), searchFor)
	defer cancel()
	return all.pools().Search(ctx, all.classes, n, used, list)
}

// Published is what drivers publish of a node's GPUs: how many, and their product.
func (all *Claims) Published(node string) (gpus int, product string) {
	return all.pools().GPUs(node), all.pools().Product(node)
}

// GPUsOn is how many GPUs drivers publish of a node.
func (all *Claims) GPUsOn(node string) int { return all.pools().GPUs(node) }

// Others is how many GPUs of a node, rounded up, claims have for which no pod of ours pays.
func (all *Claims) Others(node string) int { return all.devicesTaken().others[node] }

// sizeOf is what a claim counts for: what it has, or the least that it would get
// of an empty node if a pod wants so much. Counting more than that would keep it off nodes where it can
// be met; that it gets more on others, those learn that come after it.
func (all *Claims) sizeOf(key string, want *gpus.Want) (Size, error) {
	if a := all.allocation(key); a != nil {
		return all.pools().Weigh(a), nil
	}
	c := all.claims[key]
	spec := string(patch.JSON(c.Spec))
	text := fmt.Sprint(spec, want.Memory, want.Cores)
	if s, ok := all.sizes[text]; ok {
		return s, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), searchFor)
	defer cancel()
	best, err := (*Size)(nil), ErrNone
	forms := Forms(c)
	for _, n := range all.books.Nodes() {
		for _, form := range forms {
			results, e := all.pools().Search(ctx, all.classes, n, sets.New(all.unfit(want, n.Name)...),
				[]*resourceapi.ResourceClaim{form})
			switch {
			case e == nil:
				way := all.wayOf(&results[0])
				if w, ok := all.ways[spec]; ok {
					way = way.weaker(w)
				}
				all.ways[spec] = way
				if s := all.pools().Weigh(&results[0]); best == nil || s.Sum() < best.Sum() {
					best = &s
				}
			case !errors.Is(e, ErrNone) && ctx.Err() == nil:
				err = e
			}
		}
		if best != nil && (!all.varies(c) || ctx.Err() != nil) {
			break
		}
	}
	switch {
	case best != nil:
		all.sizes[text] = *best
		return *best, nil
	case !errors.Is(err, ErrNone):
		return Size{}, fmt.Errorf("resource claim %s: %w", c.Name, err)
	}
	if want.Memory > 0 || want.Cores > 0 {
		return Size{},
			fmt.Errorf("resource claim %s asks for devices that no node has with what its pod wants (%s)", c.Name,
				want.Text())
	}
	return Size{}, fmt.Errorf("resource claim %s asks for devices that no node has", c.Name)
}

// varies reports whether a claim may count for more on one node than on another.
func (all *Claims) varies(c *resourceapi.ResourceClaim) bool {
	return all.pools().Cut() || slices.ContainsFunc(c.Spec.Devices.Requests, func(r resourceapi.DeviceRequest) bool {
		return len(r.FirstAvailable) > 0 || r.Exactly != nil &&
			r.Exactly.AllocationMode == resourceapi.DeviceAllocationModeAll
	})
}

// limitDevices bounds nodes by on which of them the claims of the gang can be met, and of how many of its pods. Which
// pods would have to leave for that, the engine decides: it counts GPUs, so a node is closed only where it counts more
// than there is, because what is free is not what the claims ask for.
func (all *Claims) limitDevices(l *fit.Look) {
	open, pods := false, l.Pods
	for _, p := range pods {
		for _, key := range all.books.Part(p).Keys {
			if a := all.allocation(key); a == nil {
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
		most, why := all.fitting(ctx, pods, n, true)
		if most > 0 {
			if now, text := all.fitting(ctx, pods, n, false); now < most && now < all.books.Room(pods, name) {
				most, why = now, text
			}
		}
		l.Most(name, int64(most), why)
	})
}

// fitting counts how many of the gang's pods get their devices on a node, one
// after the other; ever: if all that may leave had left.
func (all *Claims) fitting(ctx context.Context, pods []*fit.Neighbour, n *v1.Node, ever bool) (count int, why string) {
	used := all.takenOn(n.Name, ever).Insert(all.unfit(&pods[0].Want, n.Name)...)
	made, failed := map[string]bool{}, map[string]bool{}
	for _, p := range pods {
		var open []*resourceapi.ResourceClaim
		for _, key := range all.books.Part(p).Keys {
			if c := all.claims[key]; c != nil && all.allocation(key) == nil && !made[key] {
				open = append(open, c)
			}
		}
		if failed[all.books.Part(p).Wants] && len(open) > 0 {
			continue
		}
		results, err := all.pools().Search(ctx, all.classes, n, used, open)
		if err != nil {
			failed[all.books.Part(p).Wants], why = true, "its resource claims"
			if !errors.Is(err, ErrNone) {
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
