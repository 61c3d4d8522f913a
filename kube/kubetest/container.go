package kubetest

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Container is a process that stands for one of a pod: in the control group that a kubelet and its runtime would make,
// with a network namespace of its own. It sends to itself when it is asked to.
type Container struct {
	t   testing.TB
	in  io.Writer
	out *bufio.Reader
}

// sendScript prints the DSCP with which a packet to itself arrives, for each line that it reads.
const sendScript = `
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("127.0.0.1", 0))
s.setsockopt(socket.IPPROTO_IP, 13, 1)  # IP_RECVTOS
print("ready", flush=True)
for _ in sys.stdin:
    s.sendto(b"x", s.getsockname())
    print(s.recvmsg(8, 64)[1][0][2][0] >> 2, flush=True)
`

// Contain starts a container of a pod whose group is at a path below the root of the hierarchy.
func Contain(t testing.TB, root, path string) *Container {
	t.Helper()
	dir := filepath.Join(root, path, "cri-containerd-1.scope")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	const enter = `echo $$ >"$0" && exec unshare --net sh -c 'ip link set lo up && exec python3 -c "$0"' "$1"`
	cmd := exec.Command("sh", "-c", enter, filepath.Join(dir, "cgroup.procs"), sendScript)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		for ; dir != root; dir = filepath.Dir(dir) { // those that others have stay
			_ = os.Remove(dir)
		}
	})
	c := &Container{t, in, bufio.NewReader(out)}
	if line, err := c.out.ReadString('\n'); line != "ready\n" {
		t.Fatalf("a container does not begin: %q, %v", line, err)
	}
	return c
}

// Burstable is the path of the group that a kubelet with systemd makes of a pod that requests less than its limits.
func Burstable(uid string) string {
	return "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + strings.ReplaceAll(uid, "-", "_") +
		".slice"
}

// Sends is the DSCP of what it sends.
func (c *Container) Sends() string {
	c.t.Helper()
	if _, err := io.WriteString(c.in, "\n"); err != nil {
		c.t.Fatal(err)
	}
	line, err := c.out.ReadString('\n')
	if err != nil {
		c.t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// Groups is where control groups of version 2 are. Without them, and for others than root, who cannot mark traffic, the
// test is skipped.
func Groups(t testing.TB) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("NOT TESTED: only root can mark traffic")
	}
	text, err := os.ReadFile("/proc/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 2 && f[2] == "cgroup2" {
			return f[1]
		}
	}
	t.Skip("NOT TESTED: this machine has no control groups of version 2")
	return ""
}
