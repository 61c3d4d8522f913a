package engine_test

import (
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

// distinct is how many tasks with shares of several GPUs each fit on the devices of a node, at most
// so many: the shares of one task are on distinct ones.
func (b *books) distinct(node int, r *cluster.Request, most int) int {
	fits := make([]int, b.nodes[node].GPUs)
	for i := range fits {
		for then := b.clone(); then.pickOnly(node, i, r); fits[i]++ {
			then.take([]engine.Alloc{b.shareOn(node, i, r)})
		}
	}
	for t := most; t > 0; t-- {
		shares := 0
		for _, k := range fits {
			shares += min(k, t) // one for each task at most
		}
		if shares >= t*r.GPUs {
			return t
		}
	}
	return 0
}

// pickOnly reports whether a share fits on a device.
func (b *books) pickOnly(node, dev int, r *cluster.Request) bool {
	return b.pickGPU(node, r, ^(uint64(1)<<dev), false) == dev
}

func (b *books) shareOn(node, dev int, r *cluster.Request) engine.Alloc {
	a := engine.Alloc{Node: int32(node), GPUs: 1 << dev, Share: int32(r.Share), Mem: r.Memory,
		Tenant: 1 + int32(b.job.ID)}
	if b.mps {
		a.User = b.user
	}
	return a
}

// one binds one task of those that are not bound yet. Of shares of several GPUs it gets the first choice, in the order
// in which single ones would be chosen, that leaves room for the others of them that have it.
func (s *site) one(node, unbound int) []engine.Alloc {
	emptiest := s.d.placer == "worst-fit"
	t := 0
	if s.r.Profile == "" && s.r.GPUs > 1 {
		t = s.room(node, unbound)
	}
	if t < 2 {
		return s.b.one(node, s.set, s.r, emptiest)
	}
	var order []int // of devices
	for not := uint64(0); ; {
		i := s.b.pickGPU(node, s.r, not, emptiest)
		if i < 0 {
			break
		}
		order, not = append(order, i), not|1<<i
	}
	devs := s.firstChoice(node, order, s.r.GPUs, nil, t-1)
	for i := range s.b.nodes[node].GPUs {
		if !slices.Contains(devs, i) { // no other is to be chosen
			s.b.never |= 1 << i
		}
	}
	defer func() { s.b.never = 0 }()
	return s.b.one(node, s.set, s.r, emptiest)
}

// firstChoice is the first of the choices of so many devices more after which rest tasks fit.
func (s *site) firstChoice(node int, order []int, more int, chosen []int, rest int) []int {
	if more == 0 {
		then := s.b.clone()
		for _, i := range chosen {
			then.take([]engine.Alloc{s.b.shareOn(node, i, s.r)})
		}
		if then.distinct(node, s.r, rest) < rest {
			return nil
		}
		return chosen
	}
	for k, i := range order {
		if devs := s.firstChoice(node, order[k+1:], more-1, append(chosen[:len(chosen):len(chosen)], i),
			rest); devs != nil {
			return devs
		}
	}
	return nil
}
