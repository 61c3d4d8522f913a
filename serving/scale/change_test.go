package scale

import (
	"reflect"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/service"
)

// TestChange: what does not answer yet leaves before what does, the newest first; what leaves already counts
// for nothing.
func TestChange(t *testing.T) {
	answers, starts, leaves := Replica{Answers: true}, Replica{}, Replica{Answers: true, Leaves: true}
	other := Replica{Variant: 1, Answers: true}
	for _, c := range []struct {
		want       []int
		have       []Replica
		add, leave []int
	}{
		{[]int{2, 1}, nil, []int{2, 1}, nil},
		{[]int{2, 0}, []Replica{answers, starts}, []int{0, 0}, nil},
		{[]int{1, 0}, []Replica{answers, starts, answers}, []int{0, 0}, []int{1, 2}},
		{[]int{1, 0}, []Replica{answers, leaves}, []int{0, 0}, nil},
		{[]int{2, 0}, []Replica{answers, leaves}, []int{1, 0}, nil},
		{[]int{0, 2}, []Replica{answers, other, starts}, []int{0, 1}, []int{2, 0}},
	} {
		add, leave := Change(c.want, c.have)
		if !reflect.DeepEqual(add, c.add) || !reflect.DeepEqual(leave, c.leave) {
			t.Errorf("%v of %v: add %v, leave %v, not %v, %v", c.want, c.have, add, leave, c.add, c.leave)
		}
	}
}

// TestUnmeasured: of a service whose batches were never measured every policy runs something.
func TestUnmeasured(t *testing.T) {
	for _, k := range List() {
		p, err := New(k.Name)
		if err != nil {
			t.Fatal(err)
		}
		s := &service.Service{Name: "s", Goal: service.Goal{Latency: time.Second, Percentile: 99},
			Replicas: service.Replicas{Min: 0, Max: 4}, Variants: []service.Variant{{Name: "a", Measure: true,
				Request: cluster.Request{GPUs: 1}}}}
		v := &View{Now: 1, Period: time.Second, Service: s, Arrived: 10, Waiting: 3, Ready: []int{0}, Coming: []int{0}}
		if want := p.Decide(v); len(want) != 1 || want[0] < 1 || want[0] > 4 {
			t.Errorf("%s wants %v", k.Name, want)
		}
	}
}
