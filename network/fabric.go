package network

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/muster-gpu/muster/cluster"
)

// LinkID is one direction of a link: twice its position in cluster.Network.Links, plus one from B to A.
type LinkID int32

// Path is a way between two switches, as links in order; empty: they are the same.
type Path []LinkID

// MostPaths bounds the paths that are known between two switches; further ones are not used. It fits a uint8.
const MostPaths = 64

// Fabric is a network as a graph. Vertices are the cluster's nodes by their numbers, other hosts, and switches above
// them.
type Fabric struct {
	links   []cluster.Link
	ends    [][2]int32 // vertices of each link
	out     [][]LinkID // links that leave a vertex
	nodes   int        // and other hosts
	names   []string
	number  map[string]int32 // by name
	domain  []string         // NVLink domain of each node; empty: none
	between map[[2]int32][]Path
	uneven  cluster.Uneven
	real    bool // switches choose paths
}

// New builds the graph of a network of nodes; nil without one. Nodes without links have no traffic.
func New(nodes []cluster.Node, spec *cluster.Network) *Fabric {
	if spec == nil {
		return nil
	}
	f := &Fabric{between: map[[2]int32][]Path{}, number: map[string]int32{}, uneven: spec.Uneven,
		real: spec.Real}
	number := f.number
	for i := range nodes {
		number[nodes[i].Name] = int32(i)
		f.names = append(f.names, nodes[i].Name)
		f.domain = append(f.domain, nodes[i].NVLink)
	}
	for _, name := range spec.Hosts {
		if _, known := number[name]; !known {
			number[name] = int32(len(f.names))
			f.names, f.domain = append(f.names, name), append(f.domain, "")
		}
	}
	f.nodes = len(f.names)
	vertex := func(name string) int32 {
		v, known := number[name]
		if !known {
			v = int32(len(f.names))
			number[name] = v
			f.names = append(f.names, name)
		}
		return v
	}
	f.links = append(tree(nodes, spec.Rates), spec.Links...)
	for _, l := range f.links {
		f.ends = append(f.ends, [2]int32{vertex(l.A), vertex(l.B)})
	}
	f.out = make([][]LinkID, len(f.names))
	for i, e := range f.ends {
		f.out[e[0]] = append(f.out[e[0]], LinkID(2*i))
		f.out[e[1]] = append(f.out[e[1]], LinkID(2*i+1))
	}
	return f
}

// tree lists the links of a tree by the nodes' racks, fabrics and cores. Of what is above fabrics so many levels count
// as have rates: with three or fewer, fabrics are joined by one core. A switch is named after what it joins, so that no
// node has its name.
func tree(nodes []cluster.Node, rates []int64) (links []cluster.Link) {
	above := map[string]bool{} // switches whose link upward is listed; looked up only
	for i := range nodes {
		n := &nodes[i]
		var way []string
		if n.Rack != "" {
			way = append(way, "rack "+n.Rack)
		}
		if n.Fabric != "" {
			way = append(way, "fabric "+n.Fabric)
		}
		for level, name := range n.Cores[:min(len(n.Cores), max(0, len(rates)-3))] {
			way = append(way, fmt.Sprintf("%v %s", cluster.LevelCore+cluster.Level(level), name))
		}
		if len(way) > 0 {
			way = append(way, "core")
		}
		from := n.Name
		for level := range min(len(way), len(rates)) {
			if above[from] {
				break
			}
			links = append(links, cluster.Link{A: from, B: way[level], Rate: rates[level]})
			above[from] = true
			from = way[level]
		}
	}
	return links
}

// Host is the number of a node or another host by its name; false: there is none.
func (f *Fabric) Host(name string) (int32, bool) {
	v, known := f.number[name]
	return v, known && int(v) < f.nodes
}

// Links is the number of directed links.
func (f *Fabric) Links() int { return 2 * len(f.links) }

// Switches is the number of switches.
func (f *Fabric) Switches() int { return len(f.names) - f.nodes }

// Capacity is what a directed link carries, in bytes per second.
func (f *Fabric) Capacity(l LinkID) int64 { return f.links[l/2].Rate / 8 }

// Uneven implements Unequal.
func (f *Fabric) Uneven() cluster.Uneven { return f.uneven }

// Name is a directed link as text: "leaf0>spine3".
func (f *Fabric) Name(l LinkID) string {
	from, to := f.direction(l)
	return f.names[from] + ">" + f.names[to]
}

func (f *Fabric) direction(l LinkID) (from, to int32) {
	e := f.ends[l/2]
	if l&1 == 1 {
		return e[1], e[0]
	}
	return e[0], e[1]
}

// rails are a node's own links, outward, in their order.
func (f *Fabric) rails(node int32) []LinkID {
	if int(node) >= f.nodes { // it joined later
		return nil
	}
	return f.out[node]
}

// Own are a node's own links, outward.
func (f *Fabric) Own(node int32) []LinkID { return f.rails(node) }

// leaf is the switch of a node's first link; -1: it has none.
func (f *Fabric) leaf(node int32) int32 {
	own := f.rails(node)
	if len(own) == 0 {
		return -1
	}
	_, to := f.direction(own[0])
	return to
}

// near reports whether two nodes reach each other without the network.
func (f *Fabric) near(a, b int32) bool {
	return a == b || f.domainOf(a) != "" && f.domainOf(a) == f.domainOf(b)
}

func (f *Fabric) domainOf(node int32) string {
	if int(node) >= f.nodes {
		return ""
	}
	return f.domain[node]
}

// Paths lists the paths of least hops from one switch to another, in the order of their links; of more than MostPaths
// as many that are spread over all switches between. It is nil if there is none.
func (f *Fabric) Paths(from, to int32) []Path {
	key := [2]int32{from, to}
	list, known := f.between[key]
	if !known {
		list = f.find(from, to)
		f.between[key] = list
	}
	return list
}

func (f *Fabric) find(from, to int32) (list []Path) {
	hops := make([]int32, len(f.names)) // to the destination, plus one; 0: not reached
	hops[to] = 1
	for queue := []int32{to}; len(queue) > 0 && hops[from] == 0; queue = queue[1:] {
		for _, l := range f.out[queue[0]] {
			if _, v := f.direction(l); int(v) >= f.nodes && hops[v] == 0 {
				hops[v] = hops[queue[0]] + 1
				queue = append(queue, v)
			}
		}
	}
	if hops[from] == 0 {
		return nil
	}
	onward := func(v int32) (links []LinkID) {
		for _, l := range f.out[v] {
			if _, next := f.direction(l); hops[next] == hops[v]-1 && hops[next] > 0 {
				links = append(links, l)
			}
		}
		return links
	}
	var way Path
	var walk func(v int32)
	walk = func(v int32) {
		if v == to {
			list = append(list, slices.Clone(way))
			return
		}
		for _, l := range onward(v) {
			if len(list) > MostPaths {
				return
			}
			way = append(way, l)
			_, next := f.direction(l)
			walk(next)
			way = way[:len(way)-1]
		}
	}
	if walk(from); len(list) > MostPaths {
		return f.spread(from, to, onward)
	}
	return list
}

// spread finds MostPaths of more paths: at each switch one after the other takes the next link onward, beginning with
// another one at each.
func (f *Fabric) spread(from, to int32, onward func(int32) []LinkID) (list []Path) {
	turn := map[int32]int{}
	for tries := 0; len(list) < MostPaths && tries < 64*MostPaths; tries++ {
		var way Path
		for v := from; v != to; {
			links := onward(v)
			n := len(links)
			l := links[(int(v)+turn[v]+turn[v]/n)%n] // each round begins one further, so that paths do not recur soon
			turn[v]++
			way = append(way, l)
			_, v = f.direction(l)
		}
		if !slices.ContainsFunc(list, func(p Path) bool { return slices.Equal(p, way) }) {
			list = append(list, way)
		}
	}
	return list
}

// inOrder sorts nodes so that neighbours in the network are neighbours in rings: as a good rank order does.
func (f *Fabric) inOrder(held []Held) []Held {
	return slices.SortedFunc(slices.Values(held), func(a, b Held) int {
		return cmp.Or(cmp.Compare(f.leaf(a.Node), f.leaf(b.Node)), cmp.Compare(f.domainOf(a.Node), f.domainOf(b.Node)),
			cmp.Compare(a.Node, b.Node))
	})
}
