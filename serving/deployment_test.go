package serving

import (
	"strings"
	"testing"
)

// An error in a file names the instance and what would be right.
func TestReadDeploymentErrors(t *testing.T) {
	const good = `{"model": "A100-80GB", "gpus": 1, "services": [{"service": "a", "rate": 10, "latency_ms": 100}],
		"instances": [{"gpu": 0, "profile": "3g.40gb", "start": 4, "service": "a", "batch": 1, "processes": 1, "rate": 20, "latency_ms": 40}]}`
	m := model(t, "A100-80GB")
	if _, err := ReadDeployment("f", []byte(good), m); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ old, new, want string }{
		{`{"model"`, `["model"`, "f: "},
		{`"gpus"`, `"gpu"`, `unknown field "gpu"`},
		{"A100-80GB", "H100-80GB", `model "H100-80GB"; this plan is for A100-80GB`},
		{`"service": "a", "rate": 10`, `"service": "", "rate": 10`, "want a name of its own"},
		{`"rate": 10`, `"rate": 0`, "service a: rate 0"},
		{`"gpu": 0`, `"gpu": -1`, "instance 0: gpu -1; want a number from 0"},
		{`3g.40gb`, `5g.40gb`, `does not offer MIG profile "5g.40gb"`},
		{`"start": 4`, `"start": 2`, "GPU 0: 3g.40gb cannot start at memory slice 2; [0 4] are possible"},
		{`"service": "a", "batch"`, `"service": "b", "batch"`, `service "b" is not one of services`},
		{`"batch": 1`, `"batch": 0`, "instance 0: want a batch"},
	} {
		if _, err := ReadDeployment("f", []byte(strings.Replace(good, c.old, c.new, 1)), m); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.new, err, c.want)
		}
	}
}
