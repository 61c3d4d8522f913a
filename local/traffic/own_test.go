package traffic

import "testing"

// TestOwn: hosts of the network are named as machines are, or without their domain; a machine without a name is none.
func TestOwn(t *testing.T) {
	for _, c := range []struct {
		host, name string
		own        bool
	}{{"n1", "n1", true}, {"n1", "n1.example.org", true}, {"n1.example.org", "n1.example.org", true},
		{"n1.example.org", "n1", false}, {"n2", "n1", false}, {"", "", false}} {
		if Own(c.host, c.name) != c.own {
			t.Errorf("host %q, machine %q: %v", c.host, c.name, !c.own)
		}
	}
}
