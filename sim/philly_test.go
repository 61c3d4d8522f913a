package sim

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/report"
	"github.com/muster-gpu/muster/trace"
)

const philly = "../../shared/traces/philly/philly_pollux.csv"

func TestPhillySmoke(t *testing.T) {
	if _, err := os.Stat(philly); err != nil {
		t.Skip("SKIP-SHARED: " + philly)
	}
	wl, err := trace.Open(philly, trace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, shape := range []string{"60x8xV100-32GB", "48x8xV100-32GB"} {
		for _, pol := range []string{"fifo", "sjf", "las", "srtf"} {
			spec, _ := cluster.ParseShort(shape)
			entries := Prepare(wl, spec, Estimates{}, PerNode)
			t0 := time.Now()
			o := Run(context.Background(), spec, entries, Setup{Policy: pol, Placer: "best-fit"})
			if o.Err != nil {
				t.Fatal(o.Err)
			}
			var sum float64
			n, pre, rej := 0, 0, 0
			for _, r := range o.Run.Records {
				if r.Outcome == report.Completed {
					sum += r.End.Sub(r.Submit).Seconds()
					n++
				}
				if r.Outcome == report.Rejected {
					rej++
				}
				pre += int(r.Preemptions)
			}
			fmt.Printf("%s %s: n=%d rej=%d meanJCT=%.0f preempt=%d wall=%v %+v hash=%x\n", shape, pol, n, rej, sum/float64(n), pre, time.Since(t0), o.Stats, o.Hash)
		}
	}
}
