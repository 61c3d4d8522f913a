//go:build linux

package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// withConfig is a daemon that has not been started, with a configuration.
func withConfig(t *testing.T, gpus, conf string) *daemon {
	t.Helper()
	d := prepareDaemon(t, gpus)
	d.configure(conf)
	return d
}

// configure writes the configuration that the daemon starts with, or reads again.
func (d *daemon) configure(text string) {
	d.t.Helper()
	d.args = []string{"--config", d.write("muster.yaml", text)}
}

// Under a daemon that serves several users, jobs that go before others' need a right, however they are asked for.
func TestUrgentRight(t *testing.T) {
	t.Parallel()
	needsRoot(t)
	d := withConfig(t, "1xH100-80GB",
		"queues:\n- {name: research}\n- {name: serving}\n- {name: web, parent: serving}\n- {name: api, parent: serving}\noperators: {users: [daemon]}\nurgent: {queues: [serving]}\n")
	d.start()
	as := d.others()
	file := filepath.Join("/tmp", filepath.Base(filepath.Dir(d.dir))+".yaml")
	if err := os.WriteFile(file, []byte("command: [\"true\"]\ntier: critical\nqueue: research\noutput: /dev/null\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(file) })
	if out, err := as("nobody", "submit", "--gpus", "1", "--queue", "research", "--hold", "-o", "/dev/null", "--",
		"true"); err != nil {
		t.Fatalf("a plain job: %v, %s", err, out)
	}
	for _, args := range []string{
		"submit --queue research --tier critical -o /dev/null -- true",
		"submit --queue research --priority 1 -o /dev/null -- true",
		"slurm sbatch --test-only --qos=critical --account=research -o /dev/null --wrap=true",
		"run --queue research --tier critical -- true",
		"submit " + file,
		"slurm sbatch --qos=critical --account=research -o /dev/null --wrap=true",
		"slurm sbatch --nice=-5 --account=research -o /dev/null --wrap=true",
		"slurm sbatch --priority=7 --account=research -o /dev/null --wrap=true",
		"slurm srun --qos=critical --account=research true",
		"update 1 --tier critical",
		"update 1 --priority 3",
		"slurm scontrol update jobid=1 qos=critical",
		"slurm scontrol update jobid=1 priority=9",
		"slurm scontrol update jobid=1 nice=-9",
	} {
		if out, err := as("nobody", strings.Fields(args)...); err == nil || !strings.Contains(out, "needs a right") {
			t.Errorf("muster %s: %v, %s", args, err, out)
		}
	}
	for _, c := range [][2]string{
		{"nobody", "submit --queue api --tier critical --hold -o /dev/null -- true"},
		{"nobody", "submit --queue web --priority 5 --hold -o /dev/null -- true"},
		{"nobody", "submit --queue research --priority -5 --hold -o /dev/null -- true"},
		{"nobody", "submit --queue research --tier best-effort --hold -o /dev/null -- true"},
		{"daemon", "submit --queue research --tier critical --hold -o /dev/null -- true"},
		{"daemon", "update 1 --priority 10"}, // an operator gives it to another's job
		{"nobody", "update 1 --priority 4"},  // and its owner may give some of it back
	} {
		if out, err := as(c[0], strings.Fields(c[1])...); err != nil {
			t.Errorf("%s: muster %s: %v, %s", c[0], c[1], err, out)
		}
	}
	if out, err := as("nobody", "update", "2", "--queue", "research"); err == nil ||
		!strings.Contains(out, "needs a right") {
		t.Errorf("a critical job leaves the queue that grants it: %v, %s", err, out)
	}
}

// What would start a waiting job now is said of what the one who asks may ask for: the tier critical to an
// operator, and in a queue that grants it.
func TestUrgentSuggestion(t *testing.T) {
	t.Parallel()
	needsRoot(t)
	d := withConfig(t, "1xH100-80GB",
		"queues:\n- {name: research}\n- {name: serving}\noperators: {users: [daemon]}\nurgent: {queues: [serving]}\n")
	d.start()
	as := d.users()
	must := func(user, line string) string { return as(user, strings.Fields(line)...) }
	must("nobody", "submit --gpus 1 --queue research -o /dev/null -- sleep 100")
	must("nobody", "submit --gpus 1 --queue research -o /dev/null -- true")
	must("nobody", "submit --gpus 1 --queue serving -o /dev/null -- true")
	for _, c := range []struct {
		user, job string
		said      bool
	}{{"nobody", "2", false}, {"daemon", "2", true}, {"nobody", "3", true}} {
		if out := must(c.user, "why "+c.job); strings.Contains(out, "tier critical") != c.said {
			t.Errorf("%s asks about job %s; the tier critical is to be suggested: %v\n%s", c.user, c.job, c.said, out)
		}
	}
	must("nobody", "cancel 1")
}

// What one user can ask for is bounded, and the refusal says by what.
func TestUserLimits(t *testing.T) {
	t.Parallel()
	needsRoot(t)
	d := withConfig(t, "1xH100-80GB",
		"limits: {jobs: 10, bare_tasks: 6, comment: 100, name: 20, environment: 64KiB, request: 100KiB}\n")
	d.start()
	as := d.others()
	refused := func(key string, args ...string) {
		t.Helper()
		if out, err := as("nobody", args...); err == nil || !strings.Contains(out, "limits."+key) {
			t.Errorf("muster %.100q: %v, %.300s", args, err, out)
		}
	}
	allowed := func(user string, args ...string) {
		t.Helper()
		if out, err := as(user, args...); err != nil {
			t.Errorf("muster %.100q: %v, %.300s", args, err, out)
		}
	}
	refused("comment", "slurm", "sbatch", "--comment", strings.Repeat("x", 101), "-o", "/dev/null", "--wrap", "true")
	refused("name", "submit", "--name", strings.Repeat("x", 21), "-o", "/dev/null", "--", "true")
	refused("environment", "submit", "-e", "A="+strings.Repeat("x", 70_000), "-o", "/dev/null", "--", "true")
	refused("request", "submit", "-o", "/dev/null", "--", "echo", strings.Repeat("x", 110_000))
	refused("bare_tasks", "submit", "--cpus", "0", "--gpus", "0", "--array", "1-7", "--hold", "-o", "/dev/null", "--",
		"true")
	refused("jobs", "submit", "--gpus", "1", "--array", "1-11", "--hold", "-o", "/dev/null", "--", "true")
	allowed("nobody", "submit", "--gpus", "1", "--array", "1-10", "--hold", "-o", "/dev/null", "--", "true")
	refused("jobs", "submit", "--gpus", "1", "-o", "/dev/null", "--", "true")
	refused("comment", "slurm", "scontrol", "update", "jobid=1", "comment="+strings.Repeat("x", 101))
	// another user's jobs do not count
	allowed("daemon", "submit", "--gpus", "1", "--hold", "-o", "/dev/null", "--", "true")
	d.must("submit", "--gpus", "1", "--array", "1-20", "--hold", "-o", "/dev/null", "--", "true")
	d.kill()
	d.start()
	refused("jobs", "submit", "--gpus", "1", "-o", "/dev/null", "--", "true")
	allowed("nobody", "cancel", "1")
	allowed("nobody", "submit", "--gpus", "1", "--hold", "-o", "/dev/null", "--", "true")
}

// Jobs that save into a file system of their own cannot fill that of the state: others go on submitting.
func TestCheckpointsApart(t *testing.T) {
	t.Parallel()
	needsRoot(t)
	small := t.TempDir()
	if err := unix.Mount("tmpfs", small, "tmpfs", 0, "size=4m"); err != nil {
		t.Skip("no tmpfs can be mounted: ", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(small, unix.MNT_DETACH) })
	d := withConfig(t, "1xH100-80GB", "checkpoint_dir: "+small+"\n")
	d.start()
	as := d.others()
	if err := os.Chmod(filepath.Dir(small), 0o755); err != nil {
		t.Fatal(err)
	}
	fill := "case $MUSTER_CHECKPOINT_DIR in " + small +
		"/*) ;; *) echo elsewhere; exit 1 ;; esac; head -c 100000000 /dev/zero > $MUSTER_CHECKPOINT_DIR/x; ls -l $MUSTER_CHECKPOINT_DIR"
	if out, err := as("nobody", "run", "--", "sh", "-c", fill); err != nil || !strings.Contains(out, "No space left") {
		t.Fatalf("nobody fills the file system: %v, %s", err, out)
	}
	for range 3 {
		if out, err := as("daemon", "submit", "--hold", "-o", "/dev/null", "--", "true"); err != nil {
			t.Errorf("another user submits: %v, %s", err, out)
		}
	}
	if fi, err := os.Stat(filepath.Join(small, "1")); err != nil || fi.Mode().Perm() != 0o711 {
		t.Errorf("the folder of the job's is %v (%v)", fi, err)
	}
}

// crowdVariable names the socket to a process that is to crowd it.
const crowdVariable = "MUSTER_TEST_CROWD"

// A user who holds as many connections and event streams as they can does not keep others from the daemon.
func TestCrowd(t *testing.T) {
	t.Parallel()
	if socket := os.Getenv(crowdVariable); socket != "" {
		hold(socket)
		return
	}
	needsRoot(t)
	d := withConfig(t, "1xH100-80GB", "limits: {connections: 40, streams: 10}\n")
	d.start()
	as := d.others()
	exe := filepath.Join(filepath.Dir(d.bin), "crowd.test")
	text, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(exe, text, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(exe) })
	cmd := exec.Command("setpriv", "--reuid", "nobody", "--regid", "nogroup", "--clear-groups", exe, "-test.run",
		"^TestCrowd$")
	cmd.Dir, cmd.Env = "/tmp", append(os.Environ(), crowdVariable+"="+d.socket, "TMPDIR=/tmp")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	var streams, connections int
	if _, err := fmt.Fscanf(out, "%d streams, %d connections", &streams, &connections); err != nil {
		t.Fatal(err)
	}
	if streams != 10 || connections < 10 || connections > 40 {
		t.Errorf("one user has %d streams and %d connections", streams, connections)
	}
	if out, err := as("daemon", "run", "--", "echo", "alive"); err != nil || !strings.Contains(out, "alive") {
		t.Errorf("another user's job: %v, %s", err, out)
	}
	d.must("run", "--", "true")
}

// hold opens event streams to a socket, and connections that ask for nothing, says how many were let in, and
// holds them until its input ends.
func hold(socket string) {
	streams, connections := 0, 0
	for i := range 200 {
		c, err := net.Dial("unix", socket)
		if err != nil {
			break
		}
		defer c.Close()
		if _, err := fmt.Fprintf(c, "GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			continue
		}
		answer := make([]byte, 12)
		if _, err := c.Read(answer); err != nil {
			continue
		}
		switch code := string(answer[9:]); {
		case code == fmt.Sprint(http.StatusOK):
			streams++
			connections++
		case i < 40:
			connections++
		}
	}
	fmt.Printf("%d streams, %d connections\n", streams, connections)
	_, _ = os.Stdin.Read(make([]byte, 1))
}
