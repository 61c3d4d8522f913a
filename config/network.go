package config

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/network"
)

type networkFile struct {
	Classes int                    `yaml:"classes"` // that switches keep apart by strict priority
	Links   []linkFile             `yaml:"links"`
	Rates   []Bitrate              `yaml:"rates"`    // of a tree by racks and fabrics, from the nodes up
	File    string                 `yaml:"topology"` // that says on which switches nodes are
	Clos    *closFile              `yaml:"clos"`     // generated links
	Models  map[string]trafficFile `yaml:"models"`   // traffic of jobs by model
	Unknown []string               `yaml:"unknown"`
	Uneven  unevenFile             `yaml:"uneven"` // rates of transmissions of a class
}

// unevenFile has percent.
type unevenFile struct {
	Later  int `yaml:"later"`
	Varies int `yaml:"varies"`
}

// linkFile is a link, or one between each pair of several names.
type linkFile struct {
	From string  `yaml:"from"` // nodes or switches
	To   string  `yaml:"to"`   // switches
	Rate Bitrate `yaml:"rate"`
}

type closFile struct {
	Nodes            string  `yaml:"nodes"` // none: all, in the order of the file
	NodesPerLeaf     int     `yaml:"nodes_per_leaf"`
	Cards            int     `yaml:"cards"` // of a node; 0: 1
	Rails            bool    `yaml:"rails"`
	Planes           bool    `yaml:"planes"`
	CardRate         Bitrate `yaml:"card_rate"`
	Spines           int     `yaml:"spines"`
	SpineRate        Bitrate `yaml:"spine_rate"`
	Oversubscription float64 `yaml:"oversubscription"` // of a leaf, instead of spine_rate
	LeavesPerPod     int     `yaml:"leaves_per_pod"`
	Cores            int     `yaml:"cores"`
	CoreRate         Bitrate `yaml:"core_rate"`
}

type trafficFile struct {
	Pattern string   `yaml:"pattern"`
	Bytes   Bytes    `yaml:"bytes"`
	Compute Duration `yaml:"compute"`
	Overlap float64  `yaml:"overlap"`
}

// Bitrate is a rate in a file: "200Gbps", "25Gbit/s"; in bits per second.
type Bitrate int64

// UnmarshalText reads the rate.
func (r *Bitrate) UnmarshalText(b []byte) error {
	text := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(string(b), "ps"), "/s"), "it")
	v, ok := decimal(strings.TrimSuffix(text, "b"), map[string]float64{"K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12})
	if !ok || v < 8 || v > 1e15 || text == string(b) {
		return fmt.Errorf("%q is not a rate such as 200Gbps or 25Gbit/s", b)
	}
	*r = Bitrate(v)
	return nil
}

// Bytes is an amount of data in a file: "553MB" (decimal), "512MiB", "65536".
type Bytes int64

// UnmarshalText reads the amount.
func (n *Bytes) UnmarshalText(b []byte) error {
	v, ok := decimal(strings.TrimSuffix(string(b), "B"),
		map[string]float64{"": 1, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9,
			"T": 1e12, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40})
	if !ok || v < 0 || v > 1e15 {
		return fmt.Errorf("%q is not an amount of data such as 553MB or 512MiB", b)
	}
	*n = Bytes(v)
	return nil
}

// decimal reads a number with a unit.
func decimal(text string, units map[string]float64) (float64, bool) {
	num := strings.TrimRight(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
	mul, known := units[text[len(num):]]
	v, err := strconv.ParseFloat(strings.TrimSpace(num), 64)
	return math.Round(v * mul), err == nil && known
}

// addNetwork reads the links between nodes.
func (f *clusterFile) addNetwork(s *cluster.Spec) (err error) {
	if f.Network == nil {
		return nil
	}
	if f.Network.File != "" {
		if err := f.topology.place(s.Nodes); err != nil {
			return At(err, "network", "topology")
		}
		if len(f.Network.Rates) == 0 && f.Network.Clos == nil {
			return At(errors.New(
				"what do the links carry? State rates, from the nodes up, such as [200Gbps, 400Gbps], or clos"),
				"network", "topology")
		}
	}
	var generated []cluster.Link
	if f.Network.Clos != nil {
		if generated, err = f.Network.Clos.links(s); err != nil {
			return At(err, "network", "clos")
		}
	}
	placed := func(n cluster.Node) bool { return n.Rack != "" || n.Fabric != "" }
	if len(f.Network.Rates) > 0 && !slices.ContainsFunc(s.Nodes, placed) {
		return At(errors.New("no node states its rack or fabric, by which the tree is made"), "network", "rates")
	}
	ends := map[string]bool{}
	for i := range s.Nodes {
		ends[s.Nodes[i].Name] = true
	}
	s.Network, err = f.Network.read(ends, generated)
	return err
}

// read is the network between some ends, nodes or other hosts, with links that are known already.
func (f *networkFile) read(ends map[string]bool, generated []cluster.Link) (*cluster.Network, error) {
	n := &cluster.Network{Classes: f.Classes, Unknown: f.Unknown, Uneven: cluster.Uneven(f.Uneven)}
	if u := n.Uneven; u.Later < 0 || u.Later > 100 || u.Varies < 0 || u.Varies > 90 {
		return nil, At(errors.New("percent: later from 0 to 100, varies from 0 to 90"), "network", "uneven")
	}
	if n.Classes < 0 || n.Classes > cluster.MaxClasses {
		return nil, At(fmt.Errorf("%d; switches keep up to %d classes apart (0: none)", n.Classes, cluster.MaxClasses),
			"network", "classes")
	}
	for i := range f.Links {
		links, err := f.Links[i].links(ends)
		if err != nil {
			return nil, At(err, "network", "links", strconv.Itoa(i))
		}
		n.Links = append(n.Links, links...)
	}
	n.Links = append(n.Links, generated...)
	for _, r := range f.Rates {
		n.Rates = append(n.Rates, int64(r))
	}
	if len(n.Rates) > 3+cluster.MostCores {
		return nil, At(fmt.Errorf("at most %d: of nodes, of racks' switches, of fabrics' switches, of the cores above",
			3+cluster.MostCores), "network", "rates")
	}
	if len(n.Links)+len(n.Rates) == 0 {
		return nil, At(errors.New(
			"there are no links: list them under links, describe a network under clos, or state rates of a tree"),
			"network")
	}
	if len(n.Links) > maxLinks {
		return nil, At(fmt.Errorf("%d links; at most %d are possible", len(n.Links), maxLinks), "network")
	}
	return n, f.models(n)
}

const maxLinks = 1 << 20

func (l *linkFile) links(nodes map[string]bool) (list []cluster.Link, err error) {
	from, err := Expand(l.From)
	if err != nil {
		return nil, At(err, "from")
	}
	to, err := Expand(l.To)
	if err != nil {
		return nil, At(err, "to")
	}
	switch {
	case len(from) == 0 || len(to) == 0:
		return nil, errors.New(`a link needs from and to, such as {from: "n[1-8]", to: leaf1, rate: 200Gbps}`)
	case l.Rate == 0:
		return nil, At(errors.New("missing: state one, such as 200Gbps"), "rate")
	}
	for _, a := range from {
		for _, b := range to {
			switch {
			case nodes[b]:
				return nil, At(fmt.Errorf("%q is a node; a link goes from a node or a switch to a switch", b), "to")
			case a == b:
				return nil, fmt.Errorf("%q is joined to itself", a)
			}
			if list = append(list, cluster.Link{A: a, B: b, Rate: int64(l.Rate)}); len(list) > maxLinks {
				return nil, fmt.Errorf("more than %d links", maxLinks)
			}
		}
	}
	return list, nil
}

func (c *closFile) links(s *cluster.Spec) ([]cluster.Link, error) {
	out := network.Clos{NodesPerLeaf: c.NodesPerLeaf, Cards: max(1, c.Cards), Rails: c.Rails, Planes: c.Planes,
		Spines: c.Spines, LeavesPerPod: c.LeavesPerPod, Cores: c.Cores, CardRate: int64(c.CardRate),
		SpineRate: int64(c.SpineRate), CoreRate: int64(c.CoreRate)}
	names, err := Expand(c.Nodes)
	if err != nil {
		return nil, At(err, "nodes")
	}
	for i := range s.Nodes {
		if n := &s.Nodes[i]; c.Nodes == "" || slices.Contains(names, n.Name) {
			p := network.Place{Pod: n.Fabric}
			if n.Rack != "" {
				p.Leaf = "rack " + n.Rack // so that no node has its name
			}
			out.Nodes, out.Places = append(out.Nodes, n.Name), append(out.Places, p)
		}
	}
	onLeaf, leaves, pods := c.NodesPerLeaf, 0, 0
	if c.NodesPerLeaf == 0 {
		onLeaf, leaves, pods = layers(out.Places)
	} else {
		out.Places, leaves = nil, (len(out.Nodes)+c.NodesPerLeaf-1)/max(1, c.NodesPerLeaf)
	}
	switch {
	case c.Nodes != "" && len(out.Nodes) != len(names):
		return nil, At(fmt.Errorf("%q names %d nodes, of which the cluster has %d", c.Nodes, len(names),
			len(out.Nodes)), "nodes")
	case c.NodesPerLeaf < 0, slices.ContainsFunc(out.Places, func(p network.Place) bool { return p.Leaf == "" }):
		return nil, At(errors.New("how many nodes are on a leaf switch? At least 1; none if all nodes state their racks"),
			"nodes_per_leaf")
	case c.NodesPerLeaf == 0 && c.LeavesPerPod > 0:
		return nil, At(errors.New("where leaves are the nodes' racks, pods are their fabrics"), "leaves_per_pod")
	case c.Cards < 0 || c.Cards > cluster.MaxGPUsPerNode:
		return nil, At(fmt.Errorf("%d; a node has between 1 and %d", c.Cards, cluster.MaxGPUsPerNode), "cards")
	case c.Planes && !c.Rails:
		return nil, At(errors.New("planes are of rails: set rails: true, too"), "planes")
	case c.CardRate == 0:
		return nil, At(errors.New("missing: the rate of a node's card, such as 200Gbps"), "card_rate")
	case c.Spines < 0 || c.Cores < 0 || c.LeavesPerPod < 0:
		return nil, errors.New("spines, cores and leaves_per_pod cannot be negative")
	case c.Spines == 0 && leaves > 1:
		return nil, At(fmt.Errorf("%d leaf switches need spines that join them", leaves), "spines")
	case c.Cores > 0 && c.LeavesPerPod == 0 && pods < 2:
		return nil, At(errors.New("cores join pods: how many leaf switches have a pod?"), "leaves_per_pod")
	case c.Cores == 0 && (c.LeavesPerPod > 0 && c.LeavesPerPod < leaves || pods > 1):
		return nil, At(errors.New("pods are joined by cores: how many are there?"), "cores")
	case c.Cores > 0 && c.CoreRate == 0:
		return nil, At(errors.New("missing: the rate of a link between spine and core, such as 400Gbps"), "core_rate")
	case (c.SpineRate == 0) == (c.Oversubscription == 0) && c.Spines > 0:
		return nil, At(errors.New("state either spine_rate, such as 400Gbps, or oversubscription, such as 2"),
			"spine_rate")
	case c.Oversubscription < 0 || c.Oversubscription > 1000:
		return nil, At(fmt.Errorf("%g; between 0.001 and 1000 are possible", c.Oversubscription), "oversubscription")
	}
	if c.Oversubscription > 0 && c.Spines > 0 {
		down := float64(onLeaf) * float64(out.Cards) * float64(c.CardRate)
		if c.Rails {
			down /= float64(out.Cards)
		}
		out.SpineRate = int64(down / c.Oversubscription / float64(c.Spines))
	}
	if total := len(out.Nodes)*out.Cards + leaves*out.Cards*c.Spines; total > maxLinks {
		return nil, fmt.Errorf("%d links; at most %d are possible", total, maxLinks)
	}
	return out.Links(), nil
}

// layers counts the leaves and pods of nodes, and the nodes of the largest leaf.
func layers(places []network.Place) (most, leaves, pods int) {
	on, pod := map[network.Place]int{}, map[string]bool{}
	for _, p := range places {
		on[p]++
		most, pod[p.Pod] = max(most, on[p]), true
	}
	return most, len(on), len(pod)
}

// models reads the traffic of models, beside those that are known.
func (f *networkFile) models(n *cluster.Network) error {
	for _, name := range slices.Sorted(maps.Keys(f.Models)) {
		t, err := f.Models[name].traffic()
		if err != nil {
			return At(err, "network", "models", name)
		}
		n.Models = append(n.Models, cluster.ModelTraffic{Model: name, Traffic: t})
	}
	for _, m := range network.Models() {
		if _, stated := f.Models[m.Model]; !stated {
			n.Models = append(n.Models, m)
		}
	}
	for _, name := range f.Unknown {
		if !slices.ContainsFunc(n.Models, func(m cluster.ModelTraffic) bool { return m.Model == name }) {
			var have []string
			for i := range n.Models {
				have = append(have, n.Models[i].Model)
			}
			return At(cluster.Unknown("model", name, have), "network", "unknown")
		}
	}
	return nil
}

func (t trafficFile) traffic() (out cluster.Traffic, err error) {
	if out.Pattern, err = cluster.ParsePattern(t.Pattern); err != nil {
		return out, At(err, "pattern")
	}
	out.Bytes, out.Compute, out.Overlap = int64(t.Bytes), time.Duration(t.Compute), thousandths(t.Overlap)
	return out, out.Check()
}
