package fit

import (
	"testing"
)

// Two pods conflict over a port with one protocol, at one address or at all.
func TestPorts(t *testing.T) {
	for _, c := range []struct {
		a, b      hostPort
		conflicts bool
	}{
		{hostPort{"0.0.0.0", "TCP", 80}, hostPort{"127.0.0.1", "TCP", 80}, true},
		{hostPort{"10.0.0.1", "TCP", 80}, hostPort{"127.0.0.1", "TCP", 80}, false},
		{hostPort{"0.0.0.0", "TCP", 80}, hostPort{"0.0.0.0", "UDP", 80}, false},
		{hostPort{"127.0.0.1", "TCP", 80}, hostPort{"127.0.0.1", "TCP", 80}, true},
		{hostPort{"0.0.0.0", "TCP", 80}, hostPort{"0.0.0.0", "TCP", 81}, false},
	} {
		if c.a.conflicts(c.b) != c.conflicts || c.b.conflicts(c.a) != c.conflicts {
			t.Errorf("%v and %v: conflict %v", c.a, c.b, !c.conflicts)
		}
	}
}
