//go:build linux

package main

import (
	"strings"
	"testing"
)

// TestPlainJobsEndLive: programs that know nothing of checkpoints end under policies that let
// jobs take turns, however long they are: one that saves nothing keeps its GPUs, and
// everybody is told why.
func TestPlainJobsEndLive(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"themis:lease=2s", "astraea:lease=2s", "gandiva:round=1s,pack=false",
		"gavel:round=1s,reset=1s", "muri:round=1s,group=1"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			d, _ := configured(t, "1xH100-80GB",
				"policy: '"+policy+"'\nqueues: [{name: a}, {name: b}, {name: default}]\n")
			// longer than turns, and than the looks at it
			for _, work := range []string{"sleep 5; until [ -e seen ]; do sleep 0.2; done", "sleep 5; :"} {
				d.must("submit", "-o", "/dev/null", "--gpus", "1", "--", "sh", "-c", work)
			}
			d.untilSays("no process of it handles SIGUSR1", "show", "1")
			d.untilSays("it saves nothing when it is asked", "why", "1")
			d.write("seen", "")
			d.must("wait", "1", "2")
			for _, id := range []string{"1", "2"} {
				j := d.must("show", id)
				if !strings.Contains(j, `"state": "completed"`) ||
					!strings.Contains(j, `"preemptions": 0`) && !strings.Contains(j, `"preemptions": 1`) {
					t.Errorf("job %s did not end, or was stopped more often than it takes to learn about it: %s", id, j)
				}
			}
			d.replays()
		})
	}
}

// TestDiesOfTheSignal: a program that handles the signal and dies of it has saved nothing,
// and is left alone once that was seen.
func TestDiesOfTheSignal(t *testing.T) {
	t.Parallel()
	d, _ := configured(t, "1xH100-80GB", "policy: 'gandiva:round=2s,pack=false'\n")
	for _, until := range []string{"[ -e seen ]", "[ $n = 100 ]"} { // longer than a turn where starts are slow
		d.must("submit", "-o", "/dev/null", "--gpus", "1", "--", "sh", "-c",
			"trap 'trap - USR1; kill -USR1 $$' USR1; n=0; until "+until+"; do sleep 0.1; n=$((n+1)); done")
	}
	d.untilSays("SIGUSR1 ends it", "show", "1")
	d.write("seen", "")
	d.must("wait", "1", "2")
	for _, id := range []string{"1", "2"} {
		d.want(d.must("show", id), `"state": "completed"`, `"lost_gpu_hours"`)
	}
	d.replays()
}
