package scale

import "github.com/muster-gpu/muster/internal/knobs"

var tritonKind = kind{knobs.Kind{Name: "triton", About: "Triton: always the same replicas, with its dynamic batcher",
	Knobs: []knobs.Knob{{Name: "replicas", Default: "0", About: "how many; 0: the most that the service allows"}}},
	func(k *knobs.Set) (Policy, error) {
		n, err := k.Number("replicas", 0, 1e4)
		return &triton{static{int(n)}}, err
	}}

// Triton Inference Server leaves the number of instances to people, and batches dynamically.
type triton struct{ static }

// Batching is the rule that goes with it.
func (*triton) Batching() string { return "triton" }
