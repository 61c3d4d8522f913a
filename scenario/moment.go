package scenario

import (
	"context"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/sim"
)

// Moment is the placement of the jobs in one variant of a run just before the first of them ends: a
// world that has the same jobs in the same order must decide the same, however long it takes.
type Moment struct {
	Line                     int    // of the run
	Label                    string // of the variant
	Policy, Placer, Backfill string
	Plain                    bool // nothing happens but submissions, and the run changes no other rule
	Spec                     cluster.Spec
	Jobs                     []Placed // submitted until then, in order
}

// Placed is a job with the number of its tasks on each node; none: it waits.
type Placed struct {
	Job cluster.Job
	On  map[string]int
}

// Moments replays a scenario and returns the moment of each variant.
func Moments(ctx context.Context, name string, text []byte) (list []Moment, err error) {
	f, err := parse(name, text)
	if err != nil {
		return nil, err
	}
	var res Result
	all, err := f.play(ctx, &res)
	if err != nil {
		return nil, err
	}
	for i := range f.cmds {
		for _, p := range all[f.cmds[i].run] {
			list = append(list, p.moment(f.cmds[i].run))
		}
	}
	return list, nil
}

func (p *played) moment(r *runCmd) Moment {
	m := Moment{Line: r.line, Label: p.label, Policy: p.policy, Placer: p.place, Backfill: p.backfill, Spec: r.set.spec,
		Plain: len(r.set.events) == 0 && r.set.spec.Network == nil && r.minRuntime == 0 && r.starvation == 0 &&
			r.holdAfter == engine.DefaultHoldAfter && r.startup == 0 && r.preempt == "" && r.defrag == nil &&
			r.depth == 0 && r.reserve == 0 && r.est == (sim.Estimates{})}
	wl, _ := r.set.workload()
	first := cluster.Never
	for id := range wl.Jobs {
		if rec := &p.run.Records[id]; rec.FirstStart != cluster.Never {
			first = min(first, rec.End)
		}
	}
	for id := range wl.Jobs {
		job := wl.Jobs[id].Job
		if job.Submit >= first {
			continue
		}
		on := map[string]int{}
		for _, s := range p.stories[id].stays {
			if s.from < first && s.to >= first {
				for _, a := range s.allocs {
					on[m.Spec.Nodes[a.Node].Name] += int(a.Tasks)
				}
			}
		}
		m.Jobs = append(m.Jobs, Placed{job, on})
	}
	return m
}
