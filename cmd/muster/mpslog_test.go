//go:build linux

package main

import (
	"os"
	"path/filepath"
	"testing"
)

// A server that ends right after its clients came is seldom seen: that it was there stands in the control daemon's
// log, and its clients' jobs start again. When it lives they go on.
func TestMPSServerBetweenLooks(t *testing.T) {
	t.Parallel()
	d := shares(t, "1xH100-80GB", "{shares: mps, mps_program: "+stand(t, "mps-control")+"}")
	d.endMPS(1)
	come := filepath.Join(d.dir, "come")
	script := "while [ ! -e " + come +
		" ]; do sleep 0.2; done; [ $MUSTER_RESTART_COUNT != 0 ] || export SERVER_LIVES=0.4; exec " +
		stand(t, "mps-client")
	for range 2 {
		d.must("submit", "-o", "/dev/null", "--gpus", "0.3", "--", "sh", "-c", script)
	}
	d.must("submit", "-o", "/dev/null", "--gpus", "0.3", "--", "sleep", "1000") // so that no job is ever alone there
	for _, id := range []string{"1", "2", "3"} {
		d.untilSays(`"state": "running"`, "show", id)
	}
	if err := os.WriteFile(come, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"1", "2"} {
		d.untilSays("the MPS server of GPU 0 failed; job", "history", id)
		d.untilSays(`"state": "running"`, "show", id)
	}
	d.want(d.must("show", "3"), `"state": "running"`, `"restarts": 0`)
	log := func() string { return d.read(filepath.Join("state", "mps", "GPU-simulated-0", "log", "control.log")) }
	// who waits for the server is its client's process, which may be ended before it has written how the server exited
	d.want(log(), "This control daemon is played", "] Starting new server ")
	d.must("cancel", "1", "2", "3")
}
