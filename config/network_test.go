package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/network"
)

const fourNodes = "nodes: [{name: \"n[1-4]\", model: A100-80GB, gpus: 8}]\nnetwork:\n"

func TestNetwork(t *testing.T) {
	s, err := Read("f", strings.NewReader(fourNodes+`  classes: 4
  links:
    - {from: "n[1-2]", to: leaf0, rate: 100Gbps}
    - {from: "n[3-4]", to: leaf1, rate: 25Gbit/s}
    - {from: "leaf[0-1]", to: "spine[0-1]", rate: 0.4Tbps}
  models:
    mine: {pattern: ring, bytes: 553MB, compute: 120ms, overlap: 0.5}
  unknown: [mine, vgg16]
  uneven: {later: 16, varies: 25}
`))
	if err != nil {
		t.Fatal(err)
	}
	n := s.Network
	if len(n.Links) != 8 || n.Links[2] != (cluster.Link{A: "n3", B: "leaf1", Rate: 25e9}) || n.Links[7].Rate != 4e11 ||
		n.Classes != 4 || n.Uneven != (cluster.Uneven{Later: 16, Varies: 25}) {
		t.Errorf("%+v", n)
	}
	want := cluster.Traffic{Pattern: cluster.Ring, Bytes: 553e6, Compute: 120 * time.Millisecond, Overlap: 500}
	if got, from := n.TrafficOf(&cluster.Job{Model: "mine"}); got != want || from != cluster.TrafficOfModel {
		t.Errorf("%+v %s", got, from)
	}
	if got, from := n.TrafficOf(&cluster.Job{ID: 3}); got.Bytes != 553430176 || from != cluster.TrafficAssumed {
		t.Errorf("%+v %s", got, from)
	}
	stated := cluster.Traffic{Pattern: cluster.Tree, Bytes: 1}
	if got, from := n.TrafficOf(&cluster.Job{Model: "mine", Traffic: stated}); got != stated ||
		from != cluster.TrafficStated {
		t.Errorf("%+v %s", got, from)
	}
}

func TestClos(t *testing.T) {
	s, err := Read("f", strings.NewReader(fourNodes+
		"  clos: {nodes_per_leaf: 2, cards: 2, card_rate: 200Gbps, spines: 4, oversubscription: 2}\n"))
	if err != nil {
		t.Fatal(err)
	}
	// 2 nodes of 2 cards of 200 Gbps go down, half of that up over 4 spines
	if l := s.Network.Links; len(l) != 8+8 || l[8] != (cluster.Link{A: "leaf0", B: "spine0", Rate: 1e11}) {
		t.Errorf("%+v", l)
	}
	if f := network.New(s.Nodes, s.Network); f.Links() != 32 {
		t.Errorf("%d directed links", f.Links())
	}
}

// Each mistake is named with its line and what would be right.
func TestNetworkMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"  classes: 9\n": "f:3: network: classes: 9; switches keep up to 8",
		"  links: []\n":  "f:2: network: there are no links",
		"  links:\n    - {from: n1, to: leaf, rate: 1Gbps}\n    - {from: n1, to: n2, rate: 1Gbps}\n":         `f:5: network: links: 1: to: "n2" is a node`,
		"  links:\n    - {from: n1, to: leaf}\n":                                                             "f:4: network: links: 0: rate: missing",
		"  links:\n    - {from: n1, to: n1, rate: 100Gb}\n":                                                  `f:4: "100Gb" is not a rate`,
		"  links:\n    - {from: n1, too: x, rate: 100Gbps}\n":                                                `f:4: unknown key "too": did you mean "to"?`,
		"  clos: {nodes_per_leaf: 2, card_rate: 1Gbps}\n":                                                    "f:3: network: clos: spines: 2 leaf switches need spines",
		"  clos: {nodes_per_leaf: 2, card_rate: 1Gbps, spines: 2}\n":                                         "spine_rate: state either spine_rate",
		"  clos: {nodes_per_leaf: 2, card_rate: 1Gbps, spines: 2, spine_rate: 1Gbps, oversubscription: 2}\n": "spine_rate: state either spine_rate",
		"  clos: {nodes: \"n[1-9]\", nodes_per_leaf: 2, card_rate: 1Gbps, spines: 2, spine_rate: 1Gbps}\n":   `nodes: "n[1-9]" names 9 nodes, of which the cluster has 4`,
		"  clos: {nodes_per_leaf: 1, card_rate: 1Gbps, spines: 2, spine_rate: 1Gbps, leaves_per_pod: 2}\n":   "cores: pods are joined by cores",
		"  uneven: {varies: 100}\n  clos: {nodes_per_leaf: 4, card_rate: 1Gbps}\n":                           "f:3: network: uneven: percent: later from 0",
		"  clos: {nodes_per_leaf: 4, card_rate: 1Gbps, planes: true}\n":                                      "planes are of rails",
		"  clos: {card_rate: 1Gbps}\n":                                                                       "nodes_per_leaf: how many nodes are on a leaf switch? At least 1; none if all nodes state their racks",
		"  clos: {nodes_per_leaf: 4, card_rate: 1Gbps}\n  models: {m: {pattern: rign}}\n":                    `f:4: network: models: m: pattern: unknown pattern "rign": did you mean "ring"?`,
		"  clos: {nodes_per_leaf: 4, card_rate: 1Gbps}\n  models: {m: {pattern: ring, overlap: 2}}\n":        "overlap: 2; between 0 and 1",
		"  clos: {nodes_per_leaf: 4, card_rate: 1Gbps}\n  unknown: [vgg61]\n":                                `f:4: network: unknown: unknown model "vgg61": did you mean "vgg11"?`,
		"  links:\n    - {from: \"n[1-4]\", to: \"s[1-900000]\", rate: 1Gbps}\n":                             "more than 1048576 links",
	} {
		if _, err := Read("f", strings.NewReader(fourNodes+text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q:\n  %v\n  want %s", text, err, want)
		}
	}
}

// What is above a node's fabric is stated by names from near to far.
func TestCores(t *testing.T) {
	const node = "nodes: [{name: n1, model: A100-80GB, gpus: 8, rack: r, fabric: f, cores: [c, d]}]\n"
	if s, err := Read("f", strings.NewReader(node)); err != nil || !slices.Equal(s.Nodes[0].Cores, []string{"c", "d"}) {
		t.Errorf("%v, %+v", err, s)
	}
	for of, want := range map[string]string{"rack: r, cores: [c]": "node n1: cores: they are above a fabric",
		"fabric: f, cores: [a, b, c, d, e]": "node n1: cores: 5 levels; at most 4 above the fabric",
		`fabric: f, cores: [a, ""]`:         "node n1: cores: a name is empty"} {
		_, err := Read("f", strings.NewReader("nodes: [{name: n1, model: A100-80GB, gpus: 8, "+of+"}]\n"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", of, err, want)
		}
	}
}

// Slurm's files of a topology, and a table, say on which switches nodes are.
func TestTopology(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"topology.conf": "# two leaves\nSwitchName=leaf0 Nodes=n[1-2]\nSwitchName=leaf1 Nodes=n[3-4] LinkSpeed=100\n" +
			"SwitchName=spine0 Switches=leaf[0-1]\n",
		"blocks.conf": "BlockName=leaf0 Nodes=n[1-2]\nBlockName=leaf1 Nodes=n[3-4]\nBlockSizes=2,4\n",
		"topology.yaml": "- {topology: flat, flat: true}\n- topology: main\n  cluster_default: true\n  tree:\n    switches:\n" +
			"      - {switch: leaf0, nodes: \"n[1-2]\"}\n      - {switch: leaf1, nodes: \"n[3-4]\"}\n" +
			"      - {switch: spine0, children: \"leaf[0-1]\"}\n",
		"blocks.yaml": "- topology: b\n  block:\n    block_sizes: [2]\n    blocks:\n      - {block: leaf0, nodes: \"n[1-2]\"}\n" +
			"      - {block: leaf1, nodes: \"n[3-4]\"}\n",
		"table.csv": "host,top,fabric,rack\nn1,t,spine0,leaf0\nn2,t,spine0,leaf0\nn3,t,spine0,leaf1\nn4,t,spine0,leaf1\n",
		"deep.conf": "SwitchName=leaf0 Nodes=n[1-2]\nSwitchName=leaf1 Nodes=n[3-4]\nSwitchName=spine0 Switches=leaf0\n" +
			"SwitchName=spine1 Switches=leaf1\nSwitchName=core Switches=spine[0-1]\nSwitchName=site Switches=core\n",
		"deep.csv":    "host,core,pod,rack\nn1,c,spine0,leaf0\nn2,c,spine0,leaf0\nn3,c,spine1,leaf1\nn4,c,spine1,leaf1\n",
		"round.conf":  "SwitchName=leaf0 Nodes=n[1-4]\nSwitchName=a Switches=leaf0,b\nSwitchName=b Switches=a\n",
		"again.csv":   "host,fabric,rack\nn1,f0,leaf0\nn2,f0,leaf1\nn1,f0,leaf1\n",
		"empty.csv":   "host,fabric,rack\nn1,f0,leaf0\nn2,,leaf1\n",
		"short.csv":   "host,fabric,rack\nn1,f0\n",
		"none.conf":   "SwitchName=leaf0 Nodes=x[1-2]\n",
		"twice.conf":  "SwitchName=leaf0 Nodes=n[1-2]\nSwitchName=leaf1 Nodes=n2\n",
		"odd.conf":    "SwitchName=leaf0 Nodes=n1\nSwichName=leaf1 Nodes=n2\n",
		"broken.yaml": "- topology: [\n",
		"key.yaml":    "- topology: a\n  tree:\n    swiches: []\n",
		"list.yaml":   "- topology: a\n  tree: {switches: leaf0}\n",
		"twice.yaml": "- topology: a\n  tree:\n    switches:\n      - {switch: leaf0, nodes: \"n[1-2]\"}\n" +
			"      - {switch: leaf1, nodes: n2}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	read := func(file string) (*cluster.Spec, error) {
		return Read(filepath.Join(dir, "c.yaml"),
			strings.NewReader(fourNodes+"  topology: "+file+"\n  rates: [100Gbps, 200Gbps, 400Gbps]\n"))
	}
	for file, fabric := range map[string]string{"topology.conf": "spine0", "topology.yaml": "spine0", "blocks.conf": "",
		"blocks.yaml": "", "table.csv": "spine0"} {
		s, err := read(file)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		if a, b := s.Nodes[1], s.Nodes[2]; a.Rack != "leaf0" || b.Rack != "leaf1" || a.Fabric != fabric {
			t.Errorf("%s: %+v", file, s.Nodes)
		}
		ring := cluster.Traffic{Pattern: cluster.Ring, Bytes: 1e9}
		if d := network.New(s.Nodes, s.Network).Demand(0, ring,
			[]network.Held{{Node: 0, Ranks: 8}, {Node: 3, Ranks: 8}}); len(d.Parts) != 2 {
			t.Errorf("%s: %d parts between the leaves", file, len(d.Parts))
		}
	}
	for file, cores := range map[string][]string{"topology.conf": nil, "table.csv": {"t"},
		"deep.conf": {"core", "site"},
		"deep.csv":  {"c"}} {
		if s, err := read(file); err != nil || !slices.Equal(s.Nodes[3].Cores, cores) || s.Nodes[3].Rack != "leaf1" {
			t.Errorf("%s: %v, %+v", file, err, s)
		}
	}
	for file, want := range map[string]string{"round.conf": "they go round in a circle",
		"none.conf":    "names none of the cluster's nodes",
		"twice.conf":   "twice.conf:2: node n2 is on leaf0 already",
		"odd.conf":     `odd.conf:2: "SwichName=leaf1" is not a setting`,
		"again.csv":    "again.csv:4: node n1 is on leaf0 already",
		"empty.csv":    "empty.csv:3: fabric is empty",
		"short.csv":    "short.csv: record on line 2: wrong number of fields",
		"missing.conf": "no such file", "broken.yaml": "broken.yaml:",
		"key.yaml":   `key.yaml:3: unknown key "swiches": did you mean "switches"?`,
		"list.yaml":  `list.yaml:2: "leaf0" is not a list, such as [a, b]`,
		"twice.yaml": "twice.yaml:5: topology a: switch leaf1: node n2 is on leaf0 already"} {
		if _, err := read(file); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), "c.yaml:3") {
			t.Errorf("%s: %v, want %s", file, err, want)
		}
	}
}

// TestRecordedNetwork: a table of hosts and switches is a whole cluster: its hosts are the nodes, racks of one name in
// different fabrics are different leaf switches, and what a leaf's nodes send goes up over the spines of its fabric.
func TestRecordedNetwork(t *testing.T) {
	dir := t.TempDir()
	err := os.WriteFile(filepath.Join(dir, "t.csv"),
		[]byte("ip,core,pod,tor\na,G,P1,S1\nb,G,P1,S1\nc,G,P1,S2\nd,G,P2,S1\n"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	const nodes = "nodes: [{name: \"*\", model: A100-80GB, gpus: 8}]\n"
	read := func(text string) (*cluster.Spec, error) {
		return Read(filepath.Join(dir, "c.yaml"), strings.NewReader(nodes+text))
	}
	const clos = "network:\n  topology: t.csv\n  clos: {card_rate: 200Gbps, spines: 2, oversubscription: 2"
	s, err := read(clos + ", cores: 2, core_rate: 50Gbps}\n")
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Nodes) != 4 || s.Nodes[3].Name != "d" || s.Nodes[3].Rack != "P2/S1" || s.Nodes[0].Fabric != "P1" {
		t.Errorf("%+v", s.Nodes)
	}
	// 2 nodes on the largest leaf, half of what they send goes up over 2 spines
	l := s.Network.Links
	if len(l) != 4+3*2+2*2*2 || l[1] != (cluster.Link{A: "b", B: "rack P1/S1", Rate: 2e11}) ||
		l[4] != (cluster.Link{A: "rack P1/S1", B: "spineP1.0", Rate: 1e11}) ||
		l[17] != (cluster.Link{A: "spineP2.1", B: "core1", Rate: 5e10}) {
		t.Errorf("%+v", l)
	}
	for text, want := range map[string]string{clos + "}\n": "cores: pods are joined by cores",
		clos + ", leaves_per_pod: 2}\n":    "leaves_per_pod: where leaves are the nodes' racks, pods are their fabrics",
		"network:\n  topology: t.csv\n":    "c.yaml:3: network: topology: what do the links carry?",
		"network: {rates: [1Gbps]}\n":      `nodes: "*" is all nodes that the network's topology names, and there is none`,
		"network:\n  topology: none.csv\n": "c.yaml:3: network: topology: open"} {
		if _, err := read(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q:\n  %v\n  want %s", text, err, want)
		}
	}
}

// The network of a Kubernetes cluster is known by rates of levels: which nodes there are, is not.
func TestKubeNetwork(t *testing.T) {
	c, err := ReadKube("f",
		strings.NewReader("traffic: crux\nnetwork:\n  rates: [200Gbps, 800Gbps]\n  classes: [{dscp: cs4, tc: 128}]\n"+
			"  models: {mine: {pattern: ring, bytes: 1GB, compute: 1s}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if n := c.Network; n.Classes != 1 || len(n.Rates) != 2 || n.Rates[1] != 8e11 || c.Traffic != "crux" ||
		c.QoS.Classes[0].TC != 128 {
		t.Errorf("%+v %+v", c.Network, c.QoS)
	}
	for text, want := range map[string]string{
		"traffic: cruks\n":                  `f:1: traffic: unknown traffic policy "cruks": did you mean "crux"?`,
		"traffic: crux\n":                   "f:1: traffic: what links are there?",
		"policy: fifo\nplace: compatible\n": "f:2: place: placer compatible: it rates places by the links of a network, and none is described",
		"traffic: crux\nnetwork: {rates: [1Gbps, 1Gbps, 1Gbps, 1Gbps, 1Gbps, 1Gbps, 1Gbps, 1Gbps]}\n": "f:2: network: rates: at most 7",
		"network: {rates: [1Gbps], classes: [{dscp: cs4, tc: 4}]}\n":                                  "f:1: network: classes",
		"network: {}\n":                         "there are no links",
		"network: {rates: [1Gbps], hosts: x}\n": `unknown key "hosts"`,
	} {
		if _, err := ReadKube("f", strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q:\n  %v\n  want %s", text, err, want)
		}
	}
	for text, want := range map[string]string{"{pattern: ring, bytes: 1GB}": "", "ring": "want such as",
		"{pattern: ring, bites: 1}":   "want such as",
		"{pattern: ring, overlap: 7}": "between 0 and 1"} {
		if _, err := ParseTraffic(text); (err == nil) != (want == "") ||
			err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
