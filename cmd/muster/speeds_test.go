//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// scaler reports samples at a rate that depends on its tasks by an arithmetic expression, and
// ends when a file is there.
const scaler = `trap 'exit 0' USR1
[ "$MUSTER_RANK" = 0 ] || { while [ ! -e %[1]s ]; do sleep 0.2; done; exit 0; }
n=0; w=$MUSTER_WORLD_SIZE
while [ ! -e %[1]s ]; do
  sleep 0.1; n=$((n+1))
  echo "{\"step\": $n, \"samples_per_s\": $((%[2]s))}" >> "$MUSTER_PROGRESS"
done
echo '{"finished": true}' >> "$MUSTER_PROGRESS"`

// TestSpeedsMeasured: of two elastic jobs under pollux, of which nothing is known, the one that is
// no faster with more tasks gets one when its progress has told so at two sizes, and the
// other one gets the rest; what was measured survives a restart, and is written as a table
// that the simulator reads.
func TestSpeedsMeasured(t *testing.T) {
	t.Parallel()
	d, _ := configured(t, "4xH100-80GB", "policy: 'pollux:round=1s,restart=0s'\n")
	d.want(d.must("perf", "measured"), "nothing was measured so far")
	end := filepath.Join(d.dir, "end")
	submit := func(model, rate string) {
		d.must("submit", "-o", "/dev/null", "--model", model, "--gpus", "1", "--min-tasks", "1", "--max-tasks", "4",
			"--", "sh", "-c", fmt.Sprintf(scaler, end, rate))
	}
	submit("flat", "100")
	d.untilSays("with 4 tasks", "perf", "measured")
	for range 3 {
		submit("steep", "100*w")
	}
	d.untilSays(`"flat": {1: 1, `, "perf", "measured") // four jobs have one GPU each
	d.must("cancel", "3", "4")
	d.untilSays("1 GPU on", "why", "1")
	d.untilSays("3 GPUs on", "why", "2")
	d.kill()
	d.start()
	table := d.must("perf", "measured")
	d.want(table, `"flat": {1: 1, `, "100 samples/s in")
	file := filepath.Join(d.dir, "measured.yaml")
	if err := os.WriteFile(file, []byte(table), 0o600); err != nil {
		t.Fatal(err)
	}
	ok(t, "perf", "check", file)
	if err := os.WriteFile(end, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d.must("wait", "1", "2") // both completed
	d.replays()
}
