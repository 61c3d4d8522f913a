package engine

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// mostOf is the memory slices of instances that still fit on a GPU, of some that are asked for: the
// most by trying every one at every start, and without it.
func mostOf(m *cluster.GPUModel, d device, asked []*cluster.SliceProfile) int {
	if len(asked) == 0 {
		return 0
	}
	p, best := asked[0], mostOf(m, d, asked[1:])
	if int(d.compute)+p.Compute > m.Compute || p.Media() && d.media {
		return best
	}
	for _, s := range p.Starts {
		if d.slots&p.Mask(s) == 0 {
			best = max(best, p.Slots+mostOf(m, device{slots: d.slots | p.Mask(s), compute: d.compute + uint8(p.Compute), media: d.media || p.Media()}, asked[1:]))
		}
	}
	return best
}

// Where a slice begins leaves room for what others in line ask for: on random GPUs more of that
// fits afterwards than where it spoils least for anybody, and seldom less.
func TestStartServesLine(t *testing.T) {
	t.Parallel()
	with, without, better, worse, differ := 0, 0, 0, 0, 0
	for seed := range uint64(40000) {
		r := rand.New(rand.NewPCG(seed, 12))
		m, _ := cluster.FindModel(pickOf(r, "H100-80GB", "A100-40GB", "A30-24GB"))
		d, weights := device{}, make([]int64, len(m.Profiles))
		place := func(p *cluster.SliceProfile, s int) device {
			return device{slots: d.slots | p.Mask(s), compute: d.compute + uint8(p.Compute), media: d.media || p.Media()}
		}
		for range r.IntN(4) {
			p := &m.Profiles[r.IntN(len(m.Profiles)-1)]
			if s := p.Starts[r.IntN(len(p.Starts))]; d.slots&p.Mask(s) == 0 && int(d.compute)+p.Compute <= m.Compute && !(p.Media() && d.media) {
				d = place(p, s)
			}
		}
		var asked []*cluster.SliceProfile
		for range 1 + r.IntN(3) {
			k := r.IntN(len(m.Profiles))
			asked, weights[k] = append(asked, &m.Profiles[k]), weights[k]+int64(m.Profiles[k].Slots)
		}
		p := &m.Profiles[r.IntN(len(m.Profiles))]
		a, b := startOf(&m, p, &d, weights), startOf(&m, p, &d, nil)
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
	t.Logf("%d starts are others: %d memory slices of the line fit, not %d; more %d times, less %d times", differ, with, without, better, worse)
	if differ < 200 || better < 10*worse || with <= without {
		t.Error("the line is not served")
	}
}

func pickOf[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

// Beside a 2g on the first slices a 1g goes to slice 3, where it leaves room for a 3g; where two
// 2g come after it in line it goes to 6, and both fit.
func TestStartServesNext(t *testing.T) {
	for _, c := range []struct {
		first []string // one after the other
		line  []string // at once
		want  []uint8  // memory slices of those in line; 0: it waits
	}{
		{[]string{"2g", "2g", "2g"}, []string{"1g"}, []uint8{0b0000_1000}},
		{[]string{"2g", "2g", "2g"}, []string{"1g", "2g", "2g"}, []uint8{0b0100_0000, 0b0011_0000, 0b0000_1100}},
		{[]string{"2g", "2g", "2g"}, []string{"1g", "3g"}, []uint8{0b0000_1000, 0b1111_0000}},
	} {
		e, err := New(Config{Spec: cluster.Spec{Nodes: []cluster.Node{{Name: "n1", Model: "H100-80GB", GPUs: 1}}}, Policy: nobody{}, Placer: tightest{}})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		submit := func(profile string) Event {
			j := &cluster.Job{ID: cluster.JobID(n), Tier: cluster.Standard, Estimate: time.Hour, Tasks: []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: 1, Profile: profile}}}}
			n++
			return Event{Type: Submitted, Job: j.ID, Spec: j}
		}
		for _, p := range c.first {
			e.Step(Batch{Events: []Event{submit(p), {Type: Started, Job: cluster.JobID(n - 1)}}})
		}
		for id := range c.first { // the one at the first slices stays
			if e.jobs[id].allocs[0].Slots != 0b11 {
				e.Step(Batch{Now: 1, Events: []Event{{Type: Stopped, Job: cluster.JobID(id), Reason: Completed}}})
			}
		}
		var evs []Event
		for _, p := range c.line {
			evs = append(evs, submit(p))
		}
		e.Step(Batch{Now: 2, Events: evs})
		for i, want := range c.want {
			j := e.jobs[len(c.first)+i]
			if got := j.allocs; len(got) != 1 || got[0].Slots != want {
				t.Errorf("%v: the %s is on %+v, not on slices %08b", c.line, c.line[i], got, want)
			}
		}
	}
}
