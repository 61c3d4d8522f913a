//go:build linux

package main

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/perf"
)

// A job that reports its loss, and how it will have converged, is expected to end when the curve
// says so; what makes no sense is refused when it is submitted.
func TestConverge(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "1xH100-80GB")
	if out, code := d.try("submit", "--converge", "loss:2", "--", "true"); code == 0 ||
		!strings.Contains(out, "converge") || !strings.Contains(out, "such as loss:0.01:3") {
		t.Errorf("exit code %d: %s", code, out)
	}
	curve, c := perf.LossCurve{B0: 0.05, B1: 0.5, B2: 0.2}, perf.Convergence{Metric: "loss", Below: 0.002, Times: 3}
	d.write("train.sh", `i=1
while [ $i -lt 1000 ]; do
  echo "{\"step\": $i, \"metric\": {\"loss\": $(awk "BEGIN {print 1/(0.05*$i+0.5)+0.2}")}}" >> "$MUSTER_PROGRESS"
  i=$((i+1)); sleep 0.2
done
`)
	d.must("submit", "--converge", "loss:0.002:3", "-o", "/dev/null", "--", "sh", "train.sh")
	var j api.Job
	d.eventually("its end is predicted", func() bool {
		if err := json.Unmarshal([]byte(d.must("show", "1")), &j); err != nil {
			t.Fatal(err)
		}
		return j.Progress != nil && j.Progress.Predicted && j.Progress.Step > 15 && j.ExpectedEnd != nil &&
			j.EndBy == api.EndByProgress
	})
	if want := c.End(curve, 1); math.Abs(j.Progress.Steps-want) > 0.1*want {
		t.Errorf("it is predicted to end at step %v, the curve converges at %v", j.Progress.Steps, want)
	}
	d.want(d.must("why", "1"), "by its progress", "as its metric foretells")
	d.must("cancel", "1")
}
