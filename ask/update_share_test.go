package ask

import "testing"

// Changing the part of its GPUs' compute does not change how many a job asks for; a job without GPUs then asks
// for a part of one.
func TestUpdateShare(t *testing.T) {
	half := int64(500)
	for _, c := range []struct{ had, want int }{{4, 4}, {1, 1}, {0, 1}} {
		if s := (&Update{Share: &half}).Apply(Submission{GPUs: c.had, Share: 900}); s.GPUs != c.want ||
			s.Share != half {
			t.Errorf("of %d GPUs: %d with %d each", c.had, s.GPUs, s.Share)
		}
	}
	none := int64(0)
	if s := (&Update{Share: &none}).Apply(Submission{}); s.GPUs != 0 {
		t.Errorf("whole devices of none are %d", s.GPUs)
	}
}
