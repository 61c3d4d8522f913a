package inventory

import (
	"fmt"
	"math/bits"

	"github.com/muster-gpu/muster/cluster"
)

// tally is the sum of what jobs hold of a node.
type tally struct {
	whole uint64
	among uint64 // ... by jobs that shared them in this run
	guest uint64 // devices that have guests
	cut   uint64 // devices in MIG mode
	cpu   cluster.Milli
	ram   cluster.MiB
	devs  []Device // in use, not free
	sizes sizes
}

// Add adds an allocation; it fails if two are incompatible.
func (t *tally) Add(a *Alloc, packed bool) error {
	t.cpu += a.CPU
	t.ram += a.RAM
	if a.GPUs == 0 {
		return nil
	}
	if hi := 64 - bits.LeadingZeros64(a.GPUs); hi > len(t.devs) {
		return fmt.Errorf("device %d does not exist", hi-1)
	}
	if a.Beside {
		t.sizes[sizeOf(a)] += max(1, a.Tasks)
		t.guest |= a.GPUs
		for i := range t.devs {
			t.devs[i].guests += int8(a.GPUs >> i & 1)
		}
		return nil
	}
	if t.whole&a.GPUs != 0 && !(packed && t.whole&a.GPUs&^t.among == 0) {
		return fmt.Errorf("devices %b are held twice", t.whole&a.GPUs)
	}
	for i := range t.devs {
		if a.GPUs>>i&1 == 0 {
			continue
		}
		d := &t.devs[i]
		if a.Slots == 0 && t.cut>>i&1 == 1 {
			return fmt.Errorf("device %d is in MIG mode and not held in slices", i)
		}
		if a.Share == 0 {
			if d.tenants > 0 {
				return fmt.Errorf("device %d is held whole and shared", i)
			}
			continue
		}
		if d.media && a.Media {
			return fmt.Errorf("device %d: two instances have its media engines", i)
		}
		d.media = d.media || a.Media
		if d.slots&a.Slots != 0 {
			return fmt.Errorf("device %d: slots %08b are held twice", i, d.slots&a.Slots)
		}
		if d.tenants > 0 && (d.slots == 0) != (a.Slots == 0) {
			return fmt.Errorf("device %d is shared both by slices and by fractions", i)
		}
		if d.tenants > 0 && d.user != a.User {
			return fmt.Errorf("device %d is shared by %q and %q", i, d.user, a.User)
		}
		d.user = a.User
		d.tenants++
		d.milli += a.Share
		d.mem += a.Mem
		d.slots |= a.Slots
		d.compute += a.Compute
	}
	if a.GPUs != 0 {
		t.sizes[sizeOf(a)] += max(1, a.Tasks)
	}
	if a.Share == 0 {
		t.whole |= a.GPUs
		if packed {
			t.among |= a.GPUs
		}
	}
	return nil
}

// fits checks a tally against the node's capacity.
func (t *tally) fits(n *Node, c *Class) error {
	model := &c.model
	over := n.spec.CPU > 0 && t.cpu > n.spec.CPU || n.spec.RAM > 0 && t.ram > n.spec.RAM
	if over && !n.SizeByEvent() {
		return fmt.Errorf("%d CPU and %d RAM are held of %d and %d", t.cpu, t.ram, n.spec.CPU, n.spec.RAM)
	}
	for i := range t.devs {
		d := &t.devs[i]
		if int64(d.milli) > cluster.Whole || d.mem > model.Memory || int(d.compute) > max(0, model.Compute) {
			return fmt.Errorf("device %d: %d milli-GPU, %d MiB, %d compute slices are held", i, d.milli, d.mem,
				d.compute)
		}
		if c.clients > 0 && d.slots == 0 && int(d.tenants) > c.clients {
			return fmt.Errorf("device %d: %d shares, MPS takes %d clients", i, d.tenants, c.clients)
		}
	}
	return nil
}

// Tallies makes an empty tally for each node.
func (st *Store) Tallies() []tally {
	ts := make([]tally, len(st.nodes))
	for i := range ts {
		ts[i].devs = make([]Device, st.nodes[i].spec.GPUs)
		if f := st.nodes[i].fixed; f != nil {
			ts[i].cut = f.cut
		}
	}
	return ts
}

// Misfit describes the first node that has less than is held of it.
func (st *Store) Misfit(ts []tally) error {
	for id := range ts {
		if err := ts[id].fits(&st.nodes[id], &st.classes[st.nodes[id].class]); err != nil {
			return fmt.Errorf("node %d: %w", id, err)
		}
	}
	return nil
}

// Compare checks the free resources of each node against what is held of it.
func (st *Store) Compare(ts []tally) error {
	for id := range ts {
		n, t := &st.nodes[id], &ts[id]
		model := &st.classes[n.class].model
		free := n.Whole() &^ t.whole
		for i := range t.devs {
			d, u := &n.devs[i], &t.devs[i]
			if u.tenants > 0 {
				free &^= 1 << i
			}
			want := Device{int32(cluster.Whole) - u.milli, u.slots, u.compute, u.tenants, u.guests, u.media,
				model.Memory - u.mem, u.user}
			if *d != want {
				return fmt.Errorf("books: node %d, device %d: %+v, recomputed %+v", id, i, *d, want)
			}
			if (u.tenants > 0 || t.whole>>i&1 == 1) && n.healthy>>i&1 == 0 {
				return fmt.Errorf("books: node %d, device %d is held though it is bad", id, i)
			}
		}
		cpu, ram := n.spec.CPU, n.spec.RAM
		if cpu == 0 {
			cpu = notModelled
		}
		if ram == 0 {
			ram = notModelled
		}
		switch {
		case t.guest&^t.whole != 0 || n.guested != t.guest || n.hosts != t.whole:
			return fmt.Errorf("books: node %d: held %b with guests on %b, recomputed %b and %b", id, n.hosts, n.guested,
				t.whole, t.guest)
		case n.free != free || int(n.nfree) != bits.OnesCount64(free):
			return fmt.Errorf("books: node %d: free %b (%d), recomputed %b", id, n.free, n.nfree, free)
		case n.sizes != t.sizes:
			return fmt.Errorf("books: node %d: %v tasks by size, recomputed %v", id, n.sizes, t.sizes)
		case n.cpu != cpu-t.cpu || n.ram != ram-t.ram:
			return fmt.Errorf("books: node %d: %d CPU and %d RAM free, recomputed %d and %d", id, n.cpu, n.ram,
				cpu-t.cpu, ram-t.ram)
		}
		if err := t.fits(n, &st.classes[n.class]); err != nil {
			return fmt.Errorf("books: node %d: %w", id, err)
		}
	}
	return nil
}

// CheckIndexes recomputes the classes' buckets and counts, and the GPUs of nodes that are not down.
func (st *Store) CheckIndexes() (capacity cluster.Milli, err error) {
	for ci := range st.classes {
		c := &st.classes[ci]
		free, in, partial := 0, 0, 0
		for pos, id := range c.nodes {
			n := &st.nodes[id]
			if int(n.class) != ci || int(n.pos) != pos || n.indexed != (n.spec.State == cluster.Up) {
				return 0, fmt.Errorf("index: node %d: class %d, position %d, indexed %v, %s", id, n.class, n.pos,
					n.indexed, n.spec.State)
			}
			if n.spec.State != cluster.Down {
				capacity += cluster.Whole * int64(bits.OnesCount64(n.healthy))
			}
			part := false
			for i := range n.devs {
				part = part || n.indexed && n.devs[i].tenants > 0 && n.healthy>>i&1 == 1
			}
			if part {
				partial++
			}
			if part != c.partial.has(int32(pos)) {
				return 0, fmt.Errorf("index: node %d: partly used %v, indexed %v", id, part, !part)
			}
			if !n.indexed {
				continue
			}
			in++
			free += int(n.nfree)
			if !c.buckets[n.nfree].has(int32(pos)) {
				return 0, fmt.Errorf("index: node %d with %d free is not in its bucket", id, n.nfree)
			}
		}
		sum := 0
		for k := range c.buckets {
			if err := c.buckets[k].check(); err != nil {
				return 0, fmt.Errorf("index: class %d, bucket %d: %w", ci, k, err)
			}
			sum += c.buckets[k].n
		}
		if err := c.partial.check(); err != nil || c.partial.n != partial {
			return 0, fmt.Errorf("index: class %d has %d partly used nodes, recomputed %d (%w)", ci, c.partial.n,
				partial, err)
		}
		if sum != in || free != c.free {
			return 0, fmt.Errorf("index: class %d has %d nodes and %d free GPUs, recomputed %d and %d", ci, sum, c.free,
				in, free)
		}
	}
	return capacity, nil
}

func (b *bitset) has(i int32) bool { return b.words[i>>6]>>(i&63)&1 == 1 }

// check compares a bitset's summary and count with its words.
func (b *bitset) check() error {
	n := 0
	for w, word := range b.words {
		n += bits.OnesCount64(word)
		if (word != 0) != (b.sum[w>>6]>>(w&63)&1 == 1) {
			return fmt.Errorf("word %d is %x, its summary says otherwise", w, word)
		}
	}
	if n != b.n {
		return fmt.Errorf("%d members, counted %d", b.n, n)
	}
	return nil
}

// CheckFragments recomputes the cached data of nodes.
func (st *Store) CheckFragments(d *Demand) error {
	c := &st.frag
	if c.rev != d.Rev {
		return nil // out of date, it will not be used
	}
	for id := range c.usable {
		n := &st.nodes[id]
		if m := &c.usable[id]; m.version == n.version+1 && (m.usable != st.UsableOf(n, d) || m.free != n.FreeMilli()) {
			return fmt.Errorf("node %d: %d free and %d usable are remembered, recomputed %d and %d", id, m.free,
				m.usable, n.FreeMilli(), st.UsableOf(n, d))
		}
	}
	return nil
}
