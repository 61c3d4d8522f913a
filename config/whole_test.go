package config

import (
	"strings"
	"testing"
)

// A fraction is used as it is or refused: truncated, a budget of 0.9 would be unlimited.
func TestWholeNumbers(t *testing.T) {
	const nodes = "nodes: [{name: n, model: A100-80GB, gpus: 8}]\n"
	for _, c := range []struct{ text, want string }{
		{nodes + "queues:\n  - name: a\n    budget: 0.9\n", "f.yaml:4: budget: 0.9 is not a whole number"},
		{nodes + "queues:\n  - {name: a, shares: 1.9}\n", "f.yaml:3: shares: 1.9 is not a whole number"},
		{nodes + "queues:\n  - {name: a, max_jobs: 1.7}\n", "f.yaml:3: max_jobs: 1.7 is not a whole number"},
		{nodes + "queues:\n  - {name: a, children: [{name: b, user_jobs: 0.6}]}\n",
			"f.yaml:3: user_jobs: 0.6 is not a whole number"},
		{"nodes: [{name: n, model: A100-80GB, gpus: 7.5}]\n", "f.yaml:1: gpus: 7.5 is not a whole number"},
		{nodes + "partitions: [{name: p, nodes: n, max_gpus: 2.5}]\n", "f.yaml:2: max_gpus: 2.5 is not a whole number"},
		{nodes + "x: &x {user_jobs: 0.6}\nqueues:\n  - {<<: *x, name: a}\n", "f.yaml:2: unknown key \"x\""},
		{nodes + "queues:\n  - &x {name: a, user_jobs: 1}\n  - {<<: *x, name: b, budget: .5}\n",
			"f.yaml:4: budget: .5 is not a whole number"},
		{nodes + "queues:\n  - {name: a, guarantee: 0.0004}\n", "f.yaml:3: \"0.0004\" is not a number of GPUs"},
		{nodes + "queues:\n  - {name: a, weight: 0.0004}\n", "queue a: weight 0.0004"},
		{nodes + "queues:\n  - {name: a, budget: 1e3, guarantee: 0.5, weight: 1.5}\n", ""},
	} {
		_, err := Read("f.yaml", strings.NewReader(c.text))
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s\n%v", c.text, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s\n%v\nwant %s", c.text, err, c.want)
		}
	}
}
