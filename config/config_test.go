package config

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/perf"
)

const lab = `
name: lab
epoch: 2026-11-16T00:00:00Z
timezone: "+01:00"
models:
  - {name: X9-64GB, memory: 64GiB}
nodes:
  - {name: "n[01-03]", model: H100, gpus: 8, cpu: 192, ram: 2TiB, rack: r1}
  - {name: "x1,x[3-4]", model: X9-64GB, gpus: 2, state: draining}
partitions:
  - {name: train, nodes: "n[01-03]", default: true, default_time: 1d, max_time: 1w}
  - {name: serve, nodes: "x1", tiers: [critical], queues: [serving]}
queues:
  - {name: research, guarantee: 8, limit: 16, weight: 2}
  - name: product
    guarantee: 8
    children:
      - name: serving
        guarantee: 4
        reserve: 0.5
        windows:
          - {days: mon-fri, from: "07:00", to: "22:00", guarantee: 8}
reservations:
  - {name: class, start: 9h, end: 11h, every: 1d, gpus: 16, users: [ada]}
`

func TestReadCluster(t *testing.T) {
	s, err := Read("lab.yaml", strings.NewReader(lab))
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Nodes) != 6 || s.GPUs() != 30 || s.Nodes[2].Name != "n03" || s.Nodes[5].Name != "x4" {
		t.Errorf("nodes: %d, %d GPUs, %+v", len(s.Nodes), s.GPUs(), s.Nodes)
	}
	n := s.Nodes[0]
	if n.Model != "H100-80GB" || n.CPU != 192_000 || n.RAM != 2<<20 || s.Nodes[3].State != cluster.Draining {
		t.Errorf("node: %+v", n)
	}
	if s.Epoch != time.Date(2026, 11, 16, 0, 0, 0, 0, time.UTC).Unix() || s.Zone != 3600 {
		t.Errorf("epoch %d zone %d", s.Epoch, s.Zone)
	}
	if q := s.Queues[0]; q.Guarantee != 8000 || q.Limit != 16000 || q.Weight != 2000 || q.Lend != cluster.Unlimited {
		t.Errorf("queue: %+v", q)
	}
	serving := s.Queues[2]
	if serving.Parent != "product" || serving.Reserve != 500 || serving.Limit != cluster.Unlimited {
		t.Errorf("child: %+v", serving)
	}
	w := serving.Windows[0]
	if w.Days != 0b0111110 || w.From != 7*time.Hour || w.To != 22*time.Hour || w.Guarantee != 8000 ||
		w.Limit != cluster.Unlimited {
		t.Errorf("window: %+v", w)
	}
	if r := s.Reservations[0]; r.Start != cluster.Time(9*time.Hour) || r.Every != 24*time.Hour || r.GPUs != 16 {
		t.Errorf("reservation: %+v", r)
	}
	if err := Validate(s); err != nil {
		t.Errorf("valid cluster refused: %v", err)
	}
}

func TestBadCluster(t *testing.T) {
	node := "nodes: [{name: n1, model: H100, gpus: 8}]\n"
	for _, c := range []struct{ text, want string }{
		{"", "the file is empty"},
		{"name: x\n", "nodes: the cluster has none"},
		{node + "qeues: []\n", `f.yaml:2: unknown key "qeues": did you mean "queues"?`},
		{"nodes:\n  - name: n1\n    gpu: 8\n", `f.yaml:3: unknown key "gpu": did you mean "gpus"?`},
		{"nodes: [{name: n1, model: H1000, gpus: 8}]\n", `unknown GPU model "H1000"`},
		{"nodes: [{name: n1, model: H100, gpus: 65}]\n", "between 0 and 64"},
		{"nodes: [{name: n1, model: H100, gpus: -1}]\n", "between 0 and 64"},
		{"nodes: [{name: 'n[3-1]', model: H100, gpus: 1}]\n", "is not a number or a range"},
		{node + "queues: [{name: a, guarantee: -3}]\n", "is not a number of GPUs"},
		{node + "queues: [{name: a, guarantee: 9}]\n", "9"},
		{node + "queues: [{name: a, guarantee: 4, limit: 2}]\n", "limit"},
		{node + "queues: [{name: a}, {name: a}]\n", `queue "a" is defined twice`},
		{node + "partitions: [{name: p, nodes: n2}]\n", `no node is named "n2"`},
		{node + "partitions: [{name: p, nodes: n1, tiers: [critcal]}]\n", `did you mean "critical"?`},
		{node + "partitions: [{name: p, nodes: n1}]\nloans: [{partition: p, back: {'mon 08:00-20:00': 2}}]\n",
			"the partition has 1, between 1 and as many"},
		{node + "partitions: [{name: p, nodes: n1}]\nloans: [{partition: p, back: {'mon 08:00-20:00': 0}}]\n",
			"between 1 and as many"},
		{node + "partitions: [{name: p, nodes: n1}]\nloans: [{partition: p}]\n", "back: says when"},
		{node + "partitions: [{name: p, nodes: n1}]\nloans: [{partition: q, back: {'mon 08:00-20:00': 1}}]\n",
			`loans: unknown partition "q"`},
		{node + "partitions: [{name: p, nodes: n1}, {name: q, nodes: n1}]\nloans: [{partition: p, back: {mon: 1}}, {partition: q, back: {mon: 1}}]\n", "node n1 is in p, too"},
		{node + "loans: [{back: {mon: 1}}]\n", "f.yaml: loans[0]: partition: which nodes"},
		{node + "loans: [{partition: p, back: {monkey: 1}}]\n", "f.yaml: loans[0]: back: "},
		{node + "loans: [{partition: p, back: {mon: 1}, zone: Mars}]\n", "f.yaml: loans[0]: zone: "},
		{node + "power: [{partition: q}]\n", `f.yaml: power[0]: unknown partition "q"`},
		{node + "power: [{bufer: 2}]\n", `did you mean "buffer"?`},
		{node + "power: [{buffer: -1}]\n", "f.yaml: power[0]: buffer: -1 nodes; 0 or more"},
		{node + "power: [{every: 10s}]\n", "power[0]: every: 10s; between 1m and 24h"},
		{node + "power: [{resume_time: 0s}]\n", "power[0]: resume_time: 0s; between 1s"},
		{node + "power: [{history: 5m}]\n", "power[0]: history: 5m; between a step (every: 10m)"},
		{node + "power: [{least: 0}]\n", "power[0]: least: 0 nodes"},
		{node + "power: [{fell: .inf}]\n", "power[0]: fell: +Inf is not a number of nodes"},
		{node + "power: [{watts: {asleep: 20, idle: 10, busy: 30}}]\n",
			"watts: asleep 20, idle 10, busy 30; each is at least"},
		{node + "power: [{suspend_exc_nodes: n7}]\n", "suspend_exc_nodes: n7 is not of the cluster"},
		{node + "power: [{suspend_exc_nodes: n1}]\n", "no node of the cluster may sleep"},
		{node + "power: [{}, {}]\n", "node n1 cannot sleep: it is of power[0], too"},
		{node + "partitions: [{name: p, nodes: n1}]\nloans: [{partition: p, back: {mon: 1}}]\npower: [{partition: p}]\n", "node n1 cannot sleep: it is lent (loans)"},
		{node + "reservations: [{name: r, start: 2h, end: 1h, nodes: n1}]\n", "not after its start"},
		{node + "reservations: [{name: r, start: 1h, end: 2h, gpus: 9}]\n", "1 more than the cluster has"},
		{node + "epoch: yesterday\n", "is not a time such as"},
		{"nodes: [{name: n1, model: H100, gpus: 8, ram: lots}]\n", "is not an amount of memory"},
		{node + "queues: [{name: a, windows: [{days: noday, from: '01:00', to: '02:00'}]}]\n",
			"is not a set of weekdays"},
		{node + "queues: [{name: a, windows: [{from: '25:00', to: '02:00'}]}]\n", "is not a time of day"},
	} {
		s, err := Read("f.yaml", strings.NewReader(c.text))
		if err == nil {
			err = Validate(s)
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q:\n got  %v\n want ... %s", c.text, err, c.want)
		}
	}
}

func TestShortForm(t *testing.T) {
	s, err := Load("2x8xA100-80GB+3x4xT4")
	if err != nil || s.GPUs() != 28 || s.Nodes[4].Name != "n5" || s.Nodes[4].Model != "T4-16GB" {
		t.Errorf("%+v, %v", s, err)
	}
	for _, bad := range []string{"8", "x8", "2x", "0x8", "2x65", "2x8xA1000", "-1x8", "2x8+", "99999999x8"} {
		if _, err := Load(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
	if _, err := Load("no/such.yaml"); err == nil {
		t.Error("a missing file was accepted")
	}
}

func FuzzRead(f *testing.F) {
	f.Add(lab)
	f.Add("nodes: [{name: 'n[1-2]', gpus: 1, model: T4}]\nqueues: [{name: a, children: [{name: b}]}]")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Read("fuzz.yaml", strings.NewReader(text))
		if err != nil || len(s.Nodes) > 1000 {
			return
		}
		_ = Validate(s) // must not panic
	})
}

func TestPerfTable(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"speed: {a: {T4: -1}}", "factor"},
		{"speed: {a: {A100-40GB/3g.40gb: 0.5}}", "does not offer MIG profile 3g.40gb"},
		{"distance: {a: {rak: 0.5}}", `did you mean "rack"?`},
		{"pairs: {ab: 0.5}", "want job/neighbour"},
		{"sped: {}", "sped"},
		{"stages: {a: []}", "between 1 and 4"},
		{"stages: {a: [1, -1]}", "stages of a"},
	} {
		if _, err := ReadPerf("p.yaml", []byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %s", c.text, err, c.want)
		}
	}
	tab, err := ReadPerf("p.yaml",
		[]byte("speed: {r: {T4: 0.5, A100/3g: 0.8}, '*': {T4: 0.25}}\ndistance: {'*': {rack: 0.8}}\npairs: {'r/*': 0.5}\nstages: {r: [12.5, 0.001, 3]}\nscale: {r: {1: 0.3}}"))
	if err != nil {
		t.Fatal(err)
	}
	if tab.Speed["r"]["T4-16GB"] != 500_000 || tab.Speed["r"]["A100-40GB/3g.20gb"] != 800_000 ||
		tab.Distance["*"][cluster.LevelRack] != 800_000 ||
		tab.Pairs[perf.Pair{"r", "*"}] != 500_000 || tab.Scale["r"][1] != 300_000 ||
		!slices.Equal(tab.Stages["r"], []int64{12_500, 1, 3000}) {
		t.Errorf("%+v", tab)
	}
}
