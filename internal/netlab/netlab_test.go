//go:build linux

package netlab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

func up(t *testing.T) *Lab {
	t.Helper()
	l, err := New(200)
	if errors.Is(err, ErrLacks) {
		t.Skip("NOT TESTED:", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

// Hosts reach each other, and what a killed process left is removed.
func TestLab(t *testing.T) {
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	left := fmt.Sprint(namesBegin, dead.Process.Pid, "-left")
	if err := feed("", "ip", "netns", "add", left); err != nil {
		t.Skip("NOT TESTED:", err)
	}
	l := up(t)
	if _, err := os.Stat(filepath.Join("/run/netns", left)); err == nil {
		t.Error("a lab of a killed process is still there")
	}
	other := up(t)
	for _, to := range []int{2, 4} {
		const script = `import socket, sys; s = socket.create_server((sys.argv[1], 9)); c = s.accept()[0]; c.sendall(b"x")`
		server := exec.Command("nsenter", "--net="+l.Path(to), Python, "-c", script, Address(to))
		if err := server.Start(); err != nil {
			t.Fatal(err)
		}
		const client = `import socket, sys, time
for _ in range(100):
    try:
        print(socket.create_connection((sys.argv[1], 9), 5).recv(1)); break
    except ConnectionRefusedError: time.sleep(.05)`
		out, err := exec.Command("nsenter", "--net="+l.Path(1), Python, "-c", client, Address(to)).CombinedOutput()
		if err != nil || string(out) != "b'x'\n" {
			t.Errorf("host 1 does not reach host %d: %v %s", to, err, out)
		}
		_ = server.Wait()
	}
	other.Close()
	if _, err := os.Stat(l.Path(1)); err != nil {
		t.Error("closing a lab removed another:", err)
	}
}
