//go:build linux

package main

import (
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// smallDisk mounts a disk of so many MiB where the daemon's state is.
func smallDisk(t *testing.T, d *daemon, size string) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("SKIPPED: A FULL OR READ-ONLY DISK IS TRIED BY ROOT ONLY (it mounts a tmpfs)")
	}
	state := filepath.Join(d.dir, "state")
	if err := os.MkdirAll(state, 0o711); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", state, "tmpfs", 0, "size="+size); err != nil {
		t.Skip("SKIPPED: no tmpfs can be mounted here: ", err)
	}
	t.Cleanup(func() {
		d.kill()
		killAbout(d.dir)
		_ = unix.Unmount(state, unix.MNT_DETACH)
	})
	return state
}

// serves has another daemon begin, and returns what it says until it ends.
func (d *daemon) serves(state, socket string) (string, error) {
	out, err := patient(d.bin, "serve", "--gpus", "sim:"+d.simulated, "--state", state, "--socket",
		socket).CombinedOutput()
	return string(out), err
}

// ready asks the daemon whether it is ready.
func (d *daemon) ready() int {
	c := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var dial net.Dialer
		return dial.DialContext(ctx, "unix", d.socket)
	}}, Timeout: 5 * time.Second}
	resp, err := c.Get("http://muster/readyz")
	if err != nil {
		d.t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

// On a full disk nothing new is accepted, and said so at once; jobs go on, and
// their ends are not lost.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	d := prepareDaemon(t, "2xH100-80GB")
	state := smallDisk(t, d, "8m")
	d.start()
	d.must("submit", "--gpus", "1", "-o", "/dev/null", "--", "sh", "-c",
		"echo $$ > "+d.dir+"/pid; until [ -e "+d.dir+"/end ]; do sleep 0.2; done; exit 5")
	runs := d.running(filepath.Join(d.dir, "pid"))
	d.untilSays(`"state": "running"`, "show", "1")
	fill, err := os.Create(filepath.Join(state, "fill"))
	if err != nil {
		t.Fatal(err)
	}
	for buf := make([]byte, 4096); err == nil; {
		_, err = fill.Write(buf)
	}
	defer fill.Close()
	refused := ""
	for range 200 {
		out, code := d.try("submit", "--gpus", "1", "-o", "/dev/null", "--", "true")
		if code != 0 {
			refused = out
			break
		}
	}
	if refused == "" {
		t.Fatal("200 jobs were accepted on a full disk")
	}
	d.want(refused, "the state cannot be written")
	begin := time.Now()
	if out, code := d.try("queue"); code == 0 || time.Since(begin) > 50*time.Second {
		t.Errorf("after %v a listing answers %d: %s", time.Since(begin), code, out)
	}
	if code := d.ready(); code != http.StatusServiceUnavailable {
		t.Errorf("/readyz answers %d", code)
	}
	d.write("end", "")
	d.eventually("the job ends meanwhile", func() bool { return !runs() })
	if err := os.Remove(fill.Name()); err != nil {
		t.Fatal(err)
	}
	if err := fill.Truncate(0); err != nil {
		t.Fatal(err)
	}
	if !until(func() bool { return d.ready() == http.StatusOK }) {
		t.Fatal("there is room again, and the daemon does not go on")
	}
	if out, code := d.try("wait", "1"); code != 5 {
		t.Errorf("the job that ended meanwhile: exit code %d, not 5: %s", code, out)
	}
	d.must("run", "--gpus", "1", "--", "true")
}

// A state that becomes read-only is like a full disk; one that is so from the
// beginning is refused.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	d := prepareDaemon(t, "2xH100-80GB")
	state := smallDisk(t, d, "8m")
	d.start()
	d.must("run", "--gpus", "1", "--", "true")
	d.kill()
	if err := unix.Mount("", state, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	out, err := d.serves(state, d.socket)
	if err == nil || !strings.Contains(out, state) || !strings.Contains(out, "read-only") {
		t.Errorf("on a read-only state: %v\n%s", err, out)
	}
	if err := unix.Mount("", state, "", unix.MS_REMOUNT, ""); err != nil {
		t.Fatal(err)
	}
	d.start()
	d.want(d.must("show", "1"), `"state": "completed"`)
}

// Output that fills the disk of the state costs output, not the state.
func TestLogFillsDisk(t *testing.T) {
	t.Parallel()
	d := prepareDaemon(t, "2xH100-80GB")
	state := smallDisk(t, d, "16m")
	d.start()
	if _, code := d.try("run", "--gpus", "1", "--", "sh", "-c", "yes | head -c 40000000; exit 4"); code != 4 {
		t.Errorf("the job that writes too much: exit code %d, not its 4", code)
	}
	var fs unix.Statfs_t
	// the store has written since: 64 blocks are a quarter of a MiB
	if err := unix.Statfs(state, &fs); err != nil || fs.Bavail+64 < fs.Blocks/10 {
		t.Errorf("%d of %d blocks are free: %v", fs.Bavail, fs.Blocks, err)
	}
	d.must("run", "--gpus", "1", "--", "true")
}

// A second daemon on a state is refused, and the first goes on.
func TestTwoDaemons(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "2xH100-80GB")
	state := filepath.Join(d.dir, "state")
	out, err := d.serves(state, d.socket+"2")
	if err == nil || !strings.Contains(out, state+": another daemon runs on this state") {
		t.Errorf("a second daemon: %v\n%s", err, out)
	}
	out, err = d.serves(state+"2", d.socket)
	if err == nil || !strings.Contains(out, "a daemon answers there already") {
		t.Errorf("a second daemon on the socket: %v\n%s", err, out)
	}
	d.must("run", "--gpus", "1", "--", "true")
}

// A state that is damaged is refused, with what to do about it; nothing is
// overwritten.
func TestDamagedState(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "2xH100-80GB")
	for range 30 {
		d.must("submit", "--gpus", "1", "-o", "/dev/null", "--", "true")
	}
	d.must("wait", "30")
	d.kill()
	db := filepath.Join(d.dir, "state", "muster.db")
	if out, err := exec.Command(d.bin, "serve", "--gpus", "sim:2xH100-80GB", "--state", filepath.Join(d.dir, "state"),
		"--policy", "none").CombinedOutput(); err == nil {
		t.Errorf("an unknown policy: %s", out)
	}
	d.start() // the write-ahead log goes into the file
	d.must("nodes")
	_ = d.cmd.Process.Signal(os.Interrupt)
	_ = d.cmd.Wait()
	text, err := os.ReadFile(db)
	if err != nil {
		t.Fatal(err)
	}
	for i := 3 * 4096; i < len(text); i += 97 {
		text[i] ^= 0x55
	}
	if err := os.WriteFile(db, text, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := d.serves(filepath.Join(d.dir, "state"), d.socket)
	if err == nil || !strings.Contains(out, db) || !strings.Contains(out, "damaged") {
		t.Errorf("on a damaged state: %v\n%s", err, out)
	}
	if now, err := os.ReadFile(db); err != nil || string(now) != string(text) {
		t.Errorf("the damaged file was changed (%v)", err)
	}
}

// A time limit that strikes while no daemon runs is kept by the next one.
func TestLimitWhileDown(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "2xH100-80GB")
	d.must("submit", "--gpus", "1", "--time", "1h", "-o", "/dev/null", "--", "sleep", "1000")
	d.untilSays(`"state": "running"`, "show", "1")
	const limit = 3 * time.Second
	d.must("submit", "--gpus", "1", "--time", limit.String(), "-o", "/dev/null", "--", "sh", "-c",
		"echo $$ > "+d.dir+"/pid; exec sleep 1000")
	d.appears(filepath.Join(d.dir, "pid"), 1) // there is time to kill the daemon before the limit
	d.kill()
	time.Sleep(limit)
	d.start()
	if out, code := d.try("wait", "2"); code == 0 || !strings.Contains(out, "timeout") {
		t.Errorf("the job whose time is over: exit code %d: %s", code, out)
	}
	d.want(d.must("show", "1"), `"state": "running"`)
}
