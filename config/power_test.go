package config

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// What a file says of power is what the cluster has; the buffer that it leaves out is a twentieth of the nodes.
func TestPower(t *testing.T) {
	const nodes = "nodes: [{name: 'n[1-41]', model: H100, gpus: 8}]\npartitions: [{name: p, nodes: 'n[1-40]'}]\n"
	s, err := Read("f.yaml", strings.NewReader(nodes+"power:\n  - {partition: p, every: 5m, history: 30m, future: 6h, fell: 0.5, falls: 0, least: 3, keep: 1h, suspend_time: 0s, "+
		"suspend_exc_nodes: 'n[1-2]', resume_time: 4m, watts: {asleep: 20, idle: 1500, busy: 6500}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := cluster.Power{Partition: "p", Except: []string{"n1", "n2"}, Every: 5 * time.Minute, Buffer: 2, History: 30 * time.Minute, Future: 6 * time.Hour,
		Fell: 500, Falls: 0, Least: 3, Keep: time.Hour, Wake: 4 * time.Minute, Watts: cluster.Watts{Asleep: 20, Idle: 1500, Busy: 6500}}
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
