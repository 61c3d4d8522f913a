//go:build linux

package dscp

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/muster-gpu/muster/local/cgroup"
)

// senderWord makes the test binary a process that sends to itself.
const senderWord = "__sender"

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == senderWord {
		if err := send(); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// send sends a packet to itself for each line of standard input, over IPv4 and IPv6, and prints which DSCP and ECN they
// arrived with.
func send() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	lo, _ := unix.NewIfreq("lo") // of a namespace of its own it is down
	lo.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo); err != nil {
		return err
	}
	v4, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return err
	}
	v6, err := net.ListenUDP("udp6", &net.UDPAddr{IP: net.IPv6loopback})
	if err != nil {
		return err
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		a, err := received(v4, unix.IPPROTO_IP, unix.IP_RECVTOS, unix.IP_TOS)
		if err != nil {
			return err
		}
		b, err := received(v6, unix.IPPROTO_IPV6, unix.IPV6_RECVTCLASS, unix.IPV6_TCLASS)
		if err != nil {
			return err
		}
		fmt.Println(a>>2, a&3, b>>2, b&3)
	}
	return nil
}

func received(c *net.UDPConn, level, want, has int) (tos byte, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	_ = raw.Control(func(fd uintptr) { // with ECT(0), which has to stay
		err = errors.Join(unix.SetsockoptInt(int(fd), level, want, 1), unix.SetsockoptInt(int(fd), level, has, 2))
	})
	if err != nil {
		return 0, err
	}
	if _, err := c.WriteTo([]byte("x"), c.LocalAddr()); err != nil {
		return 0, err
	}
	buf, extra := make([]byte, 8), make([]byte, 64)
	_, n, _, _, err := c.ReadMsgUDP(buf, extra)
	if err != nil {
		return 0, err
	}
	list, err := unix.ParseSocketControlMessage(extra[:n])
	if err != nil || len(list) != 1 {
		return 0, fmt.Errorf("%d control messages: %w", len(list), err)
	}
	return list[0].Data[0], nil
}

// sender is a process of a group that sends when it is asked to.
type sender struct {
	t    *testing.T
	in   io.Writer
	out  *bufio.Reader
	name string
}

func start(t *testing.T, groups *cgroup.Manager, name string, ownNetwork bool) *sender {
	t.Helper()
	g := groups.Group(name)
	if err := g.Create(cgroup.Limits{}); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", senderWord)
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if ownNetwork {
		cmd.SysProcAttr.Cloneflags = unix.CLONE_NEWNET
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Place().Start(cmd.SysProcAttr, cmd.Start); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		g.Kill(0)
		_ = cmd.Wait()
		g.Remove()
	})
	s := &sender{t, in, bufio.NewReader(out), name}
	s.expect(0)
	return s
}

// expect sends packets, and compares their DSCP.
func (s *sender) expect(want uint8) {
	s.t.Helper()
	if _, err := io.WriteString(s.in, "\n"); err != nil {
		s.t.Fatal(err)
	}
	line, err := s.out.ReadString('\n')
	if err != nil {
		s.t.Fatal(line, err)
	}
	if text := fmt.Sprintf("%d 2 %d 2\n", want, want); line != text {
		s.t.Errorf("%s: DSCP and ECN of IPv4 and IPv6: %s; want %s", s.name, strings.TrimSpace(line), text)
	}
}

func inForce(t *testing.T, states map[string]State, spaces map[string]int) {
	t.Helper()
	for name, n := range spaces {
		if s := states[name]; s.Err != nil || s.Spaces != n {
			t.Fatalf("%s: in force in %d namespaces, want %d: %v", name, s.Spaces, n, s.Err)
		}
	}
}

func open(t *testing.T) *cgroup.Manager {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("NOT TESTED: only root can mark traffic")
	}
	groups := cgroup.Open()
	probe := groups.Group("probe.test.probe")
	if err := probe.Create(cgroup.Limits{}); err != nil {
		t.Fatal(err)
	}
	defer probe.Remove()
	m := New(groups, "test.probe")
	if s := m.Set(map[string]uint8{"probe.test.probe": 1})["probe.test.probe"]; s.Err != nil {
		t.Skip("NOT TESTED:", s.Err)
	}
	m.Set(nil)
	return groups
}

// What a group sends bears its DSCP, in this network namespace and in one of its own, from the moment that it is set
// and until it is not; others' traffic does not.
func TestMarks(t *testing.T) {
	groups := open(t)
	m := New(groups, "test.marks")
	t.Cleanup(func() { m.Set(nil) })
	a := start(t, groups, "a.test.marks", false)
	b := start(t, groups, "b.test.marks", true)
	other := start(t, groups, "other.test.marks", false)
	spaces := map[string]int{a.name: 1, b.name: 2}
	inForce(t, m.Set(map[string]uint8{a.name: 40, b.name: 41}), spaces)
	a.expect(40)
	b.expect(41)
	other.expect(0)
	inForce(t, m.Set(map[string]uint8{a.name: 8, b.name: 41}), spaces)
	a.expect(8)
	b.expect(41)
	inForce(t, m.Set(map[string]uint8{b.name: 41}), map[string]int{b.name: 2})
	a.expect(0)
	b.expect(41)
	m.Set(nil)
	b.expect(0)
	if len(m.spaces) != 0 {
		t.Errorf("%d tables are left", len(m.spaces))
	}
}

// Another daemon of the same state finds the tables in all namespaces; it leaves what is right, and removes the rest.
// What others flush is set again; what is theirs stays.
func TestRestart(t *testing.T) {
	groups := open(t)
	first := New(groups, "test.restart")
	b := start(t, groups, "b.test.restart", true)
	inForce(t, first.Set(map[string]uint8{b.name: 40}), map[string]int{b.name: 2})
	second := New(groups, "test.restart")
	t.Cleanup(func() { second.Set(nil) })
	if len(second.spaces) != 2 {
		t.Fatalf("it found tables in %d namespaces, not in 2", len(second.spaces))
	}
	b.expect(40)
	inForce(t, second.Set(map[string]uint8{b.name: 40}), map[string]int{b.name: 2})
	b.expect(40)
	for _, s := range second.spaces {
		s.remove()
	}
	b.expect(0)
	if _, ok := groups.ByID(); !ok {
		third := New(groups, "test.restart") // finds no table, but the class of the group
		third.Set(nil)
		if len(groups.Classes("test.restart")) != 0 {
			t.Error("the class of the group is left")
		}
		return
	}
	foreign := New(groups, "test.foreign")
	t.Cleanup(func() { foreign.Set(nil) })
	inForce(t, foreign.Set(map[string]uint8{b.name: 9}), map[string]int{b.name: 2})
	inForce(t, second.Set(map[string]uint8{b.name: 40}), map[string]int{b.name: 2})
	second.Set(nil)
	b.expect(9)
	if third := New(groups, "test.restart"); len(third.spaces) != 0 {
		t.Errorf("%d tables are left", len(third.spaces))
	}
}

// A group that is not there is not claimed to be marked, and keeps none from being marked.
func TestGone(t *testing.T) {
	groups := open(t)
	m := New(groups, "test.gone")
	t.Cleanup(func() { m.Set(nil) })
	a := start(t, groups, "here.test.gone", false)
	states := m.Set(map[string]uint8{a.name: 40, "gone.test.gone": 40})
	a.expect(40)
	if states["gone.test.gone"].Err == nil || states[a.name].Err != nil {
		t.Errorf("states: %+v", states)
	}
	if s := New(&cgroup.Manager{}, "test.none").Set(map[string]uint8{"x": 1})["x"]; !errors.Is(s.Err, errNoGroups) {
		t.Errorf("without groups: %+v", s)
	}
}

// oldWord makes the test binary run the tests where there is version 1 only, in a mount namespace of its own.
const oldWord = "MUSTER_TEST_NET_CLS"

// All of it where the kernel knows groups of sockets by net_cls.
func TestNetCls(t *testing.T) {
	open(t)
	if os.Getenv(oldWord) != "" {
		return
	}
	const script = `umount -a -t cgroup2 && mount -t cgroup -o net_cls none "$0" || exit 77
"$1" -test.v; code=$?
rmdir "$0"/muster/*/ "$0"/muster; umount "$0"; exit $code`
	cmd := exec.Command("sh", "-c", script, t.TempDir(), os.Args[0])
	cmd.Env = append(os.Environ(), oldWord+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() == 77:
		t.Skipf("NOT TESTED: net_cls cannot be mounted: %s", out)
	case err != nil, strings.Contains(string(out), "NOT TESTED"):
		t.Errorf("%v\n%s", err, out)
	}
}
