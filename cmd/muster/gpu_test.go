//go:build linux

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// fault writes the file that makes simulated GPUs unwell.
func (d *daemon) fault(text string) {
	d.t.Helper()
	if err := os.WriteFile(filepath.Join(d.dir, "state", faultsFile), []byte(text), 0o600); err != nil {
		d.t.Fatal(err)
	}
}

// until waits until a command's output contains the text.
func (d *daemon) until(text string, args ...string) string {
	d.t.Helper()
	out := ""
	for range 400 {
		if out, _ = d.try(args...); strings.Contains(out, text) {
			return out
		}
		time.Sleep(25 * time.Millisecond)
	}
	d.t.Fatalf("%q does not come in\n%s", text, out)
	return ""
}

// A GPU that fails takes its job with it: the job waits again and starts on a
// GPU that is well. The bad one stays out, over a restart of the daemon too,
// until it is well.
func TestGPUFails(t *testing.T) {
	d := startDaemon(t, "2xH100-80GB")
	d.must("submit", "--gpus", "1", "--", "sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.05; done")
	d.until("running", "queue")
	d.fault("0 fell off the bus\n")
	d.until("unhealthy: simulated fault: fell off the bus", "nodes")
	d.until(`"restarts": 1`, "show", "1")
	d.until("GPU 1", "queue")
	if out, code := d.try("submit", "--gpus", "1", "--", "true"); code != 0 || !strings.Contains(out, "waiting") {
		t.Errorf("with one GPU bad and the other held, a job does not wait: %d\n%s", code, out)
	}
	d.kill()
	d.start()
	d.until("unhealthy: simulated fault: fell off the bus", "nodes")
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
