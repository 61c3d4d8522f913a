package kube

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/controlplane"
)

// An hour of a GPU model counts for what the configuration says, also where the engine
// begins again.
func TestWeight(t *testing.T) {
	d, now := still(t, 1)
	d.opt.Rules.Spec.Models = []cluster.GPUModel{{Name: "H100-80GB", Weight: 250}}
	for _, why := range []string{"weights", "again"} {
		d.stale = why
		d.come(t, now, controlplane.Pod("p-"+why, 4, nil))
		d.answer(t, now)
	}
	*now = now.Add(time.Hour)
	steps(t, d)
	for _, name := range []string{"p-weights", "p-again"} {
		if g := d.pods[types.UID(name)].Gang; d.eng.Record(g.Job).Weight != 250 {
			t.Errorf("%s: an hour of its GPUs counts for %d thousandths", name, d.eng.Record(g.Job).Weight)
		}
	}
	if m, ok := d.cfg.Spec.Model("H100-80GB"); !ok || m.Weight != 250 || m.MemSlots == 0 {
		t.Errorf("the model is %+v", m)
	}
}
