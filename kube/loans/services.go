package loans

import (
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

// Gang is a gang that the engine knows.
type Gang struct {
	Spec    *cluster.Job // as the engine has it
	Service string       // that lends, and of which it is a replica; "": none
}

// ServiceEvents tell the engine which inference services lend what they do not run, and which gangs are their replicas:
// those whose spec says something else get another one, which is told. What the next replica asks for is what the
// newest one does.
func ServiceEvents(lenders []cluster.Lender, gangs []Gang, told func(*cluster.Job)) (events []engine.Event) {
	lenders = slices.Clone(lenders)
	newest := map[string]*cluster.Job{}
	for _, g := range gangs {
		if last := newest[g.Service]; g.Service != "" && (last == nil || last.ID < g.Spec.ID) {
			newest[g.Service] = g.Spec
		}
		if g.Spec.Service == g.Service {
			continue
		}
		spec := *g.Spec
		spec.Service = g.Service
		told(&spec)
		events = append(events, engine.Event{Type: engine.Updated, Job: spec.ID, Spec: &spec})
	}
	for i := range lenders {
		if spec := newest[lenders[i].Service]; spec != nil {
			lenders[i].Replica = &cluster.Job{Tasks: spec.Tasks, Partitions: spec.Partitions}
		}
	}
	return append(events, engine.Event{Type: engine.LendersChanged, Lenders: lenders})
}
