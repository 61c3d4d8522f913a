//go:build linux

package main

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// reshare starts the daemon again with another way of sharing.
func (d *daemon) reshare(sharing string) {
	d.t.Helper()
	d.kill()
	d.configure(sharingRules(sharing))
	d.start()
}

// endMPS kills what plays MPS on GPUs when a test ends.
func (d *daemon) endMPS(gpus int) {
	d.t.Cleanup(func() {
		for gpu := range gpus {
			for _, name := range []string{"server", "nvidia-cuda-mps-control.pid"} {
				if pid := d.pidIn(gpu, name); pid > 0 {
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
			}
		}
	})
}

// Jobs that wait when the service starts without MPS get what keeps them apart without it;
// what runs keeps its limits until it comes back.
func TestChosenAgainWithoutMPS(t *testing.T) {
	t.Parallel()
	d := shares(t, "2xH100-80GB", "{shares: mps, mps_program: "+stand(t, "mps-control")+"}")
	d.endMPS(2)
	d.must("submit", "--gpus", "0.25", "--isolation", "memory", "--", stand(t, "mps-client"))
	d.must("submit", "--gpus", "1", "--", "sleep", "1000")
	d.untilSays(`"state": "running"`, "show", "1")
	d.untilSays(`"state": "running"`, "show", "2")
	env := filepath.Join(d.dir, "env")
	d.want(d.must("submit", "--hold", "--gpus", "0.25", "--isolation", "memory", "-o", env, "--", "sh", "-c",
		"env; exec sleep 1000"), "gets a share: enforced: memory by MPS")
	d.must("submit", "--hold", "--gpus", "0.1", "--", "sleep", "1000")
	d.reshare("{shares: time-slicing}")
	d.untilSays("gets a whole GPU, for isolation memory", "why", "3")
	d.untilSays("gets a share: declared only", "why", "4")
	d.want(d.must("history", "3"),
		"GPUs are shared otherwise since the service started: gets a whole GPU, for isolation memory")
	d.want(d.must("show", "1"), "enforced: memory by MPS", `"share": 250`)
	d.must("cancel", "2")
	d.must("release", "3")
	d.eventually("job 3 has a whole GPU", func() bool {
		return strings.Contains(d.read("env"), "CUDA_VISIBLE_DEVICES=GPU-simulated-1\n")
	})
	if text := d.must("show", "3"); strings.Contains(text, "by MPS") || strings.Contains(text, `"share": 250,`) &&
		!strings.Contains(text, "a whole GPU") {
		t.Error(text)
	}
	d.must("requeue", "1")
	d.untilSays("gets a whole GPU, for isolation memory", "why", "1")
	d.untilSays(`"restarts": 1`, "show", "1")
	d.must("cancel", "1", "3", "4")
}

// Jobs that wait for instances when the service starts and makes none get a whole GPU,
// or say that sharing.mig is in the way; when it makes them again, they have theirs.
func TestChosenAgainWithoutMIG(t *testing.T) {
	t.Parallel()
	d := shares(t, "1xH100-80GB", "{mig: dynamic}")
	d.must("submit", "--gpus", "1", "--", "sleep", "1000")
	d.want(d.must("submit", "--gpus", "0.25", "--isolation", "full", "-o", filepath.Join(d.dir, "env2"), "--", "sh",
		"-c", "env; exec sleep 1000"), "gets 2g.20gb")
	d.must("submit", "--gpus", "3g", "-o", filepath.Join(d.dir, "env3"), "--", "sh", "-c", "env; exec sleep 1000")
	d.reshare("{mig: static}")
	d.untilSays("gets a whole GPU, for isolation full", "why", "2")
	for range 2 { // it is said after another restart, too
		d.untilSays("no GPU has a 3g instance, and none is made: sharing.mig is static", "why", "3")
		d.want(d.must("show", "3"), "nothing now: no GPU has a 3g instance")
		d.want(d.must("queue"), "sharing.mig is static")
		d.reshare("{mig: static}")
	}
	d.must("cancel", "1")
	d.eventually("job 2 has a whole GPU", func() bool {
		return strings.Contains(d.read("env2"), "CUDA_VISIBLE_DEVICES=GPU-simulated-0\n")
	})
	d.reshare("{mig: dynamic}")
	d.untilSays("a MIG instance: enforced", "why", "3")
	if text := d.must("why", "3"); strings.Contains(text, "sharing.mig") {
		t.Error(text)
	}
	d.must("cancel", "2")
	d.eventually("job 3 has its instance", func() bool {
		return strings.Contains(d.read("env3"), "CUDA_VISIBLE_DEVICES=MIG-simulated-0-3g.40gb-")
	})
	d.must("cancel", "3")
}

// A job that gets a GPU whole, or an instance of it, after a share has left it, does not find a
// control daemon there.
func TestMPSGivesBack(t *testing.T) {
	t.Parallel()
	d := shares(t, "1xH100-80GB", "{shares: mps, mig: dynamic, mps_program: "+stand(t, "mps-control")+"}")
	d.endMPS(1)
	dir := filepath.Join(d.dir, "state", "mps", "GPU-simulated-0")
	for i, what := range []string{"1", "3g.40gb"} {
		share := []string{"1", "3"}[i]
		d.must("submit", "--gpus", "0.25", "--", stand(t, "mps-client"))
		d.eventually("a client has a server", func() bool { return d.pidIn(0, "server") > 0 })
		out := filepath.Join(d.dir, "out"+share)
		d.must("submit", "--gpus", what, "-o", out, "--", "sh", "-c", "[ -e "+dir+" ] && echo MPS || echo free")
		d.must("cancel", share)
		d.eventually("the next one has run", func() bool { return d.read("out"+share) != "" })
		if got := d.read("out" + share); got != "free\n" {
			t.Errorf("a job with %s finds %q", what, got)
		}
	}
}

// MPS takes so many clients on a GPU and no more: one share more waits, and says why.
func TestMPSClientsLive(t *testing.T) {
	t.Parallel()
	d := shares(t, "1xP100-16GB", "{shares: mps, mps_program: "+stand(t, "mps-control")+"}")
	d.endMPS(1)
	d.want(d.log.String(), "on P100-16GB, as on all GPUs before Volta, MPS enforces neither")
	d.must("submit", "--array", "1-17", "--gpus", "0.01", "--", "sleep", "1000")
	d.untilSays("no GPU has that left; but for 1 with as many shares as MPS takes clients, 16", "why", "17")
	d.want(d.must("why", "17"),
		"gets a share: declared only: MPS enforces neither memory nor compute on GPUs before Volta")
	d.untilSays(`"state": "running"`, "show", "16")
	d.must("cancel", "3")
	d.untilSays(`"state": "running"`, "show", "17")
	d.must("cancel", "1")
}
