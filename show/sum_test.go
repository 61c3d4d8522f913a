package show

import (
	"reflect"
	"testing"
)

// TestSumOf: a job on several GPUs of a node counts once, each fault as often as it is there.
func TestSumOf(t *testing.T) {
	n := &Node{GPUs: []GPU{{Model: "A30-24GB", Free: 500, Jobs: []int{7, 3}}, {Model: "A30-24GB", Jobs: []int{3, 9}},
		{Model: "A30-24GB", Free: 250, Fault: "XID 79"}, {Model: "A30-24GB", Fault: "XID 79"},
		{Model: "A30-24GB", Fault: "gone"}}}
	want := NodeSum{Model: "A30-24GB", Free: 750, Jobs: []int{7, 3, 9}, Faults: map[string]int{"XID 79": 2, "gone": 1}}
	if s := SumOf(n); !reflect.DeepEqual(s, want) {
		t.Errorf("%+v, not %+v", s, want)
	}
	if s := SumOf(&Node{}); s.Free != 0 || s.Jobs != nil || s.Faults == nil || len(s.Faults) != 0 {
		t.Errorf("a node without GPUs has %+v", s)
	}
}
