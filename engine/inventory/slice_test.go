package inventory

import (
	"math/rand/v2"
	"testing"

	"github.com/muster-gpu/muster/cluster"
)

// mostOf is the most memory slices of the instances asked for that still fit on a GPU, by
// exhaustive search.
func mostOf(m *cluster.GPUModel, d Device, asked []*cluster.SliceProfile) int {
	if len(asked) == 0 {
		return 0
	}
	p, best := asked[0], mostOf(m, d, asked[1:])
	if int(d.compute)+p.Compute > m.Compute || p.Media() && d.media {
		return best
	}
	for _, s := range p.Starts {
		if d.slots&p.Mask(s) == 0 {
			best = max(best, p.Slots+
				mostOf(m, Device{slots: d.slots | p.Mask(s), compute: d.compute + uint8(p.Compute), media: d.media ||
					p.Media()}, asked[1:]))
		}
	}
	return best
}

// The start of a slice leaves room for what jobs in line ask for: on random GPUs more of that fits
// afterwards than with the least overall loss, and rarely less.
func TestStartServesLine(t *testing.T) {
	with, without, better, worse, differ := 0, 0, 0, 0, 0
	for seed := range uint64(40000) {
		r := rand.New(rand.NewPCG(seed, 12))
		m, _ := cluster.FindModel(pickOf(r, "H100-80GB", "A100-40GB", "A30-24GB"))
		d, weights := Device{}, make([]int64, len(m.Profiles))
		place := func(p *cluster.SliceProfile, s int) Device {
			return Device{slots: d.slots | p.Mask(s), compute: d.compute + uint8(p.Compute), media: d.media ||
				p.Media()}
		}
		for range r.IntN(4) {
			p := &m.Profiles[r.IntN(len(m.Profiles)-1)]
			if s := p.Starts[r.IntN(len(p.Starts))]; d.slots&p.Mask(s) == 0 && int(d.compute)+p.Compute <= m.Compute &&
				!(p.Media() && d.media) {
				d = place(p, s)
			}
		}
		var asked []*cluster.SliceProfile
		for range 1 + r.IntN(3) {
			k := r.IntN(len(m.Profiles))
			asked, weights[k] = append(asked, &m.Profiles[k]), weights[k]+int64(m.Profiles[k].Slots)
		}
		p := &m.Profiles[r.IntN(len(m.Profiles))]
		a, b := StartOf(&m, p, &d, weights), StartOf(&m, p, &d, nil)
		if a < 0 || a == b {
			continue
		}
		differ++
		x, y := mostOf(&m, place(p, a), asked), mostOf(&m, place(p, b), asked)
		with, without = with+x, without+y
		if x > y {
			better++
		} else if x < y {
			worse++
		}
	}
	t.Logf("%d starts are others: %d memory slices of the line fit, not %d; more %d times, less %d times", differ, with,
		without, better, worse)
	if differ < 200 || better < 10*worse || with <= without {
		t.Error("the line is not served")
	}
}

func pickOf[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }
