package scale

import "github.com/muster-gpu/muster/internal/knobs"

var staticKind = kind{knobs.Kind{Name: "static", About: "always the same number of replicas of the first variant",
	Knobs: []knobs.Knob{{Name: "replicas", Default: "0", About: "how many; 0: the most that the service allows"}}},
	func(k *knobs.Set) (Policy, error) {
		n, err := k.Number("replicas", 0, 1e4)
		return &static{int(n)}, err
	}}

// static never changes anything: what a Deployment without autoscaler does.
type static struct{ replicas int }

func (s *static) Decide(v *View) []int {
	n := s.replicas
	if n == 0 {
		n = v.Service.Replicas.Max
	}
	return only(v, 0, n)
}
