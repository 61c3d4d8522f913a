package results

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-gpu/muster/experiments/compat"
	"github.com/muster-gpu/muster/internal/shared"
	"github.com/muster-gpu/muster/trace"
)

// BenchmarkPublished plays single runs of published experiments for which the time of the published
// simulators is known: the same input, and the same decisions. Reading the trace counts; reading
// profiles, once for many runs, does not for Pollux.
func BenchmarkPublished(b *testing.B) {
	ctx := context.Background()
	dir := filepath.Dir(filepath.Dir(shared.Path(b, "traces/muri/trace3.csv")))
	apps, err := compat.ReadPolluxApps(filepath.Join(dir, "pollux"))
	if err != nil {
		b.Fatal(err)
	}
	run := func(name string, play func() error) {
		b.Run(name, func(b *testing.B) {
			from := shared.ProcessorTime(b)
			for range b.N {
				if err := play(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric((shared.ProcessorTime(b)-from).Seconds()*1000/float64(b.N), "cpu-ms")
		})
	}
	for _, name := range []string{"trace3", "trace4"} {
		for i := range muriPolicies {
			p := &muriPolicies[i]
			if name == "trace4" && p.slow || p.reason != "" {
				continue
			}
			run("muri/"+name+"/"+p.theirs+"/"+p.ours, func() error {
				pol, _, _ := strings.Cut(p.ours, ", ")
				wl, err := trace.Open(filepath.Join(dir, "muri", name+".csv"), trace.Options{})
				if err == nil {
					_, err = compat.Run(ctx, p.world(), wl.Jobs, 64, pol)
				}
				return err
			})
		}
	}
	for _, theirs := range []string{"tiresias", "optimus", "pollux"} {
		run("pollux/workload-1/"+theirs, func() error {
			_, err := compat.RunPollux(ctx, apps, filepath.Join(dir, "pollux", "workloads", "workload-1.csv"), theirs)
			return err
		})
	}
	// What no replay can go below: reading what is replayed.
	for _, name := range []string{"trace3", "trace4"} {
		run("reading/muri/"+name, func() error {
			_, err := trace.Open(filepath.Join(dir, "muri", name+".csv"), trace.Options{})
			return err
		})
	}
	run("reading/pollux/workload-1", func() error {
		_, err := compat.NewPolluxWorld(apps, filepath.Join(dir, "pollux", "workloads", "workload-1.csv"), "tiresias")
		return err
	})
	for _, name := range []string{"cluster01", "cluster03"} {
		itp := filepath.Join(dir, "elasticflow-itp")
		run("reading/elasticflow/"+name, func() error {
			_, err := compat.NewFlowWorld(
				compat.Flow{World: "edf", Trace: filepath.Join(itp, "deadline", name+".csv"),
					Profiles: filepath.Join(itp, "profiles", "throughputs_A100"), Nodes: 64})
			return err
		})
	}
	for _, name := range []string{"cluster01", "cluster03"} {
		row := slotRow{x: compat.Flow{World: "edf"}}
		run("elasticflow/"+name+"/EDF", func() error {
			_, err := row.replay(ctx, filepath.Join(dir, "elasticflow-itp"), slotCell{cluster: name})
			return err
		})
	}
}
