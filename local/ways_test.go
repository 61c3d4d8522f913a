//go:build linux

package local

import (
	"fmt"
	"slices"
	"testing"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/cluster"
)

// The simulator takes what a machine offers to shares from the description of the cluster:
// it has to be what the machine itself finds.
func TestWaysAsSimulated(t *testing.T) {
	cut := api.GPU{Model: "A100-80GB", MIG: true, Instances: []api.MIG{{Profile: "3g.40gb", Start: 0}, {Profile: "1g.10gb", Start: 4}}}
	for _, mig := range []MIG{StaticMIG, InstancesMIG, DynamicMIG} {
		for _, gpus := range [][]api.GPU{{{Model: "A100-80GB"}}, {{Model: "A100-80GB"}, cut}, {{Model: "A100-80GB", MIG: true}}, {{Model: "T4-16GB"}}} {
			m := &Machine{opt: Options{GPUs: gpus, Sharing: Sharing{MIG: mig}}}
			m.opt.Rules.Spec = cluster.Spec{Sharing: cluster.MPS, Nodes: []cluster.Node{{Model: gpus[0].Model, GPUs: len(gpus), MIG: m.opt.Sharing.geometry(gpus)}}}
			live, simulated := m.ways(), m.opt.Rules.Spec.Ways(nil)
			slices.Sort(live.Profiles)
			slices.Sort(simulated.Profiles)
			if fmt.Sprint(live) != fmt.Sprint(simulated) {
				t.Errorf("MIG way %d on %v: the machine offers %v %v, the simulator %v %v", mig, gpus, live.Sharing, live.Profiles, simulated.Sharing, simulated.Profiles)
			}
		}
	}
}
