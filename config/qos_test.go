package config

import (
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

func serveOf(text string) (*Serve, error) { return ReadServe("f.yaml", strings.NewReader(text)) }

// Classes are those of the file, else the usual ones; what fits no fabric is refused where it stands.
func TestQoS(t *testing.T) {
	c, err := serveOf("policy: fifo\n")
	if err != nil {
		t.Fatal(err)
	}
	var tcs []uint8
	for _, m := range c.Network.Classes {
		if tcs = append(tcs, m.TC); m.TC != m.DSCP<<2 || m.SL != NoSL {
			t.Errorf("default class %+v", m)
		}
	}
	if string(tcs) != string([]byte{160, 128, 96, 64, 32}) {
		t.Errorf("default traffic classes %v", tcs)
	}
	c, err = serveOf("network:\n  interface: eth0\n  classes:\n  - {dscp: cs5, tc: 160, sl: 5}\n  - {dscp: 26, tc: 106}\n  - {dscp: ef}\n")
	if err != nil {
		t.Fatal(err)
	}
	q := &c.Network
	for class, want := range map[int]Mark{1: {40, 160, 5}, 2: {26, 106, NoSL}, 3: {46, 184, NoSL}, 9: {46, 184, NoSL}} {
		if m, ok := q.Mark(class); !ok || m != want {
			t.Errorf("class %d: %+v, want %+v", class, m, want)
		}
	}
	if _, ok := q.Mark(0); ok || q.Interface != "eth0" || DSCPText(26) != "af31" || DSCPText(1) != "1" {
		t.Error("class 0 is marked, or a name is wrong")
	}
	for text, want := range map[string]string{
		"network: {classes: [{dscp: cs5, tc: 40}]}":                        "40 is the DSCP; the traffic class has it in its upper six bits: 160",
		"network: {classes: [{dscp: cs5, tc: 104}]}":                       "104 has DSCP af31 in its upper six bits, not cs5: 160 has",
		"network: {classes: [{dscp: cs5}, {dscp: 40}]}":                    "cs5 is that of class 1 already",
		"network: {classes: [{dscp: cs8}]}":                                `"cs8" is not a DSCP`,
		"network: {classes: [{dscp: -1}]}":                                 `"-1" is not a DSCP`,
		"network: {classes: [{dscp: cs1, tc: -32}]}":                       "-32; a traffic class is a byte",
		"network: {classes: [{dscp: cs1, sl: 16}]}":                        "16; service levels are from 0 to 15",
		"network: {classes: [{tc: 160}]}":                                  "missing: state one, such as cs5",
		"network: {interface: 'eth0,eth1'}":                                "is not the name of an interface",
		"network: {clases: []}":                                            "classes",
		"network: {classes: [" + strings.Repeat("{dscp: cs1}, ", 9) + "]}": "9 classes; switches keep at most 8 apart",
	} {
		if _, err := serveOf(text); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.HasPrefix(err.Error(), "f.yaml:1") {
			t.Errorf("%s: %v; want f.yaml:1: ... %s", text, err, want)
		}
	}
	now, _ := serveOf("network: {classes: [{dscp: cs4, sl: 2}], interface: eth1}")
	changes := Compare(c, now)
	if len(changes) != 4 || changes[1].New != "dscp cs4, tc 128, sl 2" {
		t.Errorf("changes: %+v", changes)
	}
	now.KeepStart(c)
	if len(now.Network.Classes) != 3 {
		t.Error("the classes of the running daemon are not kept")
	}
}

// Links between hosts are read as in a cluster file; a policy needs to be one that there is.
func TestServeLinks(t *testing.T) {
	const links = "  links:\n  - {from: 'h[1-2]', to: a, rate: 10Gbps}\n  - {from: a, to: b, rate: 1Gbps}\n"
	c, err := serveOf("traffic: crux\nnetwork:\n  hosts: 'h[1-2]'\n" + links)
	if err != nil {
		t.Fatal(err)
	}
	if n := c.Links; len(n.Links) != 3 || len(n.Hosts) != 2 || n.Classes != 5 || c.Traffic != "crux" {
		t.Errorf("%+v", c.Links)
	}
	for text, want := range map[string]string{
		"traffic: cruks\n":                        `f.yaml:1: traffic: unknown traffic policy "cruks"`,
		"network:\n" + links:                      "f.yaml:1: network: hosts: missing",
		"network:\n  hosts: 'h[1-3'\n" + links:    "f.yaml:2: network: hosts: ",
		"network:\n  hosts: 'a,h[1-2]'\n" + links: "f.yaml:4: network: links: 0: ",
	} {
		if _, err := serveOf(text); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v; want %s", text, err, want)
		}
	}
}

// A class is told by its marks, and one above it to what announces data; what a user sets stays.
func TestVariables(t *testing.T) {
	q := DefaultQoS()
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

// A job is told its slots in seconds.
func TestSlots(t *testing.T) {
	shift := &cluster.Treatment{Shift: 120 * time.Millisecond, Period: 250 * time.Millisecond}
	if text := string(Slots(shift)); text != `{"class":0,"shift_s":0.12,"period_s":0.25}`+"\n" {
		t.Errorf("the file: %s", text)
	}
	if text := string(Slots(nil)); text != `{"class":0,"shift_s":0,"period_s":0}`+"\n" {
		t.Errorf("the file of a job like any other: %s", text)
	}
}
