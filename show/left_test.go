package show

import "testing"

// TestLeft: bad GPUs and nodes that take no jobs have nothing left.
func TestLeft(t *testing.T) {
	gpu := func(free int64, healthy bool) GPU { return GPU{Free: free, Healthy: healthy} }
	u := int64(1250)
	up := Node{State: "up", GPUs: []GPU{gpu(1000, true), gpu(500, true), gpu(1000, false)}, Usable: &u}
	if free, usable := up.Left(); free != 1500 || usable != 1250 {
		t.Errorf("%d free, %d usable; want 1500 and 1250", free, usable)
	}
	off := up
	off.State = "draining"
	if free, usable := off.Left(); free != 0 || usable != 0 {
		t.Errorf("on a node that drains %d are free, %d usable", free, usable)
	}
	if got, want := LeftText([]Node{up, off}), "1.5 GPUs free, 1.25 usable by the tasks submitted last"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	up.Usable = nil
	if free, usable := up.Left(); free != usable || LeftText([]Node{up}) != "" {
		t.Errorf("not known, but %d of %d, %q", usable, free, LeftText([]Node{up}))
	}
}
