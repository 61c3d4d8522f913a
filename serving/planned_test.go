package serving

import (
	"math/rand/v2"
	"reflect"
	"testing"
)

// TestPlanFor: for a factor the plan is Make's, without one it is Kept's; from what is deployed it is as near as it
// gets, with the way there.
func TestPlanFor(t *testing.T) {
	m := model(t, "A100-80GB")
	x, y := map[int]float64{1: 10, 2: 18, 3: 30, 4: 36, 7: 56}, map[int]float64{1: 5, 2: 15, 7: 50}
	services := []Service{measured("X", 60, x), measured("Y", 30, y)}
	want, err := Make(m, services, 1)
	if err != nil {
		t.Fatal(err)
	}
	p, err := PlanFor(m, services, 1, nil, -1)
	if err != nil || !reflect.DeepEqual(p, &Planned{Plan: want, Kept: true}) {
		t.Fatalf("%+v, %v; want the plan %+v", p, err, want)
	}
	if more, err := PlanFor(m, services, 2, nil, -1); err != nil || more.GPUs <= p.GPUs {
		t.Errorf("for twice the rates: %+v, %v", more, err)
	}
	kept, times, is, err := Kept(services, func(list []Service) (*Plan, error) { return Make(m, list, 1) })
	if err != nil {
		t.Fatal(err)
	}
	if p, err := PlanFor(m, services, 0, nil, -1); err != nil ||
		!reflect.DeepEqual(p, &Planned{Plan: kept, Times: times, Kept: is}) {
		t.Errorf("for Poisson arrivals: %+v, %v", p, err)
	}
	d := readBack(t, m, Deploy(m, want, services))
	if same, err := PlanFor(m, services, 1, d, -1); err != nil || same.Change == nil || len(same.Change.Steps) != 0 ||
		same.Change.Plan != same.Plan || same.Change.Keeps != len(want.Instances) {
		t.Errorf("from what it is already: %+v, %v", same, err)
	}
	less := []Service{services[0]}
	less[0].Rate = 30
	p, err = PlanFor(m, less, 1, d, 0)
	if err != nil || p.Change == nil || len(p.Change.Steps) == 0 || p.Change.Spare != 0 || p.Plan != p.Change.Plan {
		t.Fatalf("for one service of the two: %+v, %v", p, err)
	}
	if short := checkChange(t, m, d, p.Change, less, 0); short > 0 {
		t.Errorf("short by %g", short)
	}
}

// TestPlanForNear: where rates have changed, more stays than on the way to a plan from scratch, in some cases;
// no more spare GPUs are used than there are.
func TestPlanForNear(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	m := model(t, "H100-80GB")
	more, fewer := 0, 0
	for range 60 {
		pool := randomKind(r, 0, 1+r.IntN(6))
		old, services := drawn(r, pool), drawn(r, pool)
		first, err := Make(m, old, 1)
		if err != nil {
			continue
		}
		d := readBack(t, m, Deploy(m, first, old))
		p, err := PlanFor(m, services, 1, d, -1)
		if err != nil {
			continue
		}
		scratch, err := Make(m, services, 1)
		if err != nil {
			t.Fatal(err)
		}
		if c := d.To(m, scratch, services, -1); c.Keeps < p.Change.Keeps {
			more++
		}
		if p.Change.Spare == 0 {
			continue
		}
		less, err := PlanFor(m, services, 1, d, 0)
		if err != nil || less.Change.Spare != 0 {
			t.Fatalf("without spare GPUs: %+v, %v", less, err)
		}
		fewer++
	}
	if more == 0 || fewer == 0 {
		t.Errorf("%d plans keep more, %d need spare GPUs: this shows nothing", more, fewer)
	}
}

// TestPlanForErrors: a service that no instance is fast enough for is an error, whatever is asked.
func TestPlanForErrors(t *testing.T) {
	m := model(t, "A100-80GB")
	good := []Service{measured("X", 60, map[int]float64{7: 56})}
	plan, err := Make(m, good, 1)
	if err != nil {
		t.Fatal(err)
	}
	slow := []Service{good[0]}
	slow[0].Latency = 1
	for _, old := range []*Deployment{nil, readBack(t, m, Deploy(m, plan, good))} {
		for _, headroom := range []float64{0, 1} {
			if p, err := PlanFor(m, slow, headroom, old, -1); err == nil {
				t.Errorf("headroom %v, from %v: %+v", headroom, old, p)
			}
		}
	}
}
