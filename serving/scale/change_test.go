package scale

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/service"
)

// TestChange: what does not answer yet leaves before what does, the newest first; what answers stays until what is
// wanted of another variant answers; what leaves already counts for nothing.
func TestChange(t *testing.T) {
	answers, starts, leaves := Replica{Answers: true}, Replica{}, Replica{Answers: true, Leaves: true}
	other := Replica{Kind: Kind{Variant: 1}, Answers: true}
	for _, c := range []struct {
		want  []int
		have  []Replica
		add   []int
		leave []int
	}{
		{[]int{2, 1}, nil, []int{2, 1}, nil},
		{[]int{2, 0}, []Replica{answers, starts}, []int{0, 0}, nil},
		{[]int{1, 0}, []Replica{answers, starts, answers}, []int{0, 0}, []int{1, 2}},
		{[]int{1, 0}, []Replica{answers, leaves}, []int{0, 0}, nil},
		{[]int{2, 0}, []Replica{answers, leaves}, []int{1, 0}, nil},
		{[]int{0, 2}, []Replica{answers, other, starts}, []int{0, 1}, []int{2}},
		{[]int{0, 2}, []Replica{answers, other, other}, []int{0, 0}, []int{0}},
	} {
		want := make([]Want, len(c.want))
		for i, n := range c.want {
			want[i] = Want{Kind{Variant: i}, n}
		}
		list, leave := Change(want, c.have)
		add := make([]int, len(want))
		for _, w := range list {
			add[w.Variant] = w.Replicas
		}
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
		if _, ok := p.(Planner); ok {
			if err := Check(p, s); err == nil || !strings.Contains(err.Error(), "share: 0.5") {
				t.Errorf("%s plans parts of GPUs without measurements: %v", k.Name, err)
			}
			continue
		}
		if _, ok := p.(*distserve); ok { // there is no language model whose phases it could part
			continue
		}
		if want := p.Decide(v); len(want) != 1 || want[0] < 1 || want[0] > 4 {
			t.Errorf("%s wants %v", k.Name, want)
		}
	}
}

// TestChangeOfShares: what answers stays until all replicas with the new share answer; what does not answer yet leaves
// at once; where the new ones are stuck one makes room, and never the last that answers.
func TestChangeOfShares(t *testing.T) {
	kind := func(share cluster.Milli) Kind { return Kind{0, share} }
	answers := func(share cluster.Milli) Replica { return Replica{Kind: kind(share), Answers: true} }
	starts := func(share cluster.Milli) Replica { return Replica{Kind: kind(share)} }
	stuck, leaves := starts(400), answers(800)
	stuck.Stuck, leaves.Leaves = true, true
	want := []Want{{kind(400), 2}}
	for name, c := range map[string]struct {
		want  []Want
		have  []Replica
		add   []Want
		leave []int
	}{
		"asked for":             {want, []Replica{answers(800)}, []Want{{kind(400), 2}}, nil},
		"one answers":           {want, []Replica{answers(800), answers(400), starts(400)}, nil, nil},
		"all answer":            {want, []Replica{answers(800), answers(400), answers(400)}, nil, []int{0}},
		"not answering":         {want, []Replica{starts(800), answers(400), starts(400)}, nil, []int{0}},
		"fewer of one share":    {[]Want{{kind(400), 1}}, []Replica{answers(400), answers(400)}, nil, []int{1}},
		"stuck":                 {want, []Replica{answers(800), answers(800), stuck, stuck}, nil, []int{1}},
		"stuck, one leaves":     {want, []Replica{answers(800), answers(800), leaves, stuck, stuck}, nil, nil},
		"stuck behind the last": {want, []Replica{answers(800), stuck, stuck}, nil, nil},
		"nothing is wanted":     {nil, []Replica{answers(800), starts(400)}, nil, []int{0, 1}},
	} {
		add, leave := Change(c.want, c.have)
		if !reflect.DeepEqual(add, c.add) || !reflect.DeepEqual(leave, c.leave) {
			t.Errorf("%s: add %v, leave %v, not %v, %v", name, add, leave, c.add, c.leave)
		}
	}
}
