//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A job wants parts of three GPUs, of which two have them. Of the two jobs that have parts of the others one may
// be moved: it writes a checkpoint, leaves both of its GPUs and goes on from there on others, beside the one
// for which it left; the other one never notices.
func TestDefragWide(t *testing.T) {
	t.Parallel()
	d := shares(t, "4xH100-80GB", "{shares: time-slicing}")
	script := `env; at=$MUSTER_CHECKPOINT_DIR/at; echo "pid $$ goes on at $(cat $at 2>/dev/null || echo 0)";
trap 'echo 41 > $at; exit 75' USR1; while :; do sleep 0.2; done`
	submit := func(id int, args ...string) {
		t.Helper()
		d.must(append(append([]string{"submit", "-o", filepath.Join(d.dir, fmt.Sprintf("out%d", id))}, args...), "--",
			"sh", "-c", script)...)
	}
	says := func(id int, text string) {
		t.Helper()
		d.eventually(fmt.Sprintf("job %d says %q", id, text), func() bool {
			b, _ := os.ReadFile(filepath.Join(d.dir, fmt.Sprintf("out%d", id)))
			return strings.Contains(string(b), text+"\n")
		})
	}
	submit(1, "--gpus", "2", "--gpu-cores", "40%")
	says(1, "CUDA_VISIBLE_DEVICES=GPU-simulated-0,GPU-simulated-1")
	says(1, " goes on at 0")
	submit(2, "--gpus", "2", "--gpu-cores", "40%", "--no-requeue")
	says(2, "CUDA_VISIBLE_DEVICES=GPU-simulated-0,GPU-simulated-1")
	submit(3, "--gpus", "3", "--gpu-cores", "60%")
	d.want(d.must("show", "3"), `"state": "pending"`)
	d.want(d.must("defrag", "3"), "job 3 sh (3 times 0.6 of a GPU", "moving would help",
		"job 1 sh (2 times 0.4 of a GPU) from ", "it would start on ", "nothing was changed")
	d.want(d.must("why", "3"), "others could be moved", "job 1 (2 times 0.4 of a GPU) from ")
	d.want(d.must("defrag", "--apply"), "job 3 sh (3 times 0.6 of a GPU", "moved")
	says(3, "CUDA_VISIBLE_DEVICES=GPU-simulated-0,GPU-simulated-1,GPU-simulated-2")
	says(1, "CUDA_VISIBLE_DEVICES=GPU-simulated-2,GPU-simulated-3")
	says(1, " goes on at 41")
	d.want(d.untilSays(`"state": "running"`, "show", "1"), `"preemptions": 1`)
	d.want(d.must("show", "2"), `"state": "running"`, `"preemptions": 0`)
	d.must("cancel", "1", "2", "3")
	d.replays()
}
