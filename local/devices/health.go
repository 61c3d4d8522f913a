//go:build linux

package devices

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/local/gpu"
	"github.com/muster-gpu/muster/show"
)

// HealthEvery is how often GPUs are checked, at the least.
const HealthEvery = 2 * time.Second

// WatchHealth reports what is wrong with each GPU, until the context ends.
func (g *GPUs) WatchHealth(ctx context.Context, way cluster.MIGWay, report func(faults []string)) {
	places := g.places()
	for wait := time.Duration(0); ctx.Err() == nil; wait = HealthEvery {
		found := g.source.Health(ctx, wait)
		if ctx.Err() != nil {
			return
		}
		faults := make([]string, len(g.List))
		for i := range g.List {
			v := &g.List[i]
			switch {
			case v.Fault != "":
				faults[i] = v.Fault
			case way == cluster.StaticMIG && v.MIG && len(v.Instances) == 0:
				faults[i] = "it is in MIG mode and has no instance that Muster knows (nvidia-smi mig -lgi; make some, or nvidia-smi -mig 0, and start the daemon again)"
			default:
				faults[i] = found[places[i]]
			}
		}
		report(faults)
	}
}

// places maps the engine's devices to the source's; -1: there is none.
func (g *GPUs) places() (list []int) {
	devices := g.source.Devices()
	for i := range g.List {
		list = append(list, slices.IndexFunc(devices, func(d gpu.Device) bool { return d.UUID == g.List[i].UUID }))
	}
	return list
}

// SetFaults keeps what is wrong with each GPU. It returns those that are unhealthy.
func (g *GPUs) SetFaults(faults []string, log *slog.Logger) (bad uint64) {
	for i, f := range faults {
		if f != "" {
			bad |= 1 << i
		}
		if f != g.faults[i] {
			log.Warn("a GPU's health changed", "gpu", g.List[i].Index, "uuid", g.List[i].UUID, "fault", f)
		}
	}
	g.faults = faults
	return bad
}

// Healthy counts the GPUs with which nothing is wrong.
func (g *GPUs) Healthy() (n int) {
	for _, f := range g.faults {
		if f == "" {
			n++
		}
	}
	return n
}

// Failed says which of the GPUs of some devices failed.
func (g *GPUs) Failed(devices []show.Device) string {
	for i := range g.List {
		if f := g.faults[i]; f != "" &&
			slices.ContainsFunc(devices, func(d show.Device) bool { return d.GPU() == g.List[i].UUID }) {
			return fmt.Sprintf("GPU %d failed: %s", g.List[i].Index, f)
		}
	}
	return "a GPU failed"
}
