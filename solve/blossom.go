package solve

import "slices"

// flip matches u with v, the former partner of u with the vertex from which that partner was
// reached, and so on to the root of the tree.
func (m *matcher[W]) flip(u, v int) {
	for {
		old := int(m.root[m.mate[u]])
		m.join(u, v)
		if old == 0 {
			return
		}
		next := int(m.root[m.from[old]])
		m.join(old, next)
		u, v = next, old
	}
}

// join matches u with v; if u is a blossom, its ring is rematched around the edge's end vertex,
// which becomes its base.
func (m *matcher[W]) join(u, v int) {
	e := *m.edge(u, v)
	m.mate[u] = e.b
	if u <= m.n {
		return
	}
	x := m.inside[u][e.a]
	k := m.even(u, x)
	ring := m.ring[u]
	for i := range k {
		m.join(int(ring[i]), int(ring[i^1]))
	}
	m.join(int(x), v)
	m.ring[u] = append(slices.Clone(ring[k:]), ring[:k]...)
}

// even is the position of x in a blossom's ring; the ring is reversed if that is odd, so that only
// whole pairs lie between the base and x.
func (m *matcher[W]) even(b int, x int32) int {
	ring := m.ring[b]
	k := slices.Index(ring, x)
	if k%2 == 1 {
		slices.Reverse(ring[1:])
		k = len(ring) - k
	}
	return k
}

// shrink makes a blossom of the ring that an edge between u and v closes; c is the nearest common
// ancestor.
func (m *matcher[W]) shrink(u, c, v int) {
	b := m.n + 1
	for b <= m.top && m.root[b] != 0 {
		b++
	}
	m.top = max(m.top, b)
	m.dual[b], m.kind[b], m.mate[b] = 0, outer, m.mate[c]
	ring := []int32{int32(c)}
	walk := func(x int) {
		for x != c {
			y := int(m.root[m.mate[x]])
			ring = append(ring, int32(x), int32(y))
			m.push(y)
			x = int(m.root[m.from[y]])
		}
	}
	walk(u)
	slices.Reverse(ring[1:])
	walk(v)
	m.ring[b] = ring
	m.setRoot(int32(b), int32(b))
	if m.inside[b] == nil {
		m.inside[b] = make([]int32, m.n+1)
	}
	clear(m.inside[b])
	m.inherit(b)
	m.rescan(b)
}

// inherit gives blossom b the least-slack edges of its members, and records its members.
func (m *matcher[W]) inherit(b int) {
	own, nearest := m.edges[b*m.size:][:m.top+1], m.nearest[:m.top+1]
	for x := range nearest {
		own[x], nearest[x], m.edges[x*m.size+b] = edge{}, far, edge{}
	}
	for _, s := range m.ring[b] {
		for x, e := range m.edges[int(s)*m.size:][:m.top+1] {
			if e.a == 0 {
				continue
			}
			if d := m.slack(&e); d < nearest[x] {
				own[x], nearest[x], m.edges[x*m.size+b] = e, d, m.edges[x*m.size+int(s)]
			}
		}
		m.put(s, b, s)
	}
}

// put records that the vertices of x are in member s of blossom b.
func (m *matcher[W]) put(x int32, b int, s int32) {
	if int(x) <= m.n {
		m.inside[b][x] = s
		return
	}
	for _, y := range m.ring[x] {
		m.put(y, b, s)
	}
}

// expand dissolves an inner blossom: the even path round its ring, from where it was reached to its
// base, stays in the forest.
func (m *matcher[W]) expand(b int) {
	for _, s := range m.ring[b] {
		m.setRoot(s, s)
	}
	x := m.inside[b][m.edge(b, int(m.from[b])).a]
	k := m.even(b, x)
	ring := m.ring[b]
	for i := 0; i < k; i += 2 {
		s, t := int(ring[i]), int(ring[i+1])
		m.from[s] = m.edge(t, s).a
		m.kind[s], m.kind[t] = inner, outer
		m.forget(s)
		m.rescan(t)
		m.push(t)
	}
	m.kind[x], m.from[x] = inner, m.from[b]
	for _, s := range ring[k+1:] {
		m.kind[s] = unseen
		m.rescan(int(s))
	}
	m.root[b] = 0
}
