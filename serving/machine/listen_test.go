//go:build linux

package machine

import (
	"errors"
	"net"
	"os"
	"testing"

	"github.com/muster-gpu/muster/serving/control"
)

// TestListens: who listens at a port is known for both families of addresses, and those who are connected to it do not
// count.
func TestListens(t *testing.T) {
	for network, address := range map[string]string{"tcp4": "127.0.0.1:0", "tcp6": "[::1]:0", "tcp": ":0"} {
		l, err := net.Listen(network, address)
		if err != nil {
			t.Fatal(err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if err := listens(os.Getuid(), port); err != nil {
			t.Errorf("%s: %v", network, err)
		}
		if err := listens(os.Getuid()+1, port); !errors.Is(err, control.ErrTaken) {
			t.Errorf("%s: for another user: %v", network, err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if err := listens(os.Getuid(), port); !errors.Is(err, errSilent) {
			t.Errorf("%s: while only a connection is left: %v", network, err)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func BenchmarkListens(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	for b.Loop() {
		if err := listens(os.Getuid(), l.Addr().(*net.TCPAddr).Port); err != nil {
			b.Fatal(err)
		}
	}
}
