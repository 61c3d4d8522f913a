package scale

import "github.com/muster-gpu/muster/internal/knobs"

var clipperKind = kind{
	knobs.Kind{Name: "clipper", About: "Clipper: always the same replicas, with batches that adapt to the goal",
		Knobs: []knobs.Knob{{Name: "replicas", Default: "0", About: "how many; 0: the most that the service allows"}}},
	func(k *knobs.Set) (Policy, error) {
		n, err := k.Number("replicas", 0, 1e4)
		return &clipper{static{int(n)}}, err
	}}

// Clipper (Crankshaw et al., NSDI 2017) leaves the number of replicas to people, and adapts batches.
type clipper struct{ static }

// Batching is the rule that goes with it.
func (*clipper) Batching() string { return "clipper" }
