package config

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/muster-gpu/muster/cluster"
)

// location is where a node is: the switch it is on, and the one above that.
type location struct{ rack, fabric string }

// addTopology reads where nodes are in the network from Slurm's topology.conf or topology.yaml, for those that state no
// rack and no fabric themselves. A relative path is from the folder of the cluster file.
func addTopology(s *cluster.Spec, clusterFile, path string) error {
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(clusterFile), path)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	read := slurmTopology
	if strings.HasSuffix(path, ".yaml") || strings.HasSuffix(path, ".yml") {
		read = slurmTopologyYAML
	}
	places, err := read(path, data)
	if err != nil {
		return err
	}
	found := false
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if p, known := places[n.Name]; known && n.Rack == "" && n.Fabric == "" {
			n.Rack, n.Fabric = p.rack, p.fabric
			found = true
		}
	}
	if !found {
		return fmt.Errorf("%s names none of the cluster's nodes", path)
	}
	return nil
}

var topologyPair = regexp.MustCompile(`(?i)^(SwitchName|Nodes|Switches|LinkSpeed|BlockName|BlockSizes)=(\S+)$`)

// slurmTopology reads topology.conf: a tree of switches, or blocks.
func slurmTopology(name string, data []byte) (map[string]location, error) {
	var t topology
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		text, _, _ := strings.Cut(lines.Text(), "#")
		at := func(err error) error { return fmt.Errorf("%s:%d: %w", name, n, err) }
		var l topologyLine
		for _, word := range strings.Fields(text) {
			m := topologyPair.FindStringSubmatch(word)
			if m == nil {
				return nil, at(fmt.Errorf(
					"%q is not a setting such as SwitchName=s0, Nodes=n[0-7], Switches=s[0-3] or BlockName=b0", word))
			}
			var err error
			switch strings.ToLower(m[1]) {
			case "switchname":
				l.name = m[2]
			case "blockname":
				l.name, l.block = m[2], true
			case "nodes":
				l.nodes, err = Expand(m[2])
			case "switches":
				l.switches, err = Expand(m[2])
			}
			if err != nil {
				return nil, at(err)
			}
		}
		if err := t.add(l); err != nil {
			return nil, at(err)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return t.places(name)
}

// topologyLine is a switch or block.
type topologyLine struct {
	name            string
	block           bool
	nodes, switches []string
}

// topology is what a file says.
type topology struct {
	leaf   map[string]string // of a node
	parent map[string]string // of a switch
}

func (t *topology) add(l topologyLine) error {
	if t.leaf == nil {
		t.leaf, t.parent = map[string]string{}, map[string]string{}
	}
	if l.name == "" {
		if l.nodes != nil || l.switches != nil {
			return errors.New("nodes and switches belong to a SwitchName or BlockName on the same line")
		}
		return nil
	}
	if l.nodes == nil && l.switches == nil {
		return fmt.Errorf("%s joins nothing: state Nodes or Switches", l.name)
	}
	for _, n := range l.nodes {
		if old := t.leaf[n]; old != "" {
			return fmt.Errorf("node %s is on %s already", n, old)
		}
		t.leaf[n] = l.name
	}
	for _, s := range l.switches {
		if old := t.parent[s]; old != "" {
			return fmt.Errorf("switch %s is below %s already", s, old)
		}
		if s == l.name {
			return fmt.Errorf("switch %s is below itself", s)
		}
		t.parent[s] = l.name
	}
	return nil
}

func (t *topology) places(name string) (map[string]location, error) {
	if len(t.leaf) == 0 {
		return nil, fmt.Errorf("%s: no switch or block has nodes", name)
	}
	all := make(map[string]location, len(t.leaf))
	for node, leaf := range t.leaf {
		all[node] = location{leaf, t.parent[leaf]}
	}
	return all, nil
}

// slurmTopologyYAML reads topology.yaml, of which the default topology counts, else the first that is not flat.
func slurmTopologyYAML(name string, data []byte) (map[string]location, error) {
	type entry struct {
		Topology string `yaml:"topology"`
		Default  bool   `yaml:"cluster_default"`
		Flat     bool   `yaml:"flat"`
		Tree     struct {
			Switches []struct {
				Switch   string `yaml:"switch"`
				Children string `yaml:"children"`
				Nodes    string `yaml:"nodes"`
			} `yaml:"switches"`
		} `yaml:"tree"`
		Block struct {
			Sizes  []int `yaml:"block_sizes"`
			Blocks []struct {
				Block string `yaml:"block"`
				Nodes string `yaml:"nodes"`
			} `yaml:"blocks"`
		} `yaml:"block"`
	}
	var list []entry
	dec := yaml.NewDecoder(bytes.NewReader(data))
	if err := dec.Decode(&list); err != nil {
		return nil, fmt.Errorf("%s: %s", name, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	var chosen *entry
	for i := range list {
		if e := &list[i]; !e.Flat && (chosen == nil || e.Default && !chosen.Default) {
			chosen = e
		}
	}
	if chosen == nil {
		return nil, fmt.Errorf("%s: no topology has switches or blocks", name)
	}
	var t topology
	for _, s := range chosen.Tree.Switches {
		nodes, err1 := Expand(s.Nodes)
		below, err2 := Expand(s.Children)
		err := cmp.Or(err1, err2)
		if err == nil {
			err = t.add(topologyLine{name: s.Switch, nodes: nodes, switches: below})
		}
		if err != nil {
			return nil, fmt.Errorf("%s: topology %s: switch %s: %w", name, chosen.Topology, s.Switch, err)
		}
	}
	for _, b := range chosen.Block.Blocks {
		nodes, err := Expand(b.Nodes)
		if err == nil {
			err = t.add(topologyLine{name: b.Block, nodes: nodes})
		}
		if err != nil {
			return nil, fmt.Errorf("%s: topology %s: block %s: %w", name, chosen.Topology, b.Block, err)
		}
	}
	return t.places(name)
}
