package network

import (
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/splitmix"
)

// Held is how many ranks of a job (GPUs, or tasks without GPUs) are on a node.
type Held struct {
	Node  int32
	Ranks int
}

// Part is traffic of one iteration from one network card to another. A part between leaf switches that are joined by
// several paths is a choice.
type Part struct {
	Bytes int64
	Own   []LinkID // the cards' own links, which it passes whatever the path
	Paths []Path   // between their switches; one or more
	seed  uint64   // of the hash that stands for the switches'
}

// Demand is the traffic of a job in one iteration.
type Demand struct {
	Parts []Part
	Real  bool // switches choose the paths, by a hash that nobody knows: each part counts on all of its paths evenly
}

// Bytes is the traffic on a link in one iteration.
type Bytes struct {
	Link  LinkID
	Bytes int64
}

// pair is traffic between two nodes in one iteration.
type pair struct {
	from, to int32
	bytes    int64
}

// Demand is what a job transmits over the network, given where its ranks are. It is empty for a job on one node, in
// one NVLink domain, or without traffic.
func (f *Fabric) Demand(id cluster.JobID, t cluster.Traffic, held []Held) Demand {
	d := Demand{Real: f.real}
	if len(held) < 2 || t.Pattern == cluster.NoTraffic || t.Bytes <= 0 {
		return d
	}
	for _, p := range pairs(t, f.inOrder(held)) {
		if p.bytes <= 0 || f.near(p.from, p.to) {
			continue
		}
		up, down := f.rails(p.from), f.rails(p.to)
		n := min(len(up), len(down))
		for r := range n {
			bytes := evenly(p.bytes, r, n)
			_, a := f.direction(up[r])
			_, b := f.direction(down[r])
			paths := f.Paths(a, b)
			if len(paths) == 0 || bytes == 0 {
				continue
			}
			d.Parts = append(d.Parts, Part{Bytes: bytes, Own: []LinkID{up[r], down[r] ^ 1}, Paths: paths,
				seed: splitmix.Mix(uint64(uint32(id))<<40 ^ uint64(uint32(p.from))<<20 ^ uint64(uint32(p.to)) ^ uint64(
					r)<<60)})
		}
	}
	return d
}

// pairs is who sends how much to whom; the nodes are in the order of the ring.
func pairs(t cluster.Traffic, held []Held) (list []pair) {
	nodes, ranks := int64(len(held)), int64(0)
	for _, h := range held {
		ranks += int64(h.Ranks)
	}
	both := func(a, b int32, bytes int64) { list = append(list, pair{a, b, bytes}, pair{b, a, bytes}) }
	switch t.Pattern {
	case cluster.Ring, cluster.Hierarchical:
		n := ranks
		if t.Pattern == cluster.Hierarchical {
			n = nodes
		}
		for i, h := range held {
			list = append(list, pair{h.Node, held[(i+1)%len(held)].Node, part(t.Bytes, 2*(n-1), n)})
		}
	case cluster.Tree:
		for i := 1; i < len(held); i++ {
			both(held[(i-1)/2].Node, held[i].Node, t.Bytes)
		}
	case cluster.AllToAll:
		for i, a := range held {
			for _, b := range held[i+1:] {
				both(a.Node, b.Node, part(t.Bytes, int64(a.Ranks)*int64(b.Ranks), ranks))
			}
		}
	case cluster.Pipeline:
		for i := 1; i < len(held); i++ {
			both(held[i-1].Node, held[i].Node, t.Bytes)
		}
	case cluster.ParameterServer:
		for _, h := range held[1:] {
			both(held[0].Node, h.Node, t.Bytes*int64(h.Ranks))
		}
	}
	return list
}

// Sends is the most that one of several hosts sends in an iteration, each with one rank.
func Sends(t cluster.Traffic, hosts int) (most int64) {
	held := make([]Held, hosts)
	for i := range held {
		held[i] = Held{Node: int32(i), Ranks: 1}
	}
	sent := make([]int64, hosts)
	for _, p := range pairs(t, held) {
		sent[p.from] += p.bytes
		most = max(most, sent[p.from])
	}
	return most
}

// part is bytes times a, divided by b.
func part(bytes, a, b int64) int64 { return bytes/b*a + bytes%b*a/b }

// Choices counts the parts that have more than one path.
func (d *Demand) Choices() (n int) {
	for i := range d.Parts {
		if len(d.Parts[i].Paths) > 1 {
			n++
		}
	}
	return n
}

// On lists the links that the traffic passes, and the bytes on each, under a treatment, by link.
func (d *Demand) On(t *cluster.Treatment) []Bytes {
	var list []Bytes
	choice := 0
	for i := range d.Parts {
		p := &d.Parts[i]
		for _, l := range p.Own {
			list = append(list, Bytes{l, p.Bytes})
		}
		if len(p.Paths) == 1 {
			list = p.along(list, 0, p.Bytes)
			continue
		}
		if d.Real {
			for k := range p.Paths {
				list = p.along(list, k, evenly(p.Bytes, k, len(p.Paths)))
			}
			continue
		}
		if choice < len(t.Path) {
			list = p.along(list, int(t.Path[choice])%len(p.Paths), p.Bytes)
			choice++
			continue
		}
		n := max(1, t.Spread)
		for c := range n {
			path := splitmix.Mix(p.seed+uint64(c)*splitmix.Step) % uint64(len(p.Paths))
			list = p.along(list, int(path), evenly(p.Bytes, c, n))
		}
	}
	slices.SortFunc(list, func(a, b Bytes) int { return int(a.Link - b.Link) })
	n := 0
	for _, b := range list {
		if n > 0 && list[n-1].Link == b.Link {
			list[n-1].Bytes += b.Bytes
			continue
		}
		list[n] = b
		n++
	}
	return list[:n]
}

// evenly is the k-th of n equal parts; the first ones have what is left.
func evenly(bytes int64, k, n int) int64 {
	part := bytes / int64(n)
	if int64(k) < bytes%int64(n) {
		part++
	}
	return part
}

func (p *Part) along(list []Bytes, path int, bytes int64) []Bytes {
	for _, l := range p.Paths[path] {
		list = append(list, Bytes{l, bytes})
	}
	return list
}

// Links says what a directed link carries, in bytes per second.
type Links interface {
	Capacity(LinkID) int64
}

// Unequal are links that do not give all transmissions of a class the same rate.
type Unequal interface {
	Uneven() cluster.Uneven
}

// UnevenOf is how uneven links are.
func UnevenOf(links Links) (u cluster.Uneven) {
	if is, ok := links.(Unequal); ok {
		u = is.Uneven()
	}
	return u
}

// Alone is how long traffic takes when nothing else is on the links.
func Alone(links Links, on []Bytes) (longest time.Duration) {
	for _, b := range on {
		longest = max(longest, Takes(b.Bytes, links.Capacity(b.Link)))
	}
	return longest
}

// Components groups jobs that share links, directly or through others, as lists of indexes. Jobs that share none are
// left out.
func Components(on [][]Bytes) (groups [][]int) {
	root := make([]int, len(on))
	for i := range root {
		root[i] = i
	}
	var find func(int) int
	find = func(i int) int {
		if root[i] != i {
			root[i] = find(root[i])
		}
		return root[i]
	}
	last := LinkID(-1)
	for _, list := range on {
		for _, b := range list {
			last = max(last, b.Link)
		}
	}
	first := make([]int32, last+1) // by link, plus one
	for i, list := range on {
		for _, b := range list {
			if first[b.Link] == 0 {
				first[b.Link] = int32(i + 1)
				continue
			}
			a, c := find(int(first[b.Link]-1)), find(i)
			root[max(a, c)] = min(a, c)
		}
	}
	at := make([]int, len(on))
	for i := range on {
		r := find(i)
		if r == i {
			continue
		}
		if at[r] == 0 {
			groups = append(groups, []int{r})
			at[r] = len(groups)
		}
		groups[at[r]-1] = append(groups[at[r]-1], i)
	}
	return groups
}
