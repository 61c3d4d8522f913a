package compat

import "math"

// Rooms is a rule of our own in the world of FGD's simulator: it preserves what still fits instead
// of avoiding fragments. FGD counts all free GPUs of a machine as usable by a kind of which one
// more pod fits, even if the cores do not suffice for a second, and a whole GPU as usable by pods
// of 0.81, although 0.19 of it will be left. To each kind with GPUs, a host is worth half of FGD's
// measure plus half of the GPUs that pods of the kind would use, as many as fit one after the
// other. The loss counts in steps of 60 milli-GPU: smaller differences are no reason to leave
// machines that are already in use.
func Rooms(t *Typical, h *Host, k *Kind) (score, device int) {
	if !h.known {
		h.fragments, h.known = t.worth(h), true
	}
	after := func(device int) int {
		next := *h
		next.take(k, device)
		return max(0, 16000+int(math.Floor((t.worth(&next)-h.fragments)/roomStep)))
	}
	return h.best(k, after)
}

// roomStep is in milli-GPU, as a mean over the kinds.
const roomStep = 60

// worth is the mean, over the typical kinds with GPUs, of what they could use of a host, in
// milli-GPU.
func (t *Typical) worth(h *Host) (sum float64) {
	var fit, usable [mostSizes]int64 // by size: pods of one GPU that fit; free on large enough devices
	for s, m := range t.sizes {
		for _, f := range h.Free[:h.GPUs] {
			if m > 0 && f >= m {
				fit[s] += f / m
				usable[s] += f
			}
		}
	}
	shares := 0.0
	for i := range t.Kinds {
		k := &t.Kinds[i]
		if k.GPUs == 0 {
			continue
		}
		shares += k.Share
		n := fit[k.size] / int64(k.GPUs)
		if n == 0 || h.CPU < k.CPU || h.Model&k.Models == 0 {
			continue
		}
		if k.CPU > 0 {
			n = min(n, h.CPU/k.CPU)
		}
		sum += float64(k.Share * float64(n*k.Milli*int64(k.GPUs)+usable[k.size]) / 2)
	}
	if shares == 0 {
		return 0
	}
	return sum / shares
}
