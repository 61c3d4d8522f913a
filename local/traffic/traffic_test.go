package traffic

import (
	"errors"
	"testing"

	"github.com/muster-gpu/muster/local/dscp"
)

// Marks count as applied once all tasks have them.
func TestMarks(t *testing.T) {
	for _, c := range []struct {
		states []dscp.State
		want   string
	}{
		{nil, "not applied yet"},
		{[]dscp.State{{Spaces: 1}}, "applied"},
		{[]dscp.State{{Spaces: 1}, {Spaces: 2}}, "applied, in 2 network namespaces"},
		{[]dscp.State{{Spaces: 1}, {Err: errors.New("no")}}, "not applied: no"},
	} {
		if got := Marks(c.states); got != c.want {
			t.Errorf("%+v: %q, want %q", c.states, got, c.want)
		}
	}
}
