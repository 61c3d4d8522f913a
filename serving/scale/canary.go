package scale

import "math"

// stable is a view without a service's canary, which is all that a policy decides about.
func (v *View) stable() *View {
	if v.Service.Canary == 0 {
		return v
	}
	last := len(v.Service.Variants) - 1
	spec, shown := *v.Service, *v
	spec.Canary, spec.Variants = 0, spec.Variants[:last]
	spec.Replicas.Max -= canaries(v.Service.Canary, spec.Replicas.Max-1)
	spec.Replicas.Max = max(1, spec.Replicas.Max)
	spec.Replicas.Min = min(spec.Replicas.Min, spec.Replicas.Max)
	shown.Service, shown.Have = &spec, nil
	shown.Arrived = int64(math.Round((1 - v.Service.Canary) * float64(v.Arrived)))
	shown.Ready, shown.Coming = v.Ready[:min(last, len(v.Ready))], v.Coming[:min(last, len(v.Coming))]
	for _, r := range v.Have {
		if r.Variant != last {
			shown.Have = append(shown.Have, r)
		}
	}
	return &shown
}

// withCanary adds the canary's replicas to those that are wanted of the other variants: as many as its part needs.
func (v *View) withCanary(want []Want) []Want {
	if v.Service.Canary == 0 {
		return want
	}
	last, total := len(v.Service.Variants)-1, 0
	for _, w := range want {
		total += w.Replicas
	}
	return append(want, Want{Kind{last, v.Service.Variants[last].Share()}, canaries(v.Service.Canary, total)})
}

// canaries is how many replicas answer a part of the requests whose rest a number of others answer.
func canaries(part float64, others int) int {
	return int(math.Ceil(part/(1-part)*float64(others) - 1e-9))
}
