package engine

// The hash of all decisions so far (FNV-1a over 64-bit words): two runs that
// agree in it took the same decisions in the same order.

const fnvPrime = 1099511628211

func (e *Engine) mix(v uint64) {
	h := e.hash
	h ^= v & 0xffffffff
	h *= fnvPrime
	h ^= v >> 32
	h *= fnvPrime
	e.hash = h
}

func (e *Engine) mixAction(a *Action) {
	e.mix(uint64(a.Type)<<48 | uint64(a.How)<<40 | uint64(a.Reason)<<32 | uint64(uint32(a.Job)))
	e.mix(uint64(uint32(a.For)))
	for i := range a.Allocs {
		al := &a.Allocs[i]
		e.mix(uint64(uint32(al.Node))<<32 | uint64(uint32(al.Set))<<16 | uint64(uint32(al.Tasks)))
		e.mix(al.GPUs)
		guest := uint64(0)
		if al.Beside {
			guest = 1
		}
		e.mix(uint64(uint32(al.Share))<<32 | guest<<8 | uint64(al.Slots))
	}
	if a.Yield != 0 {
		e.mix(uint64(a.Yield))
	}
	for i := 0; i < len(a.Text); i++ {
		e.mix(uint64(a.Text[i]))
	}
	if t := a.Treatment; t != nil {
		e.mix(uint64(t.Class)<<32 | uint64(t.Spread))
		e.mix(uint64(t.Shift))
		e.mix(uint64(t.Period))
		for _, p := range t.Path {
			e.mix(uint64(p))
		}
	}
}
