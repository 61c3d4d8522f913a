//go:build linux

package main

import (
	"testing"
)

// What jobs used is told by user and priced; what a simulated machine cannot
// know is said; a waiting job that was told when it would start is scored.
func TestUsageReports(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "1xH100-80GB")
	d.kill()
	d.args = []string{"--sample-every", "100ms", "--gpu-hour-cost", "2"}
	d.start()
	d.must("submit", "--gpus", "1", "--time", "1m", "--", "sh", "-c", "until [ -e go ]; do sleep 0.1; done")
	d.must("submit", "--gpus", "1", "--time", "1m", "--", "true")
	d.write("go", "")
	d.must("wait", "1", "2")
	d.want(d.must("usage"), "USER", "GPU-HOURS", "all", "note: utilisation was not measured: simulated GPUs have none")
	d.want(d.must("usage", "--by", "job", "--since", "1h", "--json"), `"gpu_hour_cost":2`, `"key":"sh"`, `"key":"true"`,
		`"cost":`)
	d.want(d.must("usage", "--predictions"),
		"1 waiting jobs were given an expected start; 1 of them have started", "half of them within")
	d.must("usage", "--waste")
	d.want(d.must("show", "1"), `"cpu_time"`)
	if out, code := d.try("usage", "--by", "colour"); code == 0 {
		t.Errorf("an unknown way to add up is accepted:\n%s", out)
	}
}

// A job that states no run time is expected to take as long as its like took
// before, also by a daemon that was started since; who waits for it is told
// between when and when.
func TestEstimates(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "1xH100-80GB")
	// the longest is longer than what the next job has run when it is asked how much longer it will
	for _, span := range []string{"0.1", "1", "12"} {
		d.must("run", "--gpus", "1", "--name", "eval", "--", "sleep", span)
	}
	d.kill()
	d.start()
	d.must("submit", "--gpus", "1", "--name", "eval", "--", "sleep", "60")
	out := d.must("submit", "--gpus", "1", "--", "true")
	d.want(out, "waiting, number 1 in the line, expected to start ", ", between ", " as earlier runs suggest")
	d.want(d.must("why", "5"), ", between ")
	d.want(d.must("why", "5", "--json"), `"earliest":`, `"latest":`)
	d.must("cancel", "4")
	d.must("wait", "5")
	d.want(d.must("usage", "--predictions"), "1 were given an interval")
}
