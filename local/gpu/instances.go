package gpu

import (
	"fmt"
	"slices"

	"github.com/muster-gpu/muster/cluster"
)

// idle is an error if one of a GPU's instances is in use.
func idle(list []Instance, inUse func(uuid string) bool) error {
	for _, in := range list {
		if inUse(in.UUID) {
			return fmt.Errorf("%s at %d is in use", in.Profile, in.Start)
		}
	}
	return nil
}

// inTheWay lists those of a GPU's instances that have to go before another can be
// made, by their places in the list; it is an error if one of them is in use. there
// says that it exists already.
func inTheWay(model *cluster.GPUModel, list []Instance, want cluster.Instance,
	inUse func(uuid string) bool) (gone []int, there bool, err error) {
	p, ok := model.Profile(want.Profile)
	if !ok || !slices.Contains(p.Starts, want.Start) {
		return nil, false, fmt.Errorf("%s has no %s at memory slice %d", model.Name, want.Profile, want.Start)
	}
	for i, in := range list {
		q, known := model.Profile(in.Profile)
		switch {
		case in.Instance == want:
			return nil, true, nil
		case known && q.Mask(in.Start)&p.Mask(want.Start) == 0 && !(q.Media() && p.Media()):
			continue
		case inUse(in.UUID):
			return nil, false, fmt.Errorf("%s at %d is in the way of %s at %d, and in use", in.Profile, in.Start,
				want.Profile, want.Start)
		}
		gone = append(gone, i)
	}
	return gone, false, nil
}
