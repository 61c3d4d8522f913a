package scale

import (
	"slices"
	"testing"
)

// TestBothPhases: of two replicas or more each phase gets one, of its first variant; what is fewer, or has both phases
// already, stays as it is, and so does a service without phases.
func TestBothPhases(t *testing.T) {
	s := phased()
	for _, c := range []struct{ have, want []int }{
		{[]int{2, 0, 0, 0}, []int{1, 0, 1, 0}},
		{[]int{0, 0, 0, 3}, []int{1, 0, 0, 2}},
		{[]int{1, 3, 0, 0}, []int{1, 2, 1, 0}},
		{[]int{2, 0, 0, 1}, []int{2, 0, 0, 1}},
		{[]int{1, 0, 0, 0}, []int{1, 0, 0, 0}},
		{[]int{0, 0, 0, 0}, []int{0, 0, 0, 0}},
	} {
		want := Wants(s, c.have)
		if BothPhases(s, want); !slices.Equal(want, Wants(s, c.want)) {
			t.Errorf("%v became %v, not %v", c.have, want, c.want)
		}
	}
	some := Wants(s, []int{0, 4, 0, 0})[1:2] // no variant for tokens is there
	if BothPhases(s, some); some[0].Replicas != 4 {
		t.Errorf("of one phase alone: %v", some)
	}
	plain := phased()
	for i := range plain.Variants {
		plain.Variants[i].Language = nil
	}
	want := Wants(plain, []int{4, 0, 0, 0})
	if BothPhases(plain, want); want[0].Replicas != 4 {
		t.Errorf("without phases: %v", want)
	}
}
