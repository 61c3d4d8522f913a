package compat

import (
	"math"

	"github.com/muster-gpu/muster/place"
)

// OpenbPolicy is a placement rule.
type OpenbPolicy struct {
	Name  string
	Score Scorer // nil: any host with room, and any device
}

// OpenbPolicies are the policies of the published table.
func OpenbPolicies() []OpenbPolicy {
	return []OpenbPolicy{{"Random", nil}, {"DotProd", dotProd}, {"GpuClustering", gpuClustering},
		{"GpuPacking", gpuPacking}, {"BestFit", bestFit}, {"FGD", FGD}}
}

// The expressions are evaluated in the upstream order: their rounding decides ties (section 6).

func bestFit(_ *Typical, h *Host, k *Kind) (score, device int) {
	u := float64(h.CPU-k.CPU) / 128000 * 0.5
	u += float64(float64(h.Total-k.Milli*int64(k.GPUs)) / 8000 * 0.5)
	return int((1.0 - u) * 100), h.fullest(k)
}

func dotProd(_ *Typical, h *Host, k *Kind) (score, device int) {
	d := float64(float64(h.CPU)/128000*(float64(k.CPU)/128000)) +
		float64(float64(h.Total)/8000*(float64(k.Milli*int64(k.GPUs))/8000))
	d /= 2
	return int(100 * (1 - d)), h.fullest(k)
}

func gpuPacking(_ *Typical, h *Host, k *Kind) (score, device int) {
	if k.GPUs == 0 {
		return 0, 0
	}
	free := h.Free
	return int(place.PackingScore(free[:h.GPUs], k.Milli, k.GPUs)), h.fullest(k)
}

func gpuClustering(_ *Typical, h *Host, k *Kind) (score, device int) {
	if k.GPUs == 0 {
		return 0, 0
	}
	size := k.GPUs
	if k.Milli < 1000 {
		size = 0
	}
	return int(place.ClusteringScore(h.Sizes, size, h.Total)), h.fullest(k)
}

// FGD is the steepest descent of the fragments, mapped to whole numbers by a sigmoid: the first
// device that reaches the maximum (Q8, Q11).
func FGD(t *Typical, h *Host, k *Kind) (score, device int) {
	if !h.known {
		h.fragments, h.known = t.Fragments(h), true
	}
	after := func(device int) int {
		next := *h
		next.take(k, device)
		return int(1 / (1 + math.Exp(-(h.fragments-t.Fragments(&next))/1000)) * 100)
	}
	return h.best(k, after)
}

// best is the first device with room on which a pod has the highest score; whole GPUs are taken in
// order.
func (h *Host) best(k *Kind, after func(device int) int) (score, device int) {
	if k.Milli == 0 || k.Milli == 1000 {
		return after(0), 0
	}
	score = -1
	for d := range h.GPUs {
		if h.Free[d] < k.Milli || seenBefore(h, d) {
			continue
		}
		if s := after(d); s > score {
			score, device = s, d
		}
	}
	return score, device
}

// seenBefore reports whether an earlier device has the same free capacity.
func seenBefore(h *Host, d int) bool {
	for i := range d {
		if h.Free[i] == h.Free[d] {
			return true
		}
	}
	return false
}

// Fragments is the free milli-GPU of a host that typical pods cannot use: the seven sums of section
// 7 except the second, each in the order of the table. For pods without GPUs all free capacity
// counts (Q9).
func (t *Typical) Fragments(h *Host) float64 {
	var small [mostSizes]int64 // by size: free capacity on devices that are too small for it
	var count [mostSizes]int   // ... number of devices that are large enough
	for s, m := range t.sizes {
		for _, f := range h.Free[:h.GPUs] {
			if f < m {
				small[s] += f
			} else {
				count[s]++
			}
		}
	}
	var a [7]float64
	total := float64(h.Total)
	for i := range t.Kinds {
		k := &t.Kinds[i]
		which, amount := 0, total
		switch cpu := h.CPU >= k.CPU; {
		case k.GPUs == 0 && cpu:
			which = 4
		case k.GPUs == 0:
			which = 5
		case h.Model&k.Models == 0:
			which = 6
		case count[k.size] >= k.GPUs && cpu:
			which, amount = 1, float64(small[k.size])
		case count[k.size] >= k.GPUs:
			which = 3
		case cpu:
			which = 1
		}
		a[which] += float64(k.Share * amount) // the conversion prevents a fused multiply-add
	}
	return a[0] + a[1] + a[3] + a[4] + a[5] + a[6]
}
