package inventory

import (
	"cmp"
	"slices"

	"github.com/muster-gpu/muster/cluster"
)

// TaskKind is tasks with the same request.
type TaskKind struct {
	Request cluster.Request
	User    string   // user to whom the shares belong, if that matters
	Suits   ClassSet // classes where they can ever run
	Weight  int64    // number of tasks
	Key     []byte
}

// Demand is the most frequent kinds of tasks, in descending order of frequency.
type Demand struct {
	Upto     int // jobs below this number have been counted
	Stale    bool
	All      []TaskKind     // all kinds of those jobs, including some without tasks
	At       map[string]int // index into All; looked up only
	Rev      int64          // incremented whenever Kinds may change
	Kinds    []TaskKind
	Weight   int64         // of all kinds
	byClass  [][]fragGroup // kinds that suit a class, grouped by what they need of devices
	Computed int64         // number of nodes evaluated, for tests and benchmarks
}

// fragGroup is kinds that need the same of devices and differ in CPU and RAM.
type fragGroup struct {
	gpus    int
	share   cluster.Milli // of each device; 0: whole devices
	each    cluster.Milli // milli-GPU of a task in all
	mem     cluster.MiB   // of each, with a share
	user    string        // user to whom the shares belong, if that matters
	profile *cluster.SliceProfile
	members []fragMember // by CPU
}

type fragMember struct {
	cpu    cluster.Milli
	ram    cluster.MiB
	weight int64
}

// GroupOf is what a user's task needs of devices of a model that suits it.
func GroupOf(r *cluster.Request, user string, m *cluster.GPUModel) fragGroup {
	g := fragGroup{gpus: r.GPUs, each: r.Milli()}
	if r.Profile != "" {
		g.profile, _ = m.Profile(r.Profile)
		g.each = cluster.Milli(g.profile.Compute) * cluster.Whole / cluster.Milli(m.Compute)
	} else if r.Fractional() {
		g.share, g.mem, g.user = r.Share, r.Memory, user
	}
	return g
}

// Group groups the kinds by class and by what they need of devices.
func (d *Demand) Group(classes []Class) {
	d.byClass = make([][]fragGroup, len(classes))
	for i := range d.Kinds {
		k := &d.Kinds[i]
		for ci := range classes {
			if !k.Suits.Has(int32(ci)) {
				continue
			}
			g := GroupOf(&k.Request, k.User, &classes[ci].model)
			at := slices.IndexFunc(d.byClass[ci], func(o fragGroup) bool {
				return o.gpus == g.gpus && o.share == g.share && o.mem == g.mem && o.user == g.user &&
					o.profile == g.profile
			})
			if at < 0 {
				at = len(d.byClass[ci])
				d.byClass[ci] = append(d.byClass[ci], g)
			}
			m := &d.byClass[ci][at].members
			*m = append(*m, fragMember{k.Request.CPU, k.Request.RAM, k.Weight})
		}
	}
	for ci := range d.byClass {
		for i := range d.byClass[ci] {
			slices.SortStableFunc(d.byClass[ci][i].members, func(a, b fragMember) int {
				return cmp.Compare(a.cpu, b.cpu)
			})
		}
	}
}

// Fragmentation (FGD, ATC'23): how much of what is free on a node is of no use to the tasks that
// users submit. A kind of task that fits on a node can use the free parts of devices that are large
// enough for it; one that does not fit can use nothing. If users are kept apart (MPS), a device
// with one user's shares is of no use to others. Fragments are what is free less what can be used,
// averaged over the kinds by their number of tasks. All values are in milli-GPU times tasks, so
// that nothing is rounded.

// fragCache caches data computed from nodes. A node's version identifies its state: undoing a
// change restores the old version.
type fragCache struct {
	rev    int64 // revision of the demand for which the cache is valid
	usable []FragNode
	rows   map[rowKey]*FragRow // looked up only
}

// rowKey identifies a row.
type rowKey struct {
	request cluster.Request
	user    string // user to whom the shares belong, if that matters
	measure Measure
}

// Measure is a measure of a node's free GPUs.
type Measure uint8

// The measures.
const (
	Fragments Measure = iota // free capacity that recently submitted tasks cannot use (FGD, ATC'23)
	Rooms                    // half FGD's measure, half the number of those tasks that fit
)

// FragEntry is the result for one node.
type FragEntry struct {
	Version uint64 // of the node, plus one; 0: not computed
	Value   int64
	Device  int16
}

// FragNode is the free and the usable capacity of a node's GPUs, in milli-GPU.
type FragNode struct {
	version      uint64 // of the node, plus one; 0: not computed
	free, usable int64
}

// FragRow is the growth of each node's fragments under one more task.
type FragRow struct {
	Nodes  []FragEntry
	Wanted int64 // of slices: revision of the line for which this is valid
}

// NoRoom marks an entry of a node on which the task does not fit.
const NoRoom = -2

// mostRows bounds the number of cached requests.
const mostRows = 64

// Fresh resets the cache unless it is valid for the demand and number of nodes.
func (c *fragCache) Fresh(d *Demand, nodes int) {
	if c.rev == d.Rev && len(c.usable) == nodes {
		return
	}
	c.rev, c.rows = d.Rev, map[rowKey]*FragRow{}
	c.usable = make([]FragNode, nodes)
}

// Row returns the entries of a user's request.
func (c *fragCache) Row(r *cluster.Request, user string, m Measure) *FragRow {
	key := rowKey{*r, user, m}
	row := c.rows[key]
	if row == nil {
		if len(c.rows) >= mostRows {
			c.rows = map[rowKey]*FragRow{}
		}
		row = &FragRow{Nodes: make([]FragEntry, len(c.usable))}
		c.rows[key] = row
	}
	return row
}

// FreeMilliOn is the free milli-GPU of a device.
func (n *Node) FreeMilliOn(dev int) cluster.Milli {
	if n.healthy>>dev&1 == 0 || n.free>>dev&1 == 0 && n.devs[dev].tenants == 0 && !n.IsCut(dev) {
		return 0
	}
	return cluster.Milli(n.devs[dev].milli)
}

// FreeMilli is the free milli-GPU of the node.
func (n *Node) FreeMilli() (sum cluster.Milli) {
	for i := range n.devs {
		sum += n.FreeMilliOn(i)
	}
	return sum
}

// UsableBy is the free capacity on devices that could take a task of the group, if there are enough
// of them for one, and how many such tasks fit one after the other (of MIG slices and of shares of
// several devices, one per device).
func (n *Node) UsableBy(c *Class, g *fragGroup) (sum cluster.Milli, fit int64) {
	if g.share == 0 && g.profile == nil {
		if int(n.nfree) < g.gpus {
			return 0, 0
		}
		return cluster.Milli(n.nfree) * cluster.Whole, int64(n.nfree) / int64(g.gpus)
	}
	count := 0
	for i := range n.devs {
		d, left := &n.devs[i], n.FreeMilliOn(i)
		switch {
		case left == 0:
			continue
		case g.profile != nil:
			if d.tenants > 0 && d.slots == 0 || n.StartOn(&c.model, g.profile, i, nil) < 0 {
				continue
			}
		case left < g.share || d.mem < g.mem || d.slots != 0 || n.IsCut(i) || c.Seats(d) == 0 ||
			d.tenants > 0 && d.user != g.user:
			continue
		}
		count++
		sum += left
		each := int64(1)
		if g.profile == nil && g.gpus == 1 {
			if each = min(left/g.share, int64(c.Seats(d))); g.mem > 0 {
				each = min(each, d.mem/g.mem)
			}
		}
		fit += each
	}
	if count < g.gpus {
		return 0, 0
	}
	return sum, fit / int64(g.gpus)
}

// UsableOf sums over the kinds the free GPU capacity of the node that each could use, times its
// tasks.
func (st *Store) UsableOf(n *Node, d *Demand) (sum int64) {
	c, groups := &st.classes[n.class], d.byClass[n.class]
	for i := range groups {
		left, _ := n.UsableBy(c, &groups[i])
		if left == 0 {
			continue
		}
		for k := range groups[i].members {
			m := &groups[i].members[k]
			if m.cpu > n.cpu {
				break
			}
			if m.ram <= n.ram {
				sum += left * m.weight
			}
		}
	}
	return sum
}

// RoomsOf sums over the kinds, times their tasks, the free GPU capacity that each could use and the
// total demand of as many of its tasks as fit.
func (st *Store) RoomsOf(n *Node, d *Demand) (sum int64) {
	c, groups := &st.classes[n.class], d.byClass[n.class]
	for i := range groups {
		g := &groups[i]
		left, fit := n.UsableBy(c, g)
		if left == 0 {
			continue
		}
		for k := range g.members {
			m := &g.members[k]
			if m.cpu > n.cpu {
				break
			}
			if m.ram > n.ram {
				continue
			}
			tasks := fit
			if m.cpu > 0 {
				tasks = min(tasks, n.cpu/m.cpu)
			}
			if m.ram > 0 {
				tasks = min(tasks, n.ram/m.ram)
			}
			sum += m.weight * (left + tasks*g.each)
		}
	}
	return sum
}

// Usable returns the node's free capacity and UsableOf, cached.
func (st *Store) Usable(id int, d *Demand) *FragNode {
	n, e := &st.nodes[id], &st.frag.usable[id]
	if e.version != n.version+1 {
		d.Computed++
		if *e = (FragNode{version: n.version + 1, free: n.FreeMilli()}); e.free > 0 {
			e.usable = st.UsableOf(n, d)
		}
	}
	return e
}

// Fragmentation is how much of the free GPU capacity is usable.
type Fragmentation struct {
	Free   cluster.Milli // on nodes that take jobs
	Usable cluster.Milli // ... by recently submitted tasks, on average; Free if there were none yet
}

// Rate is the unusable part of the free capacity, between 0 and 1.
func (f Fragmentation) Rate() float64 {
	if f.Free == 0 {
		return 0
	}
	return 1 - float64(f.Usable)/float64(f.Free)
}

// Free is the free milli-GPU of a node.
func (f *FragNode) Free() int64 { return f.free }

// Usable is the part of it that the kinds could use, times their tasks.
func (f *FragNode) Usable() int64 { return f.usable }
