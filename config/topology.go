package config

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/muster-gpu/muster/cluster"
)

// readTopology reads where nodes are in the network from Slurm's topology.conf or topology.yaml, or from a table. A
// relative path is from the folder of the cluster file.
func readTopology(clusterFile, path string) (topology, error) {
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(clusterFile), path)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return topology{}, err
	}
	t := topology{name: path, leaf: map[string]string{}, parent: map[string]string{}}
	switch filepath.Ext(path) {
	case ".yaml", ".yml":
		err = t.slurmYAML(data)
	case ".csv":
		err = t.table(data)
	default:
		err = t.slurm(data)
	}
	if err == nil && len(t.nodes) == 0 {
		err = fmt.Errorf("%s: no switch or block has nodes", path)
	}
	return t, err
}

// place says of nodes that state no rack and no fabric themselves where they are.
func (t *topology) place(nodes []cluster.Node) error {
	found := false
	for i := range nodes {
		n := &nodes[i]
		if leaf := t.leaf[n.Name]; leaf != "" && n.Rack == "" && n.Fabric == "" {
			var way []string
			for s := t.parent[leaf]; s != ""; s = t.parent[s] {
				if way = append(way, s); len(way) > 1+cluster.MostCores {
					return fmt.Errorf("%s: %d levels of switches are above %s (%s), or they go round in a circle; at most %d "+
						"are possible", t.name, len(way), leaf, strings.Join(way, ", "), 1+cluster.MostCores)
				}
			}
			if n.Rack = leaf; len(way) > 0 {
				n.Fabric, n.Cores = way[0], way[1:]
			}
			found = true
		}
	}
	if !found {
		return fmt.Errorf("%s names none of the cluster's nodes", t.name)
	}
	return nil
}

// checkCores checks what is stated to be above a node's fabric.
func checkCores(fabric string, cores []string) error {
	switch {
	case len(cores) > 0 && fabric == "":
		return errors.New("they are above a fabric: state it, too")
	case len(cores) > cluster.MostCores:
		return fmt.Errorf("%d levels; at most %d above the fabric are possible", len(cores), cluster.MostCores)
	case slices.Contains(cores, ""):
		return errors.New("a name is empty; want names from near to far, such as [core1, region1]")
	}
	return nil
}

var topologyPair = regexp.MustCompile(`(?i)^(SwitchName|Nodes|Switches|LinkSpeed|BlockName|BlockSizes)=(\S+)$`)

// slurm reads topology.conf: a tree of switches, or blocks.
func (t *topology) slurm(data []byte) error {
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		text, _, _ := strings.Cut(lines.Text(), "#")
		at := func(err error) error { return fmt.Errorf("%s:%d: %w", t.name, n, err) }
		var l topologyLine
		for _, word := range strings.Fields(text) {
			m := topologyPair.FindStringSubmatch(word)
			if m == nil {
				return at(fmt.Errorf(
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
				return at(err)
			}
		}
		if err := t.add(l); err != nil {
			return at(err)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("%s: %w", t.name, err)
	}
	return nil
}

// table reads a table of hosts: a line of names of columns, then a line for each host with its name and, in each other
// column, the switch above it in a layer. The layer with most switches is nearest to the hosts. Switches of one name
// below different ones are different ones. Layers above the second count where each switch is below one.
func (t *topology) table(data []byte) error {
	lines, err := csv.NewReader(bytes.NewReader(data)).ReadAll()
	if err != nil {
		return fmt.Errorf("%s: %w", t.name, err)
	}
	if len(lines) < 2 || len(lines[0]) < 2 {
		return fmt.Errorf("%s: want a line of names, such as host,fabric,rack, and a line for each host", t.name)
	}
	switches := make([]map[string]bool, len(lines[0]))
	for c := range switches {
		switches[c] = map[string]bool{}
		for _, l := range lines[1:] {
			switches[c][l[c]] = true
		}
	}
	nearest, next := 1, 0 // columns; 0: there is none
	for c := 2; c < len(switches); c++ {
		if len(switches[c]) >= len(switches[nearest]) {
			nearest = c
		}
	}
	for c := 1; c < len(switches); c++ {
		more := len(switches[c]) - len(switches[next])
		if c != nearest && (next == 0 || more > 0 || more == 0 && c < nearest) { // of two as large, that beside it
			next = c
		}
	}
	upper := func(l []string) string {
		if next == 0 {
			return ""
		}
		return l[next]
	}
	higher := uppermost(lines, switches, nearest, next)
	above := map[[2]string]bool{}
	for _, l := range lines[1:] {
		above[[2]string{upper(l), l[nearest]}] = true
	}
	for n, l := range lines[1:] {
		rack, fabric := l[nearest], upper(l)
		if len(above) > len(switches[nearest]) {
			rack = fabric + "/" + rack
		}
		if at := slices.Index(l, ""); at >= 0 {
			err = fmt.Errorf("%s is empty", lines[0][at])
		} else if err = t.add(topologyLine{name: rack, nodes: l[:1]}); err == nil && t.parent[rack] != fabric {
			err = t.add(topologyLine{name: fabric, switches: []string{rack}})
		}
		below := fabric
		for _, c := range higher {
			if err == nil && t.parent[below] != l[c] {
				err = t.add(topologyLine{name: l[c], switches: []string{below}})
			}
			below = l[c]
		}
		if err != nil {
			return fmt.Errorf("%s:%d: %w", t.name, n+2, err)
		}
	}
	return nil
}

// uppermost are the columns of the layers above two, those with most switches first, as far as each switch is below
// one of the next layer.
func uppermost(lines [][]string, switches []map[string]bool, nearest, next int) (list []int) {
	for c := 1; c < len(switches) && next > 0; c++ {
		if c != nearest && c != next {
			list = append(list, c)
		}
	}
	slices.SortStableFunc(list, func(a, b int) int { return cmp.Compare(len(switches[b]), len(switches[a])) })
	below := next
	for k, c := range list {
		one := map[string]string{}
		for _, l := range lines[1:] {
			if up, seen := one[l[below]]; seen && up != l[c] || l[below] == l[c] {
				return list[:k]
			}
			one[l[below]] = l[c]
		}
		below = c
	}
	return list
}

// topologyLine is a switch or block.
type topologyLine struct {
	name            string
	block           bool
	nodes, switches []string
}

// topology is what a file says.
type topology struct {
	name   string
	nodes  []string          // in its order
	leaf   map[string]string // of a node
	parent map[string]string // of a switch
}

func (t *topology) add(l topologyLine) error {
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
		t.nodes = append(t.nodes, n)
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

// slurmTopology is a topology of Slurm's topology.yaml; it has one of these forms.
type slurmTopology struct {
	Topology string      `yaml:"topology"`
	Default  bool        `yaml:"cluster_default"`
	Flat     bool        `yaml:"flat"`
	Tree     slurmTree   `yaml:"tree"`
	Block    slurmBlocks `yaml:"block"`
}

type slurmTree struct {
	Switches []slurmSwitch `yaml:"switches"`
}

type slurmSwitch struct {
	Switch   string `yaml:"switch"`
	Children string `yaml:"children"`
	Nodes    string `yaml:"nodes"`
}

type slurmBlocks struct {
	Sizes  []int        `yaml:"block_sizes"`
	Blocks []slurmBlock `yaml:"blocks"`
}

type slurmBlock struct {
	Block string `yaml:"block"`
	Nodes string `yaml:"nodes"`
}

// slurmYAML reads topology.yaml, of which the default topology counts, else the first that is not flat.
func (t *topology) slurmYAML(data []byte) error {
	var list []slurmTopology
	if err := decode(t.name, data, &list); err != nil {
		return err
	}
	var chosen *slurmTopology
	for i := range list {
		if e := &list[i]; !e.Flat && (chosen == nil || e.Default && !chosen.Default) {
			chosen = e
		}
	}
	if chosen == nil {
		return fmt.Errorf("%s: no topology has switches or blocks", t.name)
	}
	lines := chosen.lines()
	for _, l := range lines {
		nodes, err1 := Expand(l.nodes)
		below, err2 := Expand(l.children)
		err := cmp.Or(err1, err2)
		if err == nil {
			err = t.add(topologyLine{name: l.name, nodes: nodes, switches: below})
		}
		if err != nil {
			return fmt.Errorf("%s:%d: topology %s: %s %s: %w", t.name, lineWith(data, l.name), chosen.Topology, l.what,
				l.name, err)
		}
	}
	return nil
}

// slurmLine is a switch or a block.
type slurmLine struct{ what, name, nodes, children string }

func (e *slurmTopology) lines() (list []slurmLine) {
	for _, s := range e.Tree.Switches {
		list = append(list, slurmLine{"switch", s.Switch, s.Nodes, s.Children})
	}
	for _, b := range e.Block.Blocks {
		list = append(list, slurmLine{"block", b.Block, b.Nodes, ""})
	}
	return list
}
