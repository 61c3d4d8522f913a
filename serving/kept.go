package serving

import "time"

// With random arrivals a promise is kept if in each of several plays hardly any request is late.
const (
	mostLate    = 0.01     // fraction of a service's requests
	keptSeeds   = 5        // plays, with seeds that nothing else uses
	mostPlayed  = 20 << 20 // requests in a play, of all services together
	mostPlans   = 24       // plans that are tried
	mostReserve = 4        // factor on a service's rate
)

// Kept plans so that promises hold for Poisson arrivals as well: a service of which more than 1 % of the
// requests are late in a play is planned for a tenth more, until there is none. It returns the plan, and the
// factor on its rate for which each service was planned; kept is false where that did not suffice. plan makes a
// plan for services with other rates.
func Kept(services []Service, plan func([]Service) (*Plan, error)) (p *Plan, times []float64, kept bool, err error) {
	times = make([]float64, len(services))
	for k := range times {
		times[k] = 1
	}
	rates := 0.0
	for k := range services {
		rates += services[k].Rate
	}
	length := time.Minute
	if most := mostPlayed / max(rates, 1e-9); most < length.Seconds() {
		length = time.Duration(most * float64(time.Second))
	}
	for range mostPlans {
		planned := make([]Service, len(services))
		for k := range services {
			planned[k] = services[k]
			planned[k].Rate *= times[k]
		}
		if p, err = plan(planned); err != nil {
			return nil, nil, false, err
		}
		late := lateIn(p, services, length)
		stuck := true
		kept = true
		for k := range times {
			if late[k] && times[k] < mostReserve {
				times[k], stuck = min(times[k]*1.1, mostReserve), false
			}
			kept = kept && !late[k]
		}
		if kept || stuck {
			return p, times, kept, nil
		}
	}
	return p, times, false, nil
}

// lateIn reports which services break their promise in some play.
func lateIn(p *Plan, services []Service, length time.Duration) []bool {
	late := make([]bool, len(services))
	for seed := range uint64(keptSeeds) {
		for k, s := range Play(p, services, Poisson, 1<<32+seed, length) {
			late[k] = late[k] || float64(s.Late) > mostLate*float64(s.Requests)
		}
	}
	return late
}
