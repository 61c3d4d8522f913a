package policy

import (
	"cmp"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/sched"
)

var salus = Info{
	Name: "salus",
	About: "if GPUs do not suffice, jobs of the same size share them as long as what each needs between iterations " +
		"and, lane by lane, during one fits into the memory; the jobs of a lane take turns, iteration by iteration (in the simulator); no preemption",
	Source: "Salus (MLSys'20); the choice of GPUs is ours, the paper has one",
	Needs:  "how much GPU memory jobs need, and how much of it between iterations (else they share no GPUs)",
	Trials: []Trial{{Given: Memory | Short}},
	Knobs: []Knob{
		{"turns", "fifo", "which job of a lane runs its iterations next, in the simulator: fifo, srtf (least remaining time), fair (equal time)"},
	},
	New: newSalus,
}

type salusRules struct{ planner }

func newSalus(k *Knobs) sched.Policy {
	order, err := cluster.ParseLaneOrder(k.text("turns"))
	if err != nil {
		k.fail("turns=%w", err)
	}
	s := &salusRules{}
	s.planner = planner{name: k.label(), traits: sched.Traits{Backfill: sched.Skip, Lanes: order, Anywhere: true},
		plan: s.plan}
	return s
}

// Key is the priority: the plan covers only packing.
func (s *salusRules) Key(_ sched.View, j sched.JobView) sched.Key {
	return sched.Key{-j.Spec().Priority}
}

// Chooses implements sched.Chooser: a job that does not state its memory is not packed.
func (s *salusRules) Chooses(spec *cluster.Job) bool {
	_, stated := spec.Tasks[0].Request.Footprint()
	return stated
}

// bench is GPUs and the jobs on them, in order of arrival: all have the same number of GPUs and
// state their memory.
type bench struct {
	host      sched.JobView
	gpus      int
	memory    cluster.MiB
	footprint []cluster.Footprint
}

func (s *salusRules) plan(v sched.View, jobs []sched.JobView) sched.Plan {
	p := sched.Plan{Next: cluster.Never, Targets: v.Targets(len(jobs))}
	free, benches, starts := totalGPUs(v), []*bench(nil), false
	var line []int
	for i, j := range jobs {
		if !j.Running() {
			line = append(line, i)
		}
		if _, guest := j.Host(); guest || !j.Running() {
			continue
		}
		now, _, _ := j.Tasks()
		free -= j.GPUs(now)
		if b := s.bench(jobs, j); b != nil {
			benches = append(benches, b)
		}
	}
	inOrder(jobs, line)
	for _, i := range line {
		j := jobs[i]
		_, least, _ := j.Tasks()
		if g := j.GPUs(least); g <= free {
			free, starts = free-g, true
			continue
		}
		f, stated := j.Spec().Tasks[0].Request.Footprint()
		if !stated || !packs(j) {
			continue
		}
		if starts { // jobs that it could join are about to start
			p.Next = v.Now().Add(time.Second)
		}
		if b := roomiest(benches, j, f); b != nil {
			b.footprint = append(b.footprint, f)
			p.Targets[i].Beside = 1 + int32(b.host.Spec().ID)
		}
	}
	return p
}

// bench describes the GPUs of a job that is no guest; nil: no job may join it.
func (*salusRules) bench(jobs []sched.JobView, host sched.JobView) *bench {
	f, stated := host.Spec().Tasks[0].Request.Footprint()
	if !stated || !packs(host) {
		return nil
	}
	b := &bench{host: host, gpus: host.Spec().GPUs(), memory: host.DeviceMemory(), footprint: []cluster.Footprint{f}}
	for _, id := range host.Guests() {
		i := find(jobs, id)
		if i < 0 {
			return nil // it is leaving, and its memory may not be free yet
		}
		f, stated := jobs[i].Spec().Tasks[0].Request.Footprint()
		if !stated {
			return nil
		}
		b.footprint = append(b.footprint, f)
	}
	return b
}

// roomiest is the bench where the job's lane has the fewest other jobs, then the one with the
// fewest jobs; nil: it fits nowhere.
func roomiest(benches []*bench, j sched.JobView, f cluster.Footprint) (best *bench) {
	fewest := 0
	for _, b := range benches {
		if b.gpus != j.Spec().GPUs() || !j.Accepts(b.host.GPU()) {
			continue
		}
		lane, ok := cluster.Lanes(append(b.footprint[:len(b.footprint):len(b.footprint)], f), b.memory)
		if !ok {
			continue
		}
		mates := -1
		for _, l := range lane {
			if l == lane[len(lane)-1] {
				mates++
			}
		}
		if best == nil || cmp.Or(cmp.Compare(mates, fewest), cmp.Compare(len(b.footprint), len(best.footprint))) < 0 {
			best, fewest = b, mates
		}
	}
	return best
}
