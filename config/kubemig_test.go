package config

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// Partitioning in the configuration of muster kube, and errors in it.
func TestKubeMIG(t *testing.T) {
	c, err := ReadKube("f.yaml",
		strings.NewReader("mig:\n  - {selector: {pool: shared}, configs: [all-disabled, all-1g.10gb], after: 2m}\n  - {selector: {pool: other}, config_map: ops/mig, keep: 0s, timeout: 5m}\nlabels: {mig_config: example.org/mig}\n"))
	if err != nil {
		t.Fatal(err)
	}
	a, b := c.MIG[0], c.MIG[1]
	if a.Space != "gpu-operator" || a.Map != "default-mig-parted-config" || len(a.Configs) != 2 ||
		a.After != 2*time.Minute || a.Keep != 10*time.Minute || a.Timeout != 15*time.Minute {
		t.Errorf("%+v", a)
	}
	if b.Space != "ops" || b.Map != "mig" || b.Configs != nil || b.After != time.Minute || b.Keep != 0 ||
		b.Timeout != 5*time.Minute {
		t.Errorf("%+v", b)
	}
	if l := c.Labels; l.Config != "example.org/mig" || l.State != "nvidia.com/mig.config.state" ||
		l.Strategy != "nvidia.com/mig.strategy" || l.Count != "nvidia.com/gpu.count" {
		t.Errorf("%+v", l)
	}
	text := ""
	for _, s := range c.Settings() {
		text += s.Key + ": " + s.Value + "\n"
	}
	for _, want := range []string{"mig[0]: selector pool=shared, config_map gpu-operator/default-mig-parted-config, configs all-disabled,all-1g.10gb, after 2m", "mig[1]: selector pool=other, config_map ops/mig, configs all", "labels.mig_config: example.org/mig"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	for _, c := range []struct{ text, want string }{
		{"policy: fifo\nmig: [{}]\n", "f.yaml:2: mig: 0: selector: which nodes"},
		{"mig: [{selector: {a: b}, config_map: x}]\n", `config_map: "x" is not NAMESPACE/NAME`},
		{"mig: [{selector: {a: b}, configs: [x, x]}]\n", `configs: "x" is empty or listed twice`},
		{"mig: [{selector: {a: b}, timeout: 0s}]\n", "timeout: 0s; partitioning a node takes a minute"},
		{"mig: [{selector: {a: b}}, {selector: {a: b, c: d}}]\n", "mig: 1: selector: the nodes are those of 0 (a=b)"},
		{"mig: [{selector: {a: b}, confgs: [x]}]\n", `did you mean "configs"?`},
		{"mig: [{selector: {a: b}}]\ngpu_resources: [amd.com/gpu]\n", "mig: gpu_resources has no nvidia.com/gpu"},
	} {
		if _, err := ReadKube("f.yaml", strings.NewReader(c.text)); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.text, err, c.want)
		}
	}
}

const partedText = `version: v1
mig-configs:
  all-disabled: [{devices: all, mig-enabled: false}]
  all-1g.10gb: [{devices: all, mig-enabled: true, mig-devices: {"1g.10gb": 7}}]
  all-balanced:
  - {device-filter: ["0x20B010DE"], devices: all, mig-enabled: true, mig-devices: {"1g.5gb": 2, "2g.10gb": 1, "3g.20gb": 1}}
  - {device-filter: "0x233010DE", devices: all, mig-enabled: true, mig-devices: {"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1}}
  half: [{devices: [0], mig-enabled: false}, {devices: [1], mig-enabled: true, mig-devices: {"1g.10gb+me": 1, "1g.10gb": 6}}]
  too-many: [{devices: all, mig-enabled: true, mig-devices: {"4g.40gb": 2}}]
  unknown: [{devices: all, mig-enabled: true, mig-devices: {"9g.90gb": 1}}]
  twice: [{devices: all, mig-enabled: false}, {devices: [0], mig-enabled: true, mig-devices: {"7g.80gb": 1}}]
  empty: [{devices: all, mig-enabled: true}]
  off: [{devices: all, mig-enabled: false, mig-devices: {"7g.80gb": 1}}]
`

// What configurations make of a node, and which are impossible, named by entry and profile.
func TestMIGOffer(t *testing.T) {
	c, err := ReadMIGConfigs(partedText)
	if err != nil {
		t.Fatal(err)
	}
	h100, _ := cluster.FindModel("H100-80GB")
	for _, v := range []struct {
		name string
		gpus int
		want string // what the node has, or the error
	}{
		{"all-disabled", 8, "8 GPUs"}, {"all-1g.10gb", 8, "56 1g.10gb"},
		{"all-balanced", 2, "4 1g.10gb, 2 2g.20gb, 2 3g.40gb"}, {"half", 2, "1 GPUs, 6 1g.10gb, 1 1g.10gb+me"},
		{"half", 1, "half: entry 1: devices: GPU 1: the node has GPUs 0 to 0"},
		{"half", 4, "half: no entry describes GPU 2"},
		{"too-many", 1, "too-many: entry 0: mig-devices: a GPU of model H100-80GB cannot have 2 4g.40gb at once"},
		{"unknown", 1, "unknown: entry 0: H100-80GB does not offer MIG profile 9g.90gb; it offers"},
		{"twice", 2, "twice: entry 1: devices: GPU 0 is described twice"},
		{"empty", 1, "empty: entry 0: mig-devices: a GPU in MIG mode without instances"},
		{"off", 1, "off: entry 0: mig-devices: mig-enabled is false"},
		{"all-1g.10g", 1, `did you mean "all-1g.10gb"?`},
	} {
		o, err := c.Offer(v.name, &h100, v.gpus)
		if got := o.Text(); err == nil && got != v.want || err != nil && !strings.Contains(err.Error(), v.want) {
			t.Errorf("%s on %d: %q, %v, want %q", v.name, v.gpus, got, err, v.want)
		}
	}
	a30, _ := cluster.FindModel("A30-24GB")
	if _, err := c.Offer("all-balanced", &a30, 1); err == nil ||
		!strings.Contains(err.Error(), "does not offer MIG profile 1g.5gb") {
		t.Errorf("%v", err)
	}
	for text, want := range map[string]string{"version: v2\nmig-configs: {}": `version: "v2" is not v1`,
		"version: v1": "mig-configs: there are none",
		"version: v1\nmig-configs: {a: [{devices: some}]}": `devices: "some" is neither all nor a list`,
		"version: v1\nmig-configs: {a: [{devices: [x]}]}":  "devices: neither all nor a list of numbers"} {
		if _, err := ReadMIGConfigs(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// Profiles that are said to fit together on one GPU are those in the tables of layouts.
func TestMIGTogether(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 5))
	possible := 0
	for _, name := range []string{"A100-40GB", "H100-80GB", "A30-24GB", "H200-141GB"} {
		m, ok := cluster.FindModel(name)
		if !ok {
			t.Fatal(name)
		}
		for range 2000 {
			e := migEntry{Enabled: true, Slices: map[string]int{}}
			for range 1 + r.IntN(3) {
				p := &m.Profiles[r.IntN(len(m.Profiles))]
				e.Slices[p.Name] = 1 + r.IntN(3)
			}
			var names []string
			for _, p := range slices.Sorted(maps.Keys(e.Slices)) {
				for range e.Slices[p] {
					names = append(names, p)
				}
			}
			gpus, exact, err := m.Fit(names)
			if err == nil && !exact && len(gpus) > 1 { // perhaps on fewer
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			err = e.check(&m)
			if (err == nil) != (len(gpus) == 1) {
				t.Fatalf("%s: %v: %v, but they fit on %d GPUs", name, e.Slices, err, len(gpus))
			}
			if err == nil {
				possible++
			}
		}
	}
	if possible < 1000 {
		t.Errorf("%d of 8000 were possible", possible)
	}
}
