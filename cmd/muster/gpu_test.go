//go:build linux

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/local/devices"
)

// fault writes the file that makes simulated GPUs unwell.
func (d *daemon) fault(text string) {
	d.t.Helper()
	if err := os.WriteFile(filepath.Join(d.dir, "state", devices.FaultsFile), []byte(text), 0o600); err != nil {
		d.t.Fatal(err)
	}
}

// A GPU that fails takes its job with it: the job waits again and starts on a
// GPU that is well. The bad one stays out, over a restart of the daemon too,
// until it is well.
func TestGPUFails(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "2xH100-80GB")
	d.must("submit", "--gpus", "1", "--", "sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.2; done")
	d.untilSays("running", "queue")
	d.fault("0 fell off the bus\n")
	d.untilSays("unhealthy: simulated fault: fell off the bus", "nodes")
	d.untilSays(`"restarts": 1`, "show", "1")
	d.untilSays("running  ", "queue")
	d.want(d.must("queue"), "GPU 1")
	if out, code := d.try("submit", "--gpus", "1", "--", "true"); code != 0 || !strings.Contains(out, "waiting") {
		t.Errorf("with one GPU bad and the other held, a job does not wait: %d\n%s", code, out)
	}
	d.kill()
	d.start()
	d.untilSays("unhealthy: simulated fault: fell off the bus", "nodes")
	d.want(d.must("show", "2"), `"state": "pending"`)
	d.fault("")
	d.must("wait", "2")
	if out := d.must("nodes"); strings.Contains(out, "unhealthy") {
		t.Errorf("the GPU is well, but\n%s", out)
	}
	d.must("cancel", "1")
}

// Without a driver the daemon does not start, and offers to simulate.
func TestNoDriver(t *testing.T) {
	if _, err := os.Stat("/proc/driver/nvidia/version"); err == nil {
		t.Skip("this machine has an NVIDIA driver")
	}
	d := &daemon{t: t, bin: buildMuster(t), dir: t.TempDir()}
	out, code := d.try("serve", "--state", d.dir, "--socket", filepath.Join(d.dir, "s"))
	if code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	d.want(out, "no GPUs: ", "--gpus sim:8xH100-80GB")
}

// A job that takes more memory than it asked for fails, and is told why; what
// is not enforced on this machine is told at the start.
func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "1xH100-80GB")
	if strings.Contains(d.log.String(), "not enforced: memory") {
		t.Skip("NOT TESTED: memory is not enforced here")
	}
	_, code := d.try("run", "--mem", "64MiB", "--", "sh", "-c", "x=x; while :; do x=$x$x; done")
	if code != 137 {
		t.Errorf("exit code %d, not that of a killed process", code)
	}
	d.want(d.must("show", "1"), "out of memory: killed at its limit of 64 MiB", `"state": "failed"`)
	if out, code := d.try("run", "--mem", "64MiB", "--", "sh", "-c", "echo fine"); code != 0 {
		t.Errorf("a small job: exit code %d\n%s", code, out)
	}
}

// Suspending a job stops all of it, also what left its process group.
func TestSuspendAll(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "1xH100-80GB")
	if os.Getuid() != 0 {
		t.Skip("NOT TESTED: only root can make control groups")
	}
	file := filepath.Join(d.dir, "count")
	d.must("submit", "--gpus", "1", "--", "sh", "-c",
		"setsid sh -c 'while :; do echo x >> "+file+"; sleep 0.01; done' & wait")
	size := func() int64 {
		fi, err := os.Stat(file)
		if err != nil {
			return 0
		}
		return fi.Size()
	}
	d.untilSays(`"state": "running"`, "show", "1")
	d.eventually("it counts", func() bool { return size() > 0 })
	d.must("suspend", "1")
	d.eventually("it stands still", func() bool {
		last := size()
		time.Sleep(100 * time.Millisecond)
		return size() == last
	})
	before := size()
	d.must("resume", "1")
	d.eventually("it goes on after it was resumed", func() bool { return size() > before })
	d.must("suspend", "1")
	d.must("cancel", "1") // frozen processes die, too
	d.must("queue")
	if out, _ := d.try("wait", "1"); !strings.Contains(out, "cancelled") {
		t.Errorf("a suspended job that is cancelled: %s", out)
	}
}

// GPUs in MIG mode: a job gets an instance that there is and sees no more than
// that; it keeps it over a death of the daemon; a GPU in MIG mode is never handed
// out whole, and one that is not never in slices.
func TestInstances(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "2xA100-80GB/0:3g.40gb@4,1g.10gb@0")
	d.want(d.must("nodes"), "3g.40gb@4", "1g.10gb@0")
	until := "env | grep VISIBLE; trap 'exit 0' TERM; while [ ! -e go ]; do sleep 0.2; done"
	d.must("submit", "--gpus", "3g.40gb", "--", "sh", "-c", until)
	d.must("submit", "--gpus", "3g.40gb", "--", "sh", "-c", until)
	d.must("submit", "--gpus", "1", "--", "sh", "-c", until)
	d.untilSays("3g.40gb@4: job 1, 1g.10gb@0", "nodes")
	d.untilSays("CUDA_VISIBLE_DEVICES=MIG-simulated-0-3g.40gb-4", "logs", "1")
	d.want(d.must("logs", "1"), "NVIDIA_VISIBLE_DEVICES=MIG-simulated-0-3g.40gb-4")
	d.untilSays("CUDA_VISIBLE_DEVICES=GPU-simulated-1", "logs", "3")
	d.want(d.must("why", "2"), "3g.40gb", "job 1")
	if out, code := d.try("submit", "--gpus", "2", "--", "true"); code == 0 ||
		!strings.Contains(out, "even the empty cluster") {
		t.Errorf("two whole GPUs where one is in MIG mode: %d\n%s", code, out)
	}
	if out, code := d.try("submit", "--gpus", "2g.20gb", "--", "true"); code == 0 || !strings.Contains(out, "2g.20gb") {
		t.Errorf("an instance that there is not: %d\n%s", code, out)
	}
	d.kill()
	d.start()
	d.untilSays("3g.40gb@4: job 1", "nodes")
	d.want(d.must("show", "1"), `"profile": "3g.40gb"`, `"uuid": "MIG-simulated-0-3g.40gb-4"`,
		`"parent": "GPU-simulated-0"`)
	if err := os.WriteFile(filepath.Join(d.dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d.must("wait", "1", "2", "3")
	d.want(d.must("logs", "2"), "CUDA_VISIBLE_DEVICES=MIG-simulated-0-3g.40gb-4")
}
