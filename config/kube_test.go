package config

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

// The configuration of muster kube is read, with its defaults, and invalid values are refused by line.
func TestKube(t *testing.T) {
	c, err := ReadKube("kube.yaml", strings.NewReader("\n"))
	if err != nil || c.Policy != "multifactor" || c.Scheduler != "muster" || c.GPUs[0] != "nvidia.com/gpu" ||
		c.Repair || c.Labels.Clique != "nvidia.com/gpu.clique" {
		t.Fatalf("%+v, %v", c, err)
	}
	c, err = ReadKube("kube.yaml", strings.NewReader(`
policy: fifo
default_queue: a
queues: [{name: a, guarantee: 4}]
gpu_resources: [nvidia.com/gpu, amd.com/gpu]
gpu_drivers: [gpu.nvidia.com, gpu.amd.com]
labels: {rack: topology.example.com/rack}
stop: {standard: {grace: 30s}}
apiVersion: muster.sh/v1alpha1
kind: MusterConfiguration
priority_classes: {scavenger: best-effort}
on_node_loss: repair
defragment: {mode: auto, moves: 2, await: 30s}
sharing: {min_speed: 0.5}
`))
	if err != nil || !c.Repair || c.DefaultQueue != "a" || len(c.GPUs) != 2 ||
		c.Labels.Rack != "topology.example.com/rack" || c.Labels.Product != "nvidia.com/gpu.product" ||
		c.Stop[1].How != engine.Checkpoint || c.Classes["scavenger"] != cluster.BestEffort ||
		c.Classes["muster-critical"] != cluster.Critical {
		t.Fatalf("%+v, %v", c, err)
	}
	if c.Defrag == nil || !c.Defrag.Auto || c.Defrag.Moves != 2 || c.Await != 30*time.Second || c.MinSpeed != 500_000 {
		t.Fatalf("%+v %s", c.Defrag, c.Await)
	}
	if plain, err := ReadKube("kube.yaml", strings.NewReader("policy: fifo\n")); err != nil || plain.Defrag != nil {
		t.Fatalf("by default no gang is moved, got %+v %v", plain, err)
	}
	for text, want := range map[string]string{
		"policy: fifo\nplase: best-fit\n":             `kube.yaml:2: unknown key "plase": did you mean "place"?`,
		"labels: {rak: x}\n":                          `unknown key "rak": did you mean "rack"?`,
		"gpu_resources: [gpu]\n":                      "not an extended resource such as nvidia.com/gpu",
		"gpu_drivers: [nvidia.com/gpu]\n":             "not the name of a DRA driver such as gpu.nvidia.com",
		"queues: [{name: a}]\ndefault_queue: b\n":     "kube.yaml:2",
		"stop: {standard: {how: suspend}}\n":          "a pod cannot be frozen on Kubernetes",
		"starvation: -1s\n":                           "",
		"apiVersion: v1\n":                            `"v1" is not muster.sh/v1alpha1`,
		"policy: fifo\nkind: Pod\n":                   `kube.yaml:2: kind: "Pod" is not MusterConfiguration`,
		"on_node_loss: restart\n":                     `on_node_loss: "restart" is neither requeue nor repair`,
		"priority_classes: {a: urgent}\n":             "urgent",
		"defragment: {await: 10ms}\n":                 "defragment: await: 10ms; a second is the shortest",
		"defragment: {mode: always}\n":                "mode",
		"sharing: {min_speed: 2}\n":                   "sharing: min_speed: 2 is not a part of a job's speed",
		"defragment: {awayt: 1m}\n":                   `unknown key "awayt": did you mean "await"?`,
		"log_level: loud\n":                           "unknown log level",
		"queues: [{name: a, guarantee: 5, limit: 2}]": "limit",
	} {
		if _, err := ReadKube("kube.yaml", strings.NewReader(text)); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// The spec of a Queue object is read in the words of a file; an invalid value is an error that names the field.
func TestKubeQueue(t *testing.T) {
	q, err := ReadKubeQueue("a", []byte(`{"parent": "org", "guarantee": 0.5, "limit": 8, "weight": 2, "period": "4w", "budget": 9, "userGPUs": 4, "noReclaim": true,
		"tiers": ["best-effort"], "namespaces": ["x", "team-*"], "windows": [{"days": ["mon-tue", "sat"], "from": "22h", "to": "07:30", "limit": 2}]}`))
	if err != nil {
		t.Fatal(err)
	}
	w := cluster.Window{Days: 1<<1 | 1<<2 | 1<<6, From: 22 * time.Hour, To: 7*time.Hour + 30*time.Minute,
		Guarantee: cluster.Unlimited, Limit: 2000}
	want := cluster.Queue{Name: "a", Parent: "org", Guarantee: 500, Limit: 8000, Lend: cluster.Unlimited, Weight: 2000,
		Period: 28 * 24 * time.Hour, Budget: 9,
		UserGPUs: 4000, NoReclaim: true, Windows: []cluster.Window{w}}
	if !reflect.DeepEqual(q.Queue, want) || q.Tiers[0] != cluster.BestEffort {
		t.Errorf("%+v, want %+v", q, want)
	}
	for namespace, want := range map[string]bool{"x": true, "team-a": true, "y": false} {
		if takes, said := q.Takes(namespace); takes != want || !said {
			t.Errorf("%s: %v, %v", namespace, takes, said)
		}
	}
	for spec, want := range map[string]string{
		`{"guarante": 1}`:                    `unknown field "guarante"`,
		`{"guarantee": -1}`:                  "spec.guarantee: -1 is not a number of GPUs",
		`{"weight": -1}`:                     "spec.weight",
		`{"tiers": ["urgent"]}`:              "spec.tiers",
		`{"namespaces": ["["]}`:              "spec.namespaces",
		`{"period": "a while"}`:              "spec:",
		`{"windows": [{"from": "25:00"}]}`:   "not a time of day",
		`{"windows": [{"days": ["noday"]}]}`: "not a set of weekdays",
		`{"windows": [{}, {"limit": -2}]}`:   "spec.windows[1].limit",
		`[]`:                                 "spec:",
	} {
		if _, err := ReadKubeQueue("a", []byte(spec)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", spec, err, want)
		}
	}
}

// Reading any spec ends with a queue or an error.
func FuzzKubeQueue(f *testing.F) {
	f.Add([]byte(`{"guarantee": 0.5, "windows": [{"days": ["mon"], "from": "22h", "to": "7h", "limit": 1}], "tiers": ["standard"], "namespaces": ["a*"]}`))
	f.Fuzz(func(t *testing.T, spec []byte) {
		q, err := ReadKubeQueue("a", spec)
		if err == nil && (q.Guarantee < 0 || q.Limit < cluster.Unlimited || q.Weight < 0) {
			t.Errorf("%+v", q)
		}
	})
}

// TestKubeServices: the section turns the scaling of services on, and is listed.
func TestKubeServices(t *testing.T) {
	c, err := ReadKube("k.yaml", strings.NewReader("policy: fifo"))
	if err != nil || c.Services != nil {
		t.Errorf("%+v without the section: %v", c, err)
	}
	c, err = ReadKube("k.yaml", strings.NewReader("services: {}"))
	if err != nil || c.Services == nil || c.Services.Period != 15*time.Second {
		t.Errorf("%+v: %v", c, err)
	}
	c, err = ReadKube("k.yaml", strings.NewReader("services: {period: 5s, prometheus: 'http://p:9090'}"))
	if err != nil || !slices.Contains(c.Settings(),
		Setting{Key: "services", Value: "period 5s, prometheus http://p:9090"}) {
		t.Errorf("%+v: %v", c.Settings(), err)
	}
	for text, want := range map[string]string{"{period: 100ms}": "from 1s to 1h",
		"{prometheus: 'p:9090'}": "no address", "{promethius: x}": `did you mean "prometheus"`,
		"{weights: /w.json}":                                     "on Kubernetes no service is under inss-rl",
		"{prometheus_access: {token_file: t}}":                   "prometheus is missing",
		"{prometheus: 'http://p', prometheus_access: {user: a}}": "belong together",
		"{prometheus: 'http://p', prometheus_access: {token_file: t, user: a, password_file: p}}": "either token_file",
		"{prometheus: 'http://p', prometheus_access: {ca_file: c}}":                               "does not begin with https"} {
		if _, err := ReadKube("k.yaml", strings.NewReader("services: "+text)); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
