package serving

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// TestKept: plans of several sets of services keep their promises under Poisson arrivals of other seeds than
// those of planning; plans for the rates alone do not.
func TestKept(t *testing.T) {
	m := model(t, "A100-80GB")
	broken := 0
	for set := range uint64(6) {
		r := rand.New(rand.NewPCG(set, 7))
		var services []Service
		for k := range 3 {
			s := Service{Name: fmt.Sprint("s", k), Latency: time.Duration(60+r.IntN(120)) * time.Millisecond}
			base := 20 + 60*r.Float64()
			for slices := 1; slices <= 7; slices++ {
				if slices == 5 || slices == 6 {
					continue
				}
				for _, batch := range []int{1, 2, 4} {
					rate := base * float64(slices) * (0.7 + 0.1*float64(batch))
					s.Points = append(s.Points,
						Point{Compute: slices, Batch: batch, Processes: 1, Rate: rate,
							Latency: time.Duration(float64(batch) / rate * float64(time.Second))})
				}
			}
			s.Rate = base * (0.5 + 3*r.Float64())
			services = append(services, s)
		}
		bare, err := Make(m, services, 1)
		if err != nil {
			continue // a service that is too slow on every instance
		}
		for k, s := range Play(bare, services, Poisson, 99, time.Minute) {
			if float64(s.Late) > mostLate*float64(s.Requests) {
				broken++
				t.Logf("set %d, service %d: %d of %d late without headroom", set, k, s.Late, s.Requests)
			}
		}
		p, times, kept, err := Kept(services, func(list []Service) (*Plan, error) { return Make(m, list, 1) })
		if err != nil || !kept {
			t.Fatalf("set %d: %v, kept %v with %v", set, err, kept, times)
		}
		for k, s := range Play(p, services, Poisson, 99, time.Minute) {
			if float64(s.Late) > 1.5*mostLate*float64(s.Requests) { // another sample than those of planning
				t.Errorf("set %d, service %d: %d of %d late, planned for %.2f times its rate", set, k, s.Late,
					s.Requests, times[k])
			}
		}
	}
	if broken == 0 {
		t.Error("no plan without headroom breaks a promise: these sets show nothing")
	}
}
