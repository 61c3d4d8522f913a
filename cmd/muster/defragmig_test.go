//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// A 1g on the first memory slice keeps a 4g from its GPU. An operator sees it, and has it
// moved: it writes a checkpoint, the daemon dies while it does, and another goes on with
// it. The 4g starts where the 1g was, the 1g goes on from its checkpoint on another start, and the
// instance that another job uses all the while stays as it is.
func TestDefragMIG(t *testing.T) {
	t.Parallel()
	d := shares(t, "1xH100-80GB", "{mig: dynamic}")
	leave := filepath.Join(d.dir, "leave")
	script := `at=$MUSTER_CHECKPOINT_DIR/at
trap 'echo 41 > $at; echo asked; while [ ! -e ` + leave + ` ]; do sleep 0.2; done; exit 75' USR1
env; echo "pid $$ goes on at $(cat $at 2>/dev/null || echo 0)"; while :; do sleep 0.2; done`
	out := func(id int) string {
		b, _ := os.ReadFile(filepath.Join(d.dir, fmt.Sprintf("out%d", id)))
		return string(b)
	}
	says := func(id int, text string) {
		t.Helper()
		d.eventually(fmt.Sprintf("job %d says %q", id, text), func() bool {
			return strings.Contains(out(id), text+"\n")
		})
	}
	submit := func(id int, what string) {
		t.Helper()
		d.must("submit", "--gpus", what, "-o", filepath.Join(d.dir, fmt.Sprintf("out%d", id)), "--", "sh", "-c", script)
	}
	for id := 1; id <= 7; id++ { // they lie from the last start to the first
		submit(id, "1g.10gb")
		says(id, fmt.Sprintf("CUDA_VISIBLE_DEVICES=MIG-simulated-0-1g.10gb-%d", 7-id))
	}
	for _, id := range []int{1, 2, 4, 5, 6} {
		d.must("cancel", strconv.Itoa(id))
		_, _ = d.try("wait", strconv.Itoa(id))
	}
	submit(8, "4g.40gb")
	d.want(d.must("show", "8"), `"state": "pending"`)
	d.want(d.must("defrag", "8"), "job 8 sh (a 4g.40gb slice): moving would help", "job 7 sh (a 1g.10gb slice) from ",
		":0@0 to ", ":0@5: loses ",
		"it would start on ", "x 0.571 GPUs x 1 = ", "nothing was changed")
	d.want(d.must("why", "8"), "others could be moved", "job 7 (a 1g.10gb slice) from ")
	d.want(d.must("defrag", "--apply"), "job 8 sh (a 4g.40gb slice): moved")
	says(7, "asked")
	d.kill()
	d.start()
	d.want(d.must("show", "7"), `"state": "stopping"`)
	if text := d.must("nodes"); strings.Contains(text, "4g.40gb") {
		t.Errorf("no job has left yet, and there is a 4g:\n%s", text)
	}
	if err := os.WriteFile(leave, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	says(8, "CUDA_VISIBLE_DEVICES=MIG-simulated-0-4g.40gb-0")
	says(7, "CUDA_VISIBLE_DEVICES=MIG-simulated-0-1g.10gb-5")
	d.eventually("it goes on from its checkpoint", func() bool { return strings.Contains(out(7), " goes on at 41\n") })
	d.want(d.must("show", "3"), `"state": "running"`, `"uuid": "MIG-simulated-0-1g.10gb-4"`, `"preemptions": 0`)
	d.want(d.must("show", "7"), `"state": "running"`, `"uuid": "MIG-simulated-0-1g.10gb-5"`, `"preemptions": 1`)
	if text := out(3); strings.Count(text, " goes on at ") != 1 || strings.Contains(text, "asked") {
		t.Errorf("who was not in the way:\n%s", text)
	}
	for _, want := range []string{"4g.40gb@0: job 8", "1g.10gb@4: job 3", "1g.10gb@5: job 7"} {
		d.want(d.must("nodes"), want)
	}
	d.must("cancel", "3", "7", "8")
	d.replays()
}
