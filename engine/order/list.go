// Package order has ordered lists: of jobs by key, and lists of which only the first few elements
// are needed.
package order

import (
	"fmt"
	"math"
	"slices"

	"github.com/muster-gpu/muster/cluster"
)

// Key orders jobs: lower first, compared from the left. The engine appends the
// submit time and the id, so that no tie is left open.
type Key [3]int64

// Item is an entry of an ordered list.
type Item struct {
	Key    Key
	Submit cluster.Time
	ID     int32
	Group  int32 // of a pending job, so that most can be rejected without reading the job
}

// Before orders items by key, submit time and id: a total order.
func (a *Item) Before(b *Item) bool {
	switch {
	case a.Key[0] != b.Key[0]:
		return a.Key[0] < b.Key[0]
	case a.Key[1] != b.Key[1]:
		return a.Key[1] < b.Key[1]
	case a.Key[2] != b.Key[2]:
		return a.Key[2] < b.Key[2]
	case a.Submit != b.Submit:
		return a.Submit < b.Submit
	}
	return a.ID < b.ID
}

// chunkMax bounds a chunk: large enough that a million jobs make some ten
// thousand chunks, small enough that an insertion moves at most 5 kB.
const chunkMax = 128

// List is an ordered list of items: chunks of sorted slices. Insertion and removal cost a binary
// search and a short move, or almost nothing next to the last change, since jobs that started
// together are listed again one after the other. Walking in order is a scan. The naive twin (a
// plain sorted slice) is in the test.
type List struct {
	chunks  [][]Item
	n       int
	changes int    // number of changes: positions are valid until the next one
	near    Cursor // place of the last change, which may no longer exist
	spare   []Item // memory of a removed chunk: short lists are often emptied and refilled
}

// shiftMax bounds the chunks whose head is removed by a move; longer ones release memory at the
// front.
const shiftMax = 16

// chunkOf returns the first chunk whose last item is not before it. It tries the chunk of the last
// change first, then the next one.
func (l *List) chunkOf(it *Item) int {
	lo, hi := 0, len(l.chunks)
	for near := l.near.chunk; near < min(l.near.chunk+2, len(l.chunks)); near++ {
		if c := l.chunks[near]; c[len(c)-1].Before(it) {
			lo = near + 1
			continue
		}
		hi = near
		if near == lo {
			return near
		}
		if c := l.chunks[near-1]; c[len(c)-1].Before(it) {
			return near
		}
		hi--
		break
	}
	for lo < hi {
		mid := (lo + hi) / 2
		c := l.chunks[mid]
		if c[len(c)-1].Before(it) {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// search returns the first position in c that is not before it. It tries position near and the one
// before first.
func search(c []Item, it *Item, near int) int {
	lo, hi := 0, len(c)
	if near = min(near, hi-1); near >= 0 {
		if c[near].Before(it) {
			lo = near + 1
		} else if hi = near; near > 0 {
			if c[near-1].Before(it) {
				return near
			}
			hi--
		}
	}
	for lo < hi {
		mid := (lo + hi) / 2
		if c[mid].Before(it) {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// Insert adds an item.
func (l *List) Insert(it Item) {
	l.n++
	l.changes++
	if len(l.chunks) == 0 {
		if l.spare == nil {
			l.spare = make([]Item, 0, 8)
		}
		l.chunks, l.spare, l.near = append(l.chunks, append(l.spare, it)), nil, Cursor{pos: 1}
		return
	}
	i := l.chunkOf(&it)
	if i == len(l.chunks) {
		i-- // beyond the end: append to the last chunk
	}
	c := l.chunks[i]
	j := search(c, &it, l.near.pos)
	c = append(c, Item{})
	copy(c[j+1:], c[j:])
	c[j] = it
	l.chunks[i] = c
	if l.near = (Cursor{chunk: i, pos: j + 1}); len(c) < chunkMax {
		return
	}
	// Split. A list that grows at its end (fifo) keeps its chunks full.
	cut := chunkMax / 2
	if i == len(l.chunks)-1 && j == len(c)-1 {
		cut = chunkMax - 1
	}
	right := append(make([]Item, 0, chunkMax), c[cut:]...)
	l.chunks[i] = c[:cut]
	l.chunks = append(l.chunks, nil)
	copy(l.chunks[i+2:], l.chunks[i+1:])
	if l.chunks[i+1] = right; j >= cut {
		l.near = Cursor{chunk: i + 1, pos: j + 1 - cut}
	}
}

// Remove deletes the item; it reports whether it was there.
func (l *List) Remove(it Item) bool {
	i := l.chunkOf(&it)
	if i == len(l.chunks) {
		return false
	}
	c := l.chunks[i]
	j := search(c, &it, l.near.pos)
	if j == len(c) || c[j] != it {
		return false
	}
	l.n--
	l.changes++
	l.near = Cursor{chunk: i, pos: j}
	if len(c) == 1 {
		if i > 0 { // the next removal is equally likely before and after it
			l.near = Cursor{chunk: i - 1, pos: len(l.chunks[i-1]) - 1}
		}
		if l.chunks = append(l.chunks[:i], l.chunks[i+1:]...); cap(c) > cap(l.spare) {
			l.spare = c[:0]
		}
		return true
	}
	if j == 0 && len(c) > shiftMax {
		l.chunks[i] = c[1:] // the head is removed most often: no move
		return true
	}
	copy(c[j:], c[j+1:])
	l.chunks[i] = c[:len(c)-1]
	return true
}

// Rewrite replaces each item by the result of f, in the old order; f keeps the ids. If no item
// changes its place, this is a scan. spare is memory for the items that do.
func (l *List) Rewrite(spare []Item, f func(Item) Item) []Item {
	sorted, last := true, (*Item)(nil)
	for _, c := range l.chunks {
		for i := range c {
			c[i] = f(c[i])
			sorted = sorted && (last == nil || last.Before(&c[i]))
			last = &c[i]
		}
	}
	l.changes++
	if sorted {
		return spare
	}
	spare = spare[:0]
	for _, c := range l.chunks {
		spare = append(spare, c...)
	}
	slices.SortFunc(spare, func(a, b Item) int {
		switch {
		case a == b:
			return 0
		case a.Before(&b):
			return -1
		}
		return 1
	})
	rest := spare
	for _, c := range l.chunks {
		rest = rest[copy(c, rest):]
	}
	return spare
}

// First returns the lowest item.
func (l *List) First() (Item, bool) {
	if l.n == 0 {
		return Item{}, false
	}
	return l.chunks[0][0], true
}

// Cursor is a position in a list, good until the list changes.
type Cursor struct{ chunk, pos int }

// Next advances to the next higher item.
func (p *Cursor) Next() { p.pos++ }

// Seek returns the position of the lowest item that is above it.
func (l *List) Seek(it *Item) Cursor {
	i := l.chunkOf(it)
	if i == len(l.chunks) {
		return Cursor{i, 0}
	}
	c := l.chunks[i]
	j := search(c, it, l.near.pos)
	if j < len(c) && c[j].ID == it.ID && c[j] == *it {
		j++
	}
	return Cursor{i, j}
}

// At returns the item at a position, which may be one past the end of a chunk.
func (l *List) At(p *Cursor) (Item, bool) {
	if it := l.Peek(p); it != nil {
		return *it, true
	}
	return Item{}, false
}

// Peek is At without a copy: the item belongs to the list and is valid until its next change; nil
// at the end.
func (l *List) Peek(p *Cursor) *Item {
	if p.chunk < len(l.chunks) && p.pos == len(l.chunks[p.chunk]) {
		p.chunk, p.pos = p.chunk+1, 0
	}
	if p.chunk >= len(l.chunks) {
		return nil
	}
	return &l.chunks[p.chunk][p.pos]
}

// Walk calls f for each item in order until f returns false.
func (l *List) Walk(f func(Item) bool) {
	for _, c := range l.chunks {
		for i := range c {
			if !f(c[i]) {
				return
			}
		}
	}
}

// WalkBack is walk from the highest item down.
func (l *List) WalkBack(f func(Item) bool) {
	for at := l.Reverse(); at.Item() != nil && f(*at.Item()); at.Next() {
	}
}

// Reverse is a position in a list for walking from its highest item down, valid until the list
// changes.
type Reverse struct {
	l           *List
	chunk, left int // number of items left in the chunk
}

// Reverse starts at the highest item.
func (l *List) Reverse() Reverse {
	b := Reverse{l: l, chunk: len(l.chunks) - 1}
	if b.chunk >= 0 {
		b.left = len(l.chunks[b.chunk])
	}
	return b
}

// Below starts at the highest item whose first key element is less than key0.
func (l *List) Below(key0 int64) Reverse {
	return l.Before(&Item{Key: Key{key0, math.MinInt64, math.MinInt64}, Submit: math.MinInt64, ID: math.MinInt32})
}

// Before starts at the highest item before the given one, which need not be in the list.
func (l *List) Before(it *Item) Reverse {
	b := Reverse{l: l, chunk: l.chunkOf(it)}
	if b.chunk < len(l.chunks) {
		b.left = search(l.chunks[b.chunk], it, l.near.pos)
	}
	if b.left == 0 {
		if b.chunk--; b.chunk >= 0 {
			b.left = len(l.chunks[b.chunk])
		}
	}
	return b
}

// Item is the item at the position; nil: there are no more.
func (b *Reverse) Item() *Item {
	if b.chunk < 0 {
		return nil
	}
	return &b.l.chunks[b.chunk][b.left-1]
}

// Next advances to the next lower item.
func (b *Reverse) Next() {
	if b.left--; b.left == 0 {
		if b.chunk--; b.chunk >= 0 {
			b.left = len(b.l.chunks[b.chunk])
		}
	}
}

// Fill replaces the list's content by these items, which it sorts.
func (l *List) Fill(items []Item) {
	slices.SortFunc(items, func(a, b Item) int {
		if a.Before(&b) {
			return -1
		}
		return 1
	})
	const full = chunkMax * 3 / 4 // leave room in each chunk
	*l = List{n: len(items), changes: l.changes + 1}
	for chunk := range slices.Chunk(items, full) {
		l.chunks = append(l.chunks, append(make([]Item, 0, chunkMax), chunk...))
	}
}

// Len is the number of items.
func (l *List) Len() int { return l.n }

// Changes is the number of changes so far: positions are valid until the next one.
func (l *List) Changes() int { return l.changes }

// Items returns the list's items after checking their order and number.
func (l *List) Items() (items []Item, err error) {
	l.Walk(func(it Item) bool { items = append(items, it); return true })
	for i := 1; i < len(items); i++ {
		if !items[i-1].Before(&items[i]) {
			return nil, fmt.Errorf("%+v is not before %+v", items[i-1], items[i])
		}
	}
	if len(items) != l.n {
		return nil, fmt.Errorf("%d items, counted %d", l.n, len(items))
	}
	return items, nil
}

// AddSat adds two non-negative numbers, capped at Never.
func AddSat(a, b int64) int64 {
	if c := a + b; c >= a {
		return c
	}
	return int64(cluster.Never)
}

// Double makes room for twice as many where a list is full: append grows large ones by a quarter only, so that
// one that becomes as long as there are jobs in a single step is copied five times.
func Double[T any](list []T) []T {
	if len(list) < cap(list) {
		return list
	}
	return slices.Grow(list, max(8, len(list)))
}
