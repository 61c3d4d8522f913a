//go:build linux

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/muster-gpu/muster/api"
)

// TestFreeBeforeLeaving: while a cancelled job still holds three of eight GPUs, a job of one
// GPU runs on another at once; a job that needs those three waits for them, and says so.
func TestFreeBeforeLeaving(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "8xH100-80GB")
	gone := filepath.Join(d.dir, "gone")
	d.must("submit", "-o", "/dev/null", "--name", "slow", "--gpus", "3", "--", "sh", "-c",
		`trap 'while [ ! -e "`+gone+`" ]; do sleep 0.1; done; exit' TERM; echo > ready; while :; do sleep 0.1; done`)
	d.untilJob("1", "runs, with its trap set", func(j *api.Job) bool {
		_, err := os.Stat(filepath.Join(d.dir, "ready"))
		return j.State == api.StateRunning && err == nil
	})
	held := map[int]bool{} // looked up only
	for _, dev := range d.job("1").Devices {
		held[dev.Index] = true
	}
	d.must("cancel", "1")
	d.must("submit", "-o", "/dev/null", "--gpus", "1", "--", "sleep", "1000")
	j := d.untilJob("2", "runs while another job stops", func(j *api.Job) bool { return j.State == api.StateRunning })
	if len(j.Devices) != 1 || held[j.Devices[0].Index] {
		t.Errorf("job 2 runs on %v; job 1 still holds %v", j.Devices, held)
	}
	if end := d.job("1").Ended; end != nil {
		t.Errorf("job 1 ended at %v: it should have been stopping until now", end)
	}
	d.must("submit", "-o", "/dev/null", "--gpus", "5", "--", "sleep", "1000")
	d.untilSays("waits for job 1 slow to leave GPU", "queue", "--json")
	if err := os.WriteFile(gone, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d.untilJob("3", "runs when the other has left", func(j *api.Job) bool { return j.State == api.StateRunning })
	d.replays()
}

// TestHoldAfter: jobs that say nothing of how long they run pass a larger one for as long as the
// configuration says; then GPUs are held for it, which is said to it and to those behind it.
func TestHoldAfter(t *testing.T) {
	t.Parallel()
	d, _ := configured(t, "2xH100-80GB", "policy: fifo\nbackfill: easy\nhold_after: 1ms\n")
	d.must("submit", "-o", "/dev/null", "--gpus", "1", "--", "sh", "-c", "while [ ! -e gone ]; do sleep 0.1; done")
	d.untilSays(`"state": "running"`, "show", "1")
	d.must("submit", "-o", "/dev/null", "--gpus", "2", "--name", "wide", "--", "sleep", "1000")
	d.must("submit", "-o", "/dev/null", "--gpus", "1", "--", "sleep", "1000")
	d.untilSays("GPUs are being held for it since", "why", "2")
	d.untilSays("GPUs are being held for job 2", "why", "3")
	d.write("gone", "")
	d.untilSays(`"state": "running"`, "show", "2")
	d.replays()
}
