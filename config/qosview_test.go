package config

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/show"
)

// Nothing is claimed that does not hold.
func TestTreated(t *testing.T) {
	q := DefaultQoS()
	one := &cluster.Treatment{Class: 1}
	if v := q.Treated(nil, &cluster.Treatment{}, "", nil); v != nil {
		t.Errorf("of a job like any other: %+v", v)
	}
	v := q.Treated(one, one, "applied", nil)
	if v.DSCP != "cs5" || v.Marks != "applied" ||
		v.Verbs != "class 1: NCCL_IB_TC=160, as the job was started with" || v.Slots != "" {
		t.Errorf("%+v", v)
	}
	v = q.Treated(one, &cluster.Treatment{Class: 7, Path: []uint8{1}}, "not applied: no", nil)
	if v.Marks != "not applied: no; the network has 5 classes (network.classes)" ||
		!strings.HasSuffix(v.Verbs, "for which it would have to start again") || v.Path == "" {
		t.Errorf("%+v", v)
	}
	if v = q.Treated(nil, one, "", nil); !strings.HasPrefix(v.Verbs, "no class, as") {
		t.Errorf("%+v", v)
	}
	shift := &cluster.Treatment{Shift: 120 * time.Millisecond, Period: 250 * time.Millisecond}
	var said []string
	for _, slots := range []string{"", show.SlotsHeld, show.SlotsTooShort} {
		text, _, _ := strings.Cut(q.Treated(nil, shift, "", &show.Progress{Slots: slots}).Slots, ":")
		said = append(said, text)
	}
	if !slices.Equal(said, []string{"not known", "held", "not held"}) {
		t.Errorf("slots: %q", said)
	}
}
