package places

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/holds"
	"github.com/muster-gpu/muster/kube/plans"
)

// ErrNoRoom is returned where others have the devices of a plan, too, in the books.
var ErrNoRoom = errors.New("no room for them in the books")

// Devices gives a plan devices, and books them in taken, by node. Which ones they are, only the node or the claims
// know, so the first that are not given away will do. number is that of a node in the engine.
func Devices(p *plans.Plan, taken map[string]holds.InUse, number func(node string) int) (list []engine.Alloc,
	err error) {
	now := maps.Clone(taken)
	for _, on := range p.On {
		r, use := p.Tasks[on.Set].Request, now[on.Node]
		a := engine.Alloc{Node: int32(number(on.Node)), Set: int32(on.Set), Tasks: int32(on.Tasks),
			CPU: r.CPU * cluster.Milli(on.Tasks), RAM: r.RAM * cluster.MiB(on.Tasks)}
		if r.Fractional() { // each share is an allocation of its own
			a.Tasks, a.CPU, a.RAM, a.Share = 1, r.CPU, r.RAM, int32(r.Share)
		}
		if r.Profile != "" {
			a.Tasks, a.CPU, a.RAM = 1, r.CPU, r.RAM
			list = append(list, slices.Repeat([]engine.Alloc{a}, on.Tasks)...) // mig.TakeSlices says which they are
			continue
		}
		for range on.Tasks * r.GPUs {
			dev, ok := use.Take(a.Share)
			if !ok {
				return nil, fmt.Errorf("node %s: %w", on.Node, ErrNoRoom)
			}
			if a.GPUs |= dev; a.Share > 0 {
				list, a.GPUs = append(list, a), 0
			}
		}
		if a.Share == 0 {
			list = append(list, a)
		}
		now[on.Node] = use
	}
	maps.Copy(taken, now)
	return list, nil
}
