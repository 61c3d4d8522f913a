package sim

import (
	"context"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/shared"
	"github.com/muster-gpu/muster/place"
	"github.com/muster-gpu/muster/trace"
)

// BenchmarkPlacers replays the openb pods on the 1,213 nodes that they ran on,
// squeezed until the cluster is full, placer by placer.
func BenchmarkPlacers(b *testing.B) {
	dir := shared.Path(b, "traces/openb-v2023")
	wl := shared.Must(trace.Open(dir+"/openb_pod_list_default.csv",
		trace.Options{Nodes: dir + "/openb_node_list_gpu_node.csv"}))
	for i := range wl.Jobs {
		wl.Jobs[i].Job.Submit = cluster.Time(time.Duration(i) * time.Second)
		wl.Jobs[i].Run, wl.Jobs[i].End, wl.Jobs[i].Job.Tier = 10*time.Hour, 0, cluster.Standard
	}
	spec := &cluster.Spec{Nodes: wl.Nodes, Models: UnknownModels(wl.Nodes)}
	for _, p := range place.List() {
		b.Run(p.Name, func(b *testing.B) {
			for range b.N {
				o := Run(context.Background(), spec, Prepare(wl, spec, Estimates{}, PerGPU),
					Setup{Policy: "fifo", Placer: p.Name})
				if o.Err != nil {
					b.Fatal(o.Err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(len(wl.Jobs)), "us/job")
		})
	}
}
