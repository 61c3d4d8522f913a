package engine

import (
	"math"
	"slices"

	"github.com/muster-gpu/muster/cluster"
)

// Key orders jobs: lower first, compared from the left. The engine appends the
// submit time and the id, so that no tie is left open.
type Key [3]int64

// item is an entry of an ordered list.
type item struct {
	key    Key
	submit cluster.Time
	id     int32
	group  int32 // of a pending job: a pass refuses most without looking at the job itself
}

// Before orders items by key, submit time and id: a total order.
func (a *item) Before(b *item) bool {
	switch {
	case a.key[0] != b.key[0]:
		return a.key[0] < b.key[0]
	case a.key[1] != b.key[1]:
		return a.key[1] < b.key[1]
	case a.key[2] != b.key[2]:
		return a.key[2] < b.key[2]
	case a.submit != b.submit:
		return a.submit < b.submit
	}
	return a.id < b.id
}

// chunkMax bounds a chunk: large enough that a million jobs make some ten
// thousand chunks, small enough that an insertion moves at most 5 kB.
const chunkMax = 128

// olist is an ordered list of items: chunks of sorted slices. Insertion and
// removal cost a binary search and a short move, or next to nothing beside the
// last change: jobs that started together are listed again one after the other.
// Walking in order is a scan. The dumb twin (a plain sorted slice) is in lists_test.go.
type olist struct {
	chunks  [][]item
	n       int
	changes int    // so far: a position is good until the next
	near    place  // of the last change; there need not be such a place any more
	spare   []item // memory of a chunk that is gone: a short list is often emptied and filled again
}

// shiftMax bounds a chunk whose head is taken by a move: the memory of a longer one is
// let go from the front.
const shiftMax = 16

// chunkOf returns the first chunk whose last item is not before it. It looks at the chunk of the
// last change first, then at the next one.
func (l *olist) chunkOf(it *item) int {
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

// search returns the first position in c that is not before it. It looks at a position and at the one
// before that first.
func search(c []item, it *item, near int) int {
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

func (l *olist) insert(it item) {
	l.n++
	l.changes++
	if len(l.chunks) == 0 {
		if l.spare == nil {
			l.spare = make([]item, 0, 8)
		}
		l.chunks, l.spare, l.near = append(l.chunks, append(l.spare, it)), nil, place{pos: 1}
		return
	}
	i := l.chunkOf(&it)
	if i == len(l.chunks) {
		i-- // beyond the end: append to the last chunk
	}
	c := l.chunks[i]
	j := search(c, &it, l.near.pos)
	c = append(c, item{})
	copy(c[j+1:], c[j:])
	c[j] = it
	l.chunks[i] = c
	if l.near = (place{chunk: i, pos: j + 1}); len(c) < chunkMax {
		return
	}
	// Split. A list that grows at its end (fifo) keeps its chunks full.
	cut := chunkMax / 2
	if i == len(l.chunks)-1 && j == len(c)-1 {
		cut = chunkMax - 1
	}
	right := append(make([]item, 0, chunkMax), c[cut:]...)
	l.chunks[i] = c[:cut]
	l.chunks = append(l.chunks, nil)
	copy(l.chunks[i+2:], l.chunks[i+1:])
	if l.chunks[i+1] = right; j >= cut {
		l.near = place{chunk: i + 1, pos: j + 1 - cut}
	}
}

// remove deletes the item; it reports whether it was there.
func (l *olist) remove(it item) bool {
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
	l.near = place{chunk: i, pos: j}
	if len(c) == 1 {
		if i > 0 { // the next that leaves is as likely before it as after it
			l.near = place{chunk: i - 1, pos: len(l.chunks[i-1]) - 1}
		}
		if l.chunks = append(l.chunks[:i], l.chunks[i+1:]...); cap(c) > cap(l.spare) {
			l.spare = c[:0]
		}
		return true
	}
	if j == 0 && len(c) > shiftMax {
		l.chunks[i] = c[1:] // the head leaves most often: no move
		return true
	}
	copy(c[j:], c[j+1:])
	l.chunks[i] = c[:len(c)-1]
	return true
}

// rewrite replaces each item by what f makes of it, in order as they were; f keeps the
// ids. If nothing changes its place, that is a scan. spare is memory for the rest.
func (l *olist) rewrite(spare []item, f func(item) item) []item {
	sorted, last := true, (*item)(nil)
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
	slices.SortFunc(spare, func(a, b item) int {
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

// first returns the lowest item.
func (l *olist) first() (item, bool) {
	if l.n == 0 {
		return item{}, false
	}
	return l.chunks[0][0], true
}

// after returns the lowest item that is above it.
func (l *olist) after(it *item) (item, bool) {
	p := l.seek(it)
	return l.at(&p)
}

// place is a position in a list.
type place struct{ chunk, pos int }

// seek returns the position of the lowest item that is above it.
func (l *olist) seek(it *item) place {
	i := l.chunkOf(it)
	if i == len(l.chunks) {
		return place{i, 0}
	}
	c := l.chunks[i]
	j := search(c, it, l.near.pos)
	if j < len(c) && c[j] == *it {
		j++
	}
	return place{i, j}
}

// at returns the item at a position, which may be one past the end of a chunk.
func (l *olist) at(p *place) (item, bool) {
	if p.chunk < len(l.chunks) && p.pos == len(l.chunks[p.chunk]) {
		p.chunk, p.pos = p.chunk+1, 0
	}
	if p.chunk >= len(l.chunks) {
		return item{}, false
	}
	return l.chunks[p.chunk][p.pos], true
}

// walk calls f for each item in order until f returns false.
func (l *olist) walk(f func(item) bool) {
	for _, c := range l.chunks {
		for i := range c {
			if !f(c[i]) {
				return
			}
		}
	}
}

// walkBack is walk from the highest item down.
func (l *olist) walkBack(f func(item) bool) {
	for at := l.back(); at.item() != nil && f(*at.item()); at.move() {
	}
}

// back is a place in a list from its highest item down; good until the list changes.
type back struct {
	l           *olist
	chunk, left int // of the chunk, so many are left
}

// back begins at the highest item.
func (l *olist) back() back {
	b := back{l: l, chunk: len(l.chunks) - 1}
	if b.chunk >= 0 {
		b.left = len(l.chunks[b.chunk])
	}
	return b
}

// below begins at the highest item whose first element is less than key0.
func (l *olist) below(key0 int64) back {
	return l.before(&item{key: Key{key0, math.MinInt64, math.MinInt64}, submit: math.MinInt64, id: math.MinInt32})
}

// before begins at the highest item that comes before one, which need not be in the list.
func (l *olist) before(it *item) back {
	b := back{l: l, chunk: l.chunkOf(it)}
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

// item is the item at the place; nil: there are no more.
func (b *back) item() *item {
	if b.chunk < 0 {
		return nil
	}
	return &b.l.chunks[b.chunk][b.left-1]
}

// move goes on to the next lower item.
func (b *back) move() {
	if b.left--; b.left == 0 {
		if b.chunk--; b.chunk >= 0 {
			b.left = len(b.l.chunks[b.chunk])
		}
	}
}
