//go:build linux

package devices

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/show"
)

// there is what can be had by what is found on the GPUs: the naive twin of cluster.Spec.Ways.
func there(spec *cluster.Spec, gpus []show.GPU) cluster.Ways {
	w := cluster.Ways{Sharing: spec.Sharing}
	w.Model, _ = spec.Model(spec.Nodes[0].Model)
	for i := range w.Model.Profiles {
		if p := &w.Model.Profiles[i]; spec.MIG == cluster.DynamicMIG ||
			spec.MIG == cluster.InstancesMIG && strings.Contains(spec.Nodes[0].MIG, cluster.AsNeeded) {
			w.Profiles = append(w.Profiles, p.Name)
		}
	}
	if spec.MIG != cluster.StaticMIG {
		return w
	}
	for _, g := range gpus {
		for _, in := range g.Instances {
			if !slices.Contains(w.Profiles, in.Profile) {
				w.Profiles = append(w.Profiles, in.Profile)
			}
		}
	}
	return w
}

// The simulator takes what a machine offers to shares from the description of the cluster:
// it has to be what the machine itself finds.
func TestWaysAsSimulated(t *testing.T) {
	cut := show.GPU{Model: "A100-80GB", MIG: true,
		Instances: []show.MIG{{Profile: "3g.40gb", Start: 0}, {Profile: "1g.10gb", Start: 4}}}
	for _, mig := range []cluster.MIGWay{cluster.StaticMIG, cluster.InstancesMIG, cluster.DynamicMIG} {
		for _, gpus := range [][]show.GPU{{{Model: "A100-80GB"}}, {{Model: "A100-80GB"}, cut},
			{{Model: "A100-80GB", MIG: true}}, {{Model: "T4-16GB"}}} {
			spec := &cluster.Spec{Sharing: cluster.MPS, MIG: mig,
				Nodes: []cluster.Node{{Model: gpus[0].Model, GPUs: len(gpus), MIG: New(gpus, nil).geometry(mig)}}}
			there, offered := there(spec, gpus), spec.Ways(nil)
			slices.Sort(there.Profiles)
			slices.Sort(offered.Profiles)
			if fmt.Sprint(there) != fmt.Sprint(offered) {
				t.Errorf("MIG way %d on %v: there are %v %v, offered are %v %v", mig, gpus, there.Sharing,
					there.Profiles, offered.Sharing, offered.Profiles)
			}
		}
	}
}
