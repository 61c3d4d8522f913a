package traffic

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/local/dscp"
	"github.com/muster-gpu/muster/show"
)

// A class is told by its marks, and one above it to what announces data; what a user sets stays.
func TestVariables(t *testing.T) {
	q := config.DefaultQoS()
	q.Classes[1].SL = 4
	for _, c := range []struct {
		treated *cluster.Treatment
		name    string
		user    []string
		want    string
	}{
		{nil, "", nil, ""},
		{nil, "eth0", nil, "NCCL_SOCKET_IFNAME==eth0 GLOO_SOCKET_IFNAME=eth0"},
		{nil, "eth0", []string{"GLOO_SOCKET_IFNAME=ib0"}, "NCCL_SOCKET_IFNAME==eth0"},
		{&cluster.Treatment{Class: 1}, "", nil, "NCCL_IB_TC=160 UCX_IB_TRAFFIC_CLASS=160"},
		{&cluster.Treatment{Class: 2, Spread: 4}, "", nil,
			"NCCL_IB_TC=128 UCX_IB_TRAFFIC_CLASS=128 NCCL_IB_FIFO_TC=160 NCCL_IB_SL=4 UCX_IB_SL=4 NCCL_IB_QPS_PER_CONNECTION=4"},
		{&cluster.Treatment{Class: 9}, "", []string{"NCCL_IB_TC=0"}, "UCX_IB_TRAFFIC_CLASS=32 NCCL_IB_FIFO_TC=64"},
		{&cluster.Treatment{Period: time.Second}, "", nil, ""},
	} {
		q.Interface = c.name
		if got := strings.Join(q.Variables(c.treated, c.user), " "); got != c.want {
			t.Errorf("%+v: %s, want %s", c.treated, got, c.want)
		}
	}
}

// Nothing is claimed that does not hold.
func TestView(t *testing.T) {
	q := config.DefaultQoS()
	one := &cluster.Treatment{Class: 1}
	if v := View(&q, nil, &cluster.Treatment{}, nil, nil); v != nil {
		t.Errorf("of a job like any other: %+v", v)
	}
	v := View(&q, one, one, []dscp.State{{Spaces: 1}, {Spaces: 2}}, nil)
	if v.DSCP != "cs5" || v.Marks != "applied, in 2 network namespaces" ||
		v.Verbs != "class 1: NCCL_IB_TC=160, as the job was started with" || v.Slots != "" {
		t.Errorf("%+v", v)
	}
	failed := []dscp.State{{Spaces: 1}, {Err: errors.New("no")}}
	v = View(&q, one, &cluster.Treatment{Class: 7, Path: []uint8{1}}, failed, nil)
	if v.Marks != "not applied: no; the network has 5 classes (network.classes)" ||
		!strings.HasSuffix(v.Verbs, "for which it would have to start again") || v.Path == "" {
		t.Errorf("%+v", v)
	}
	if v = View(&q, nil, one, nil, nil); v.Marks != "not applied yet" || !strings.HasPrefix(v.Verbs, "no class, as") {
		t.Errorf("%+v", v)
	}
	shift := &cluster.Treatment{Shift: 120 * time.Millisecond, Period: 250 * time.Millisecond}
	var said []string
	for _, slots := range []string{"", show.SlotsHeld, show.SlotsTooShort} {
		text, _, _ := strings.Cut(View(&q, nil, shift, nil, &show.Progress{Slots: slots}).Slots, ":")
		said = append(said, text)
	}
	if !slices.Equal(said, []string{"not known", "held", "not held"}) {
		t.Errorf("slots: %q", said)
	}
	if text := string(config.Slots(shift)); text != `{"class":0,"shift_s":0.12,"period_s":0.25}`+"\n" {
		t.Errorf("the file: %s", text)
	}
	if text := string(config.Slots(nil)); text != `{"class":0,"shift_s":0,"period_s":0}`+"\n" {
		t.Errorf("the file of a job like any other: %s", text)
	}
}
