package inventory

import (
	"cmp"
	"slices"

	"github.com/muster-gpu/muster/cluster"
)

// TaskKind is tasks that ask for the same.
type TaskKind struct {
	Request cluster.Request
	User    string   // whose shares they are, where that matters
	Suits   ClassSet // where they can ever run
	Weight  int64    // tasks
	Key     []byte
}

// Demand is the kinds of tasks that count, the most frequent first.
type Demand struct {
	Upto     int // jobs below this number were looked at
	Stale    bool
	All      []TaskKind     // every kind of those jobs, and some without tasks
	At       map[string]int // its place in all; looked up only
	Rev      int64          // grows whenever kinds do change
	Kinds    []TaskKind
	Weight   int64         // of all kinds
	byClass  [][]fragGroup // the kinds that suit a class, by what they need of devices
	Computed int64         // nodes that were evaluated, for tests and benchmarks
}

// fragGroup is kinds that need the same of devices; they differ in CPU and RAM.
type fragGroup struct {
	gpus    int
	share   cluster.Milli // of each; 0: whole ones
	each    cluster.Milli // what a task takes in all
	mem     cluster.MiB   // of each, with a share
	user    string        // whose shares, where that matters
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

// Group sorts the kinds by class and by what they need of devices.
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
				return o.gpus == g.gpus && o.share == g.share && o.mem == g.mem && o.user == g.user && o.profile == g.profile
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
			slices.SortStableFunc(d.byClass[ci][i].members, func(a, b fragMember) int { return cmp.Compare(a.cpu, b.cpu) })
		}
	}
}

// Fragmentation (FGD, ATC'23): of what is free on a node, how much is of no use to the
// tasks that people submit. A kind of task that fits on a node can use the free
// parts of devices that are large enough for it; one that does not fit can use
// nothing. Beside one user's shares no other's fit where users are kept apart (MPS).
// Fragments are what is free less what can be used, averaged over the
// kinds by their number of tasks. Everything here is counted in milli-GPU times
// tasks, so that nothing is rounded.

// fragCache remembers what was computed of nodes. A node's version names its
// state: an undone change brings the old one back.
type fragCache struct {
	rev    int64 // of the demand for which all this holds
	usable []FragNode
	rows   map[rowKey]*FragRow // looked up only
}

// rowKey is what a row is of.
type rowKey struct {
	request cluster.Request
	user    string // whose shares they are, where that matters
	measure Measure
}

// Measure is what of a node's free GPUs counts.
type Measure uint8

// The measures.
const (
	Fragments Measure = iota // what tasks submitted last cannot use (FGD, ATC'23)
	Rooms                    // how many of them fit one after the other, and FGD's measure, half each
)

// FragEntry is what was computed of one node.
type FragEntry struct {
	Version uint64 // of the node, plus one; 0: nothing yet
	Value   int64
	Device  int16
}

// FragNode is what is free of a node's GPUs, in milli-GPU, and what of it is usable.
type FragNode struct {
	version      uint64 // of the node, plus one; 0: nothing yet
	free, usable int64
}

// FragRow is by how much the fragments of each node would grow under one more
// task.
type FragRow struct {
	Nodes  []FragEntry
	Wanted int64 // of slices: the line as of which this holds
}

// NoRoom marks an entry of a node on which the task does not fit.
const NoRoom = -2

// mostRows bounds the memory for requests that were placed.
const mostRows = 64

// Fresh makes the cache one for the demand in force and all nodes.
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

// FreeMilliOn is what is free of a device, in milli-GPU.
func (n *Node) FreeMilliOn(dev int) cluster.Milli {
	if n.healthy>>dev&1 == 0 || n.free>>dev&1 == 0 && n.devs[dev].tenants == 0 && !n.IsCut(dev) {
		return 0
	}
	return cluster.Milli(n.devs[dev].milli)
}

// FreeMilli is what is free of the node's GPUs, in milli-GPU.
func (n *Node) FreeMilli() (sum cluster.Milli) {
	for i := range n.devs {
		sum += n.FreeMilliOn(i)
	}
	return sum
}

// UsableBy is what of the node's free GPUs is on devices that could take a task
// of the group, if there are enough for one, and how many such tasks fit one after
// the other (of MIG slices and of shares of several devices one on each device).
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
		case left < g.share || d.mem < g.mem || d.slots != 0 || n.IsCut(i) || c.Seats(d) == 0 || d.tenants > 0 && d.user != g.user:
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

// UsableOf sums over the kinds what each could use of the node's free GPUs, times
// its tasks.
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

// RoomsOf sums over the kinds, times their tasks, what each could use of the node's
// free GPUs and what as many tasks of it would take as fit there.
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

// Usable is what is free of a node, and UsableOf it, from memory.
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

// Fragmentation is how much of the free GPUs is of use.
type Fragmentation struct {
	Free   cluster.Milli // on nodes that take jobs
	Usable cluster.Milli // ... by the tasks submitted last, on average; Free where none was submitted yet
}

// Rate is the part of what is free that is of no use, between 0 and 1.
func (f Fragmentation) Rate() float64 {
	if f.Free == 0 {
		return 0
	}
	return 1 - float64(f.Usable)/float64(f.Free)
}

// Free is what is free of a node's GPUs, in milli-GPU.
func (f *FragNode) Free() int64 { return f.free }

// Usable is what the kinds could use of that, times their tasks.
func (f *FragNode) Usable() int64 { return f.usable }
