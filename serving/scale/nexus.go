package scale

import (
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/knobs"
	"github.com/muster-gpu/muster/serving/nexus"
)

var nexusKind = kind{knobs.Kind{Name: "nexus",
	About: "Nexus: all services together on GPUs, whole ones where a service saturates them, else by squishy bin packing",
	Knobs: planKnobs("30s", "0.4")},
	func(k *knobs.Set) (Policy, error) { return newPlanner("nexus", "nexus", k, &nexusSizer{}) }}

// nexusSizer follows Nexus (Shen et al., SOSP 2019): a service gets the GPUs that it saturates, and what is left of
// all is packed into duty cycles. In Nexus, services take turns on a whole GPU; here each has a replica with the part
// of the GPU that its turn is of the cycle, and as much more as it needs to keep its goal there, because on a part a
// batch takes longer. Plans take more of the GPUs than Nexus' own for that reason.
type nexusSizer struct{}

func (*nexusSizer) sizes(list []demand, m *cluster.GPUModel) (shares [][]cluster.Milli, gpus int, err error) {
	sessions := make([]nexus.Session, len(list))
	for i := range list {
		d := &list[i]
		sessions[i] = nexus.Session{Name: d.service.Name, Rate: d.rate, Goal: d.service.Goal.Latency,
			Takes: nexus.CurveOf(d.profile)}
	}
	plan, err := nexus.Make(sessions, 0)
	if err != nil {
		return nil, 0, err
	}
	shares = make([][]cluster.Milli, len(list))
	sum := cluster.Milli(0)
	for i := range plan.GPUs {
		g := &plan.GPUs[i]
		for _, turn := range g.Turns {
			share := list[turn.Session].enough(float64(turn.Takes)/float64(g.Duty), turn.Rate)
			shares[turn.Session] = append(shares[turn.Session], share)
			sum += share
		}
	}
	return shares, max(len(plan.GPUs), int((sum+cluster.Whole-1)/cluster.Whole)), nil
}
