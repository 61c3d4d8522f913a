package solve

import (
	"fmt"
	"slices"
)

// Match pairs some of n things so that the sum of the pairs' weights is maximal, and returns the
// partner of each; -1: none. weight is called once for every pair a < b; 0 or less: the two are
// never paired. Weights are at most 2^50. It takes O(n^3).
//
// Source: Edmonds' blossom method for weighted matching, primal-dual, with a least-slack edge kept
// per vertex and blossom (Galil, ACM Computing Surveys 1986). Among matchings of equal weight it
// makes the same choice as Muri's simulator.
func Match(n int, weight func(a, b int) int64) []int {
	var weights []int64 // vertices are numbered from 1; nil: all weights are 0
	for a := 1; a <= n; a++ {
		for b := a + 1; b <= n; b++ {
			w := max(0, weight(a-1, b-1))
			if w > 1<<50 {
				panic(fmt.Sprintf("solve: weight %d of a pair", w))
			}
			if w == 0 {
				continue
			}
			if weights == nil {
				weights = make([]int64, (n+1)*(n+1))
			}
			weights[a*(n+1)+b], weights[b*(n+1)+a] = w, w
		}
	}
	return match(n, weights, func(dual, d int64) bool { return dual <= d })
}

// MatchReal is Match in the arithmetic of programs that use doubles: it ends when a variable is
// within 1e-5 of zero, relative to the step, and its choice among pairs depends on rounding errors.
// weight is called for both orders of a pair. Policies use Match.
func MatchReal(n int, weight func(a, b int) float64) []int {
	weights := make([]float64, (n+1)*(n+1))
	for a := 1; a <= n; a++ {
		for b := 1; b <= n; b++ {
			if a != b {
				weights[a*(n+1)+b] = max(0, weight(a-1, b-1))
			}
		}
	}
	mates := match(n, weights, func(dual, d float64) bool { return dual <= d || dual-d <= float64(1e-5*max(dual, d)) })
	consistent := slices.Clone(mates)
	for u, v := range mates {
		if v >= 0 && mates[v] != u { // rounding errors can lead to this
			consistent[u] = -1
		}
	}
	return consistent
}

// match implements both; over reports whether a variable that is reduced by d would be zero.
func match[W int64 | float64](n int, weights []W, over func(dual, d W) bool) []int {
	mates := make([]int, n)
	for u := range mates {
		mates[u] = -1
	}
	most := W(0)
	for _, w := range weights {
		most = max(most, w)
	}
	if most == 0 {
		return mates
	}
	m := newMatcher(n, weights, most)
	m.over = over
	for m.phase() {
	}
	for u := range mates {
		mates[u] = int(m.mate[u+1]) - 1
	}
	return mates
}

// edge is the pair of real vertices that joins two vertices or blossoms; the first belongs to the
// first. 0, 0: none.
type edge struct{ a, b int32 }

// The role of a vertex or blossom in a phase's forest: an inner one stands between an outer one and
// its partner.
const (
	unseen int8 = iota - 1
	outer
	inner
)

// matcher numbers vertices from 1 and blossoms from n+1. A blossom is an odd ring of vertices and
// blossoms that behaves as one vertex.
type matcher[W int64 | float64] struct {
	over    func(dual, d W) bool
	n, size int
	top     int       // the highest number in use
	weights []W       // by pair of vertices
	edges   []edge    // by pair of numbers
	dual    []W       // twice the dual variables
	mate    []int32   // the matched vertex; 0: none
	root    []int32   // the outermost blossom that contains it; 0: the number is not in use
	kind    []int8    // role of a root
	from    []int32   // the vertex from which an inner root was reached
	best    []int32   // the outer vertex of another root whose edge has the least slack; 0: none
	gap     []W       // ... that slack; far: none
	ring    [][]int32 // a blossom's members, starting at its base
	inside  [][]int32 // the member of a blossom that contains a vertex; 0: none
	stamp   []int32
	tick    int32
	queue   []int32 // outer vertices whose edges have not been scanned
	nearest []W     // during the construction of a blossom: the least slack of its edges so far
}

// far exceeds every slack.
const far = 1 << 60

func newMatcher[W int64 | float64](n int, weights []W, most W) *matcher[W] {
	size := n + n/2 + 1
	m := &matcher[W]{n: n, size: size, top: n, weights: weights, edges: make([]edge, size*size), dual: make([]W, size),
		mate: make([]int32, size), root: make([]int32, size), kind: make([]int8, size), from: make([]int32, size),
		best: make([]int32, size), gap: make([]W, size),
		ring: make([][]int32, size), inside: make([][]int32, size), stamp: make([]int32, size),
		nearest: make([]W, size)}
	for u := range n + 1 {
		m.root[u], m.dual[u] = int32(u), most
		for v := range n + 1 {
			if weights[u*(n+1)+v] > 0 {
				*m.edge(u, v) = edge{int32(u), int32(v)}
			}
		}
	}
	return m
}

func (m *matcher[W]) edge(x, y int) *edge { return &m.edges[x*m.size+y] }

// slack is twice the excess of the dual variables over an edge's weight.
func (m *matcher[W]) slack(e *edge) W {
	return m.dual[e.a] + m.dual[e.b] - 2*m.weights[int(e.a)*(m.n+1)+int(e.b)]
}

// has reports whether number x is a root in use.
func (m *matcher[W]) has(x int) bool { return m.root[x] == int32(x) }

// offer records that x may be reached from vertex u.
func (m *matcher[W]) offer(u, x int) {
	if s := m.slack(m.edge(u, x)); s < m.gap[x] {
		m.best[x], m.gap[x] = int32(u), s
	}
}

// forget resets from where x may be reached.
func (m *matcher[W]) forget(x int) { m.best[x], m.gap[x] = 0, far }

// rescan recomputes from where x may be reached with the least slack.
func (m *matcher[W]) rescan(x int) {
	m.forget(x)
	for u := 1; u <= m.n; u++ {
		if r := m.root[u]; int(r) != x && m.kind[r] == outer && m.edge(u, x).a != 0 {
			m.offer(u, x)
		}
	}
}

// push queues a vertex, or those of a blossom.
func (m *matcher[W]) push(x int) {
	list := []int32{int32(x)}
	for i := 0; i < len(list); i++ {
		if x := list[i]; int(x) <= m.n {
			m.queue = append(m.queue, x)
		} else {
			list = append(list, m.ring[x]...)
		}
	}
}

func (m *matcher[W]) setRoot(x, root int32) {
	m.root[x] = root
	if int(x) > m.n {
		for _, s := range m.ring[x] {
			m.setRoot(s, root)
		}
	}
}

// phase searches for one augmenting path, and reports whether there was one.
func (m *matcher[W]) phase() bool {
	m.queue = m.queue[:0]
	for x := range m.kind {
		m.kind[x] = unseen
		m.forget(x)
	}
	for x := 1; x <= m.top; x++ {
		if m.has(x) && m.mate[x] == 0 {
			m.from[x], m.kind[x] = 0, outer
			m.push(x)
		}
	}
	if len(m.queue) == 0 {
		return false
	}
	for {
		if m.spread() {
			return true
		}
		if !m.relax(m.least()) {
			return false
		}
		m.queue = m.queue[:0]
		for x, top := 1, m.top; x <= top; x++ {
			if b := int(m.best[x]); m.has(x) && b != 0 && int(m.root[b]) != x && m.gap[x] <= 0 &&
				m.tight(*m.edge(b, x)) {
				return true
			}
		}
		for b := m.n + 1; b <= m.top; b++ {
			if m.has(b) && m.kind[b] == inner && m.dual[b] <= 0 {
				m.expand(b)
			}
		}
	}
}

// spread grows the forest along edges without slack.
func (m *matcher[W]) spread() bool {
	for k := 0; k < len(m.queue); k++ {
		u := int(m.queue[k])
		if m.kind[m.root[u]] == inner {
			continue
		}
		row := m.weights[u*(m.n+1) : (u+1)*(m.n+1)]
		dual, root, of := m.dual[:len(row)], m.root[:len(row)], m.dual[u]
		for v, w := range row {
			x := root[v]
			switch s := of + dual[v] - 2*w; {
			case s > 0 && s >= m.gap[x]: // holds for the nearest member of a blossom, and so for all
			case w <= 0 || root[u] == x:
			case s <= 0:
				if m.kind[x] != inner && m.tight(edge{int32(u), int32(v)}) {
					return true
				}
			case int(x) > m.n:
				m.offer(u, int(x))
			default:
				m.best[x], m.gap[x] = int32(u), s
			}
		}
	}
	return false
}

// least is the largest change of the dual variables before something happens.
func (m *matcher[W]) least() W {
	d := W(far)
	for x := 1; x <= m.top; x++ {
		if !m.has(x) {
			continue
		}
		if x > m.n && m.kind[x] == inner {
			d = min(d, m.dual[x]/2)
		}
		if m.best[x] == 0 || m.kind[x] == inner {
			continue
		}
		s := m.gap[x]
		if m.kind[x] == outer {
			s /= 2 // both ends move
		}
		d = min(d, s)
	}
	return d
}

// relax changes the dual variables by d; false: those of single vertices would become negative, so
// the matching is optimal.
func (m *matcher[W]) relax(d W) bool {
	for u := 1; u <= m.n; u++ {
		switch m.kind[m.root[u]] {
		case outer:
			if m.over(m.dual[u], d) {
				return false
			}
			m.dual[u] -= d
		case inner:
			m.dual[u] += d
		}
	}
	for b := m.n + 1; b <= m.top; b++ {
		if !m.has(b) {
			continue
		}
		switch m.kind[b] {
		case outer:
			m.dual[b] += 2 * d
		case inner:
			m.dual[b] -= 2 * d
		}
	}
	for x := 1; x <= m.top; x++ {
		if b := int(m.best[x]); b != 0 && m.has(x) {
			m.gap[x] = m.slack(m.edge(b, x))
		}
	}
	return true
}

// tight takes an edge without slack into the forest, and reports whether it completed an augmenting
// path.
func (m *matcher[W]) tight(e edge) bool {
	u, v := int(m.root[e.a]), int(m.root[e.b])
	switch m.kind[v] {
	case unseen:
		m.from[v], m.kind[v] = e.a, inner
		next := int(m.root[m.mate[v]])
		m.forget(v)
		m.forget(next)
		m.kind[next] = outer
		m.push(next)
	case outer:
		c := m.meet(u, v)
		if c == 0 {
			m.flip(u, v)
			m.flip(v, u)
			return true
		}
		m.shrink(u, c, v)
	}
	return false
}

// meet is the nearest common ancestor of two outer roots in the forest; 0: they are in different
// trees.
func (m *matcher[W]) meet(u, v int) int {
	m.tick++
	for ; u != 0 || v != 0; u, v = v, u {
		if u == 0 {
			continue
		}
		if m.stamp[u] == m.tick {
			return u
		}
		m.stamp[u] = m.tick
		if u = int(m.root[m.mate[u]]); u != 0 {
			u = int(m.root[m.from[u]])
		}
	}
	return 0
}
