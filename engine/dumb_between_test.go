package engine_test

import (
	"cmp"
	"math/rand/v2"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

// pairs is what is left of the speed of a job of one model in its share beside one of
// another, in ppm; one that is not there is not disturbed. Of everything else it knows what
// is known without it.
type pairs map[[2]string]int64

func (p pairs) Pair(model, beside string) int64 {
	return cmp.Or(p[[2]string{model, beside}], 1_000_000)
}

func (pairs) Speed(j *cluster.Job, _ string, tasks int) int64 {
	return 1_000_000 * int64(tasks) / int64(j.Tasks[0].Count)
}

func (pairs) Beside(_ *cluster.Job, _ string, others []*cluster.Job) int64 {
	return 1_000_000 / int64(1+len(others))
}

func (pairs) Slice(_ *cluster.Job, _, _ string, part int64) int64 { return part * 1000 }

// guessed takes pairs that were not measured to be as bad as the worst that was measured of
// the job's model.
type guessed struct{ pairs }

func (guessed) Estimates(measured map[[2]string]int64) func(model, beside string) (int64, bool) {
	worst := map[string]int64{}
	for k, v := range measured {
		if w, ok := worst[k[0]]; !ok || v < w {
			worst[k[0]] = v
		}
	}
	return func(model, _ string) (int64, bool) { v, ok := worst[model]; return v, ok }
}

// turning has processes take turns, some of which use all that they get.
type turning struct{ pairs }

func (turning) TakesTurns() bool { return true }

func (turning) Turns(model string, beside []string) (ppm int64, ok bool) {
	duty := int64(0)
	for _, m := range append([]string{model}, beside...) {
		d, ok := map[string]int64{"a": 300_000, "b": 1_000_000}[m]
		if !ok {
			return 0, false
		}
		duty += d
	}
	return min(1_000_000, 1_000_000*1_000_000/duty), true
}

// randomPairs are of three models, and the least speed of jobs that state none.
func randomPairs(seed uint64) (p pairs, least int64) {
	p = pairs{}
	r := rand.New(rand.NewPCG(seed, 0x62657477))
	for _, a := range []string{"a", "b", "c"} {
		for _, b := range []string{"a", "b", "c"} {
			p[[2]string{a, b}] = pick[int64](r, 0, 100_000, 300_000, 600_000, 900_000, 1_200_000)
		}
	}
	return p, pick[int64](r, 0, 0, 0, 500_000)
}

// disturbed: the job, or one that has a share of the device, would keep less of its
// speed than it asks for there; or the others would lose at least as much, together,
// as the job does. No job counts on company to be faster.
func (b *books) disturbed(node, dev int) bool {
	all := []*dumbJob{b.job}
	for _, a := range b.held[node] {
		if a.GPUs>>dev&1 == 1 && a.Tenant != 0 && !slices.Contains(all, b.d.jobs[a.Tenant-1]) {
			all = append(all, b.d.jobs[a.Tenant-1])
		}
	}
	if len(all) == 1 {
		return false
	}
	slices.SortFunc(all, func(x, y *dumbJob) int { return cmp.Compare(x.ID, y.ID) })
	gain := int64(0)
	for _, j := range all {
		speed := int64(1_000_000)
		for _, o := range all {
			if o != j {
				speed = speed * min(1_000_000, b.d.pairs.Pair(j.Model, o.Model)) / 1_000_000
			}
		}
		if speed < cmp.Or(j.MinSpeed, b.d.minSpeed) {
			return true
		}
		if gain += speed; j != b.job {
			gain += min(1_000_000, b.d.pairs.Pair(j.Model, b.job.Model)) - 1_000_000 - speed
		}
	}
	return gain <= 0
}

// randomModel says what a job computes, and how little of its speed it accepts.
func randomModel(j *cluster.Job) {
	r := rand.New(rand.NewPCG(uint64(j.ID), uint64(j.Submit)))
	j.Model, j.MinSpeed = pick(r, "a", "b", "c"), pick[int64](r, 0, 0, 0, 0, 400_000, 800_000)
}

// withSpeeds has jobs tell how fast they are, of which some are too slow.
func withSpeeds(seed uint64, list []stimulus, jobs int) (more []stimulus) {
	r := rand.New(rand.NewPCG(seed, 0x73706565))
	for _, s := range list {
		more = append(more, s)
		for jobs > 0 && chance(r, 60) {
			more = append(more, stimulus{s.at,
				engine.Event{Type: engine.Progress, Job: cluster.JobID(r.IntN(jobs)),
					Rate: pick[int64](r, 300_000, 600_000, 900_000)}})
		}
	}
	return more
}
