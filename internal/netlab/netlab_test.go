//go:build linux

package netlab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/muster-gpu/muster/local/cgroup"
	"github.com/muster-gpu/muster/local/dscp"
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

// run starts the ranks of a job in control groups, and returns their names and the output of the first.
func (l *Lab) run(t *testing.T, groups *cgroup.Manager, name string, j *Job, gate string) (ranks []string, out string) {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for rank := range j.Hosts {
		g := groups.Group(fmt.Sprintf("%s.%d.test.netlab", name, rank))
		if err := g.Create(cgroup.Limits{}); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "out")
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		cmd := exec.Command("sh", "-c", l.Script(j, root, gate))
		cmd.Env = append(os.Environ(), fmt.Sprint("RANK=", rank))
		cmd.Stdout, cmd.Stderr = f, f
		cmd.SysProcAttr = &syscall.SysProcAttr{}
		if err := g.Place().Start(cmd.SysProcAttr, cmd.Start); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			g.Kill(0)
			_ = cmd.Wait()
			g.Remove()
			if t.Failed() {
				text, _ := os.ReadFile(path)
				t.Logf("%s, rank %d: %s", name, rank, text[max(0, len(text)-500):])
			}
		})
		ranks = append(ranks, fmt.Sprintf("%s.%d.test.netlab", name, rank))
		if rank == 0 {
			out = path
		}
	}
	return ranks, out
}

// Two jobs that share a link slow each other down; with one a class above the other, most of that is given back, to
// both: they fall into step.
func TestClassesGiveBack(t *testing.T) {
	if testing.Short() {
		t.Skip("it measures for some 20 seconds")
	}
	if err := NoTorch(); err != nil {
		t.Skip("NOT TESTED:", err)
	}
	l := up(t)
	groups := cgroup.Open()
	marker := dscp.New(groups, "test.netlab")
	t.Cleanup(func() { marker.Set(nil) })
	gate := filepath.Join(t.TempDir(), "gate")
	first, out1 := l.run(t, groups, "first", &Job{[]int{1, 3}, 150 * time.Millisecond, 2, 5001}, gate)
	second, out2 := l.run(t, groups, "second", &Job{[]int{2, 4}, 150 * time.Millisecond, 2, 5002}, gate)
	if err := Open(gate, out1, out2); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Second)
	measure := func(span time.Duration, outs ...string) (m []time.Duration) {
		from := time.Now()
		time.Sleep(span)
		for _, path := range outs {
			list, err := Read(path)
			if err != nil {
				t.Fatal(err)
			}
			m = append(m, Median(list, from, time.Now()))
		}
		return m
	}
	untreated := measure(5*time.Second, out1, out2)
	want := map[string]uint8{}
	for _, name := range first {
		want[name] = 40
	}
	for name, s := range marker.Set(want) {
		if s.Err != nil || s.Spaces != 2 {
			t.Errorf("%s: marked in %d namespaces: %v", name, s.Spaces, s.Err)
		}
	}
	time.Sleep(time.Second)
	before, began := marker.Set(want)[first[0]], time.Now()
	treated := measure(5*time.Second, out1, out2)
	after := marker.Set(want)[first[0]]
	each := float64(after.Sent-before.Sent) * treated[0].Seconds() / time.Since(began).Seconds() / (1 << 20)
	if !after.Counted || each < 1.5 || each > 2.5 {
		t.Errorf("a rank is counted to send %.2f MiB an iteration, not 2 (%+v, %+v)", each, before, after)
	}
	// other programs may disturb a measurement
	for try := 0; try < 3 && slices.Max(treated) > slices.Max(untreated)*85/100; try++ {
		for i, m := range measure(5*time.Second, out1, out2) {
			treated[i] = min(treated[i], m)
		}
	}
	for _, name := range second {
		groups.Group(name).Kill(0)
	}
	alone := measure(4*time.Second, out1)[0]
	t.Logf("alone %v; both %v; with classes %v", alone, untreated, treated)
	lost := max(untreated[0], untreated[1]) - alone
	if lost < alone/10 {
		t.Skip("NOT TESTED: the two jobs did not slow each other down; this machine is too busy to tell")
	}
	// of what each lost at most half may be left
	for i, m := range treated {
		if m > alone+lost/2 {
			t.Errorf("job %d: %v, with classes %v; alone %v", i+1, untreated[i], m, alone)
		}
	}
}
