package config

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// Power settings of a file become the cluster's; the default buffer is a twentieth of the nodes.
func TestPower(t *testing.T) {
	const nodes = "nodes: [{name: 'n[1-41]', model: H100, gpus: 8}]\npartitions: [{name: p, nodes: 'n[1-40]'}]\n"
	s, err := Read("f.yaml",
		strings.NewReader(nodes+
			"power:\n  - {partition: p, every: 5m, history: 30m, future: 6h, fell: 0.5, falls: 0, least: 3, keep: 1h, suspend_time: 0s, "+
			"suspend_exc_nodes: 'n[1-2]', resume_time: 4m, watts: {asleep: 20, idle: 1500, busy: 6500}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := cluster.Power{Partition: "p", Except: []string{"n1", "n2"}, Every: 5 * time.Minute, Buffer: 2,
		History: 30 * time.Minute, Future: 6 * time.Hour,
		Fell: 500, Falls: 0, Least: 3, Keep: time.Hour, Wake: 4 * time.Minute,
		Watts: cluster.Watts{Asleep: 20, Idle: 1500, Busy: 6500}}
	if !reflect.DeepEqual(s.Power[0], want) {
		t.Errorf("%+v", s.Power[0])
	}
	lists, err := s.PowerNodes()
	if err != nil || len(lists[0]) != 38 || lists[0][0] != 2 || lists[0][37] != 39 {
		t.Errorf("%v %v", lists, err)
	}
	if s, err = Read("f.yaml", strings.NewReader(nodes+"power: [{}]\n")); err != nil {
		t.Fatal(err)
	}
	if want := cluster.DefaultPower(41); !reflect.DeepEqual(s.Power[0], want) || want.Buffer != 3 {
		t.Errorf("%+v", s.Power[0])
	}
}

// Power in the configuration of muster kube, and errors in it.
func TestKubePower(t *testing.T) {
	c, err := ReadKube("f.yaml",
		strings.NewReader("power:\n  - {selector: {pool: batch}, resume_time: 6m, suspend_program: /opt/off, suspend_exc_nodes: n1}\n  - {selector: {pool: spot}, buffer: 2, resume_timeout: 5m}\n"))
	if err != nil {
		t.Fatal(err)
	}
	p := c.Power[0]
	if p.Rule.Buffer != -1 || p.Timeout != 18*time.Minute || p.Suspend != "/opt/off" || p.Selector["pool"] != "batch" ||
		p.Rule.Except[0] != "n1" || c.Power[1].Rule.Buffer != 2 || c.Power[1].Timeout != 5*time.Minute {
		t.Errorf("%+v", c.Power)
	}
	text := ""
	for _, s := range c.Settings() {
		text += s.Key + ": " + s.Value + "\n"
	}
	if want := "power[0]: selector pool=batch, every 10m"; !strings.Contains(text, want) ||
		!strings.Contains(text, "suspend_program /opt/off") {
		t.Errorf("%q is not in\n%s", want, text)
	}
	for _, c := range []struct{ text, want string }{
		{"policy: fifo\npower: [{}]\n", "f.yaml:2: power: 0: selector: which nodes"},
		{"power: [{partition: p}]\n", "power: 0: partition: on Kubernetes nodes are chosen by their labels"},
		{"power: [{selector: {a: b}, watts: {idle: 1}}]\n", "watts: only muster sim"},
		{"power: [{selector: {a: b}, suspend_program: off.sh}]\n", `suspend_program: "off.sh" is not an absolute path`},
		{"power: [{selector: {a: b}, resume_timeout: 1m}]\n", "resume_timeout: 1m; at least resume_time (5m)"},
		{"power: [{selector: {a: b}}, {selector: {a: b}}]\n", "power: 1: selector: the nodes are those of 0"},
		{"power: [{selector: {a: b}}, {selector: {a: b, c: d}}]\n",
			"power: 1: selector: the nodes are those of 0 (a=b), and a node is of the first"},
		{"power: [{selector: {a: b}, bufer: 1}]\n", `did you mean "buffer"?`},
	} {
		if _, err := ReadKube("f.yaml", strings.NewReader(c.text)); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.text, err, c.want)
		}
	}
}
