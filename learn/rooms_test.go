package learn

import (
	"slices"
	"testing"
)

// fitsByNode is the naive twin of Floor.fits: it checks every node.
func fitsByNode(f *Floor, g *Gang) (x fit) {
	x.left = -1
	perRack := make([]int32, len(f.racks))
	for k := range f.kinds {
		total := int32(0)
		clear(perRack)
		for i := range f.Rooms {
			r := &f.Rooms[i]
			if int(r.Kind) != k || r.Free < g.Each || !g.suits(r) {
				continue
			}
			n := r.Free / g.Each
			total += n
			perRack[r.Rack] += n
			if left := r.Free - g.gpus(); n >= g.Tasks && (x.left < 0 || left < x.left) {
				x.left, x.size = left, r.GPUs
			}
		}
		x.ok[Anywhere] = x.ok[Anywhere] || total >= g.Tasks
		for _, n := range perRack {
			x.ok[SameRack] = x.ok[SameRack] || n >= g.Tasks
		}
	}
	x.ok[SameNode] = x.left >= 0 && g.Tasks > 1
	x.ok[SameRack] = x.ok[SameRack] && g.Tasks > 1 && len(perRack) > 1
	x.left = max(x.left, 0)
	return x
}

// packByNode is the naive twin of Floor.pack; it works on nodes alone.
func packByNode(rooms []Room, g *Gang, kind int, rack int32, near Near) (taken []int32) {
	was := slices.Clone(rooms)
	for left := g.Tasks; left > 0; {
		best, most := -1, int32(0)
		for i := range rooms {
			r := &rooms[i]
			if int(r.Kind) != kind || rack >= 0 && r.Rack != rack || !g.suits(r) {
				continue
			}
			n := min(r.Free/g.Each, left)
			if n > most || n > 0 && n == most && r.Free < rooms[best].Free {
				best, most = i, n
			}
		}
		if best < 0 || near == SameNode && most < left {
			copy(rooms, was)
			return nil
		}
		for range most {
			taken = append(taken, int32(best))
		}
		rooms[best].Free -= most * g.Each
		left -= most
	}
	return taken
}

// takeByNode is the naive twin of Floor.Take.
func takeByNode(rooms []Room, kinds, racks int, g *Gang, near Near) []int32 {
	for k := range kinds {
		if near != SameRack {
			if t := packByNode(rooms, g, k, -1, near); t != nil {
				return t
			}
			continue
		}
		tried := make([]bool, racks)
		for range racks {
			best, free := -1, make([]int32, racks)
			for i := range rooms {
				if r := &rooms[i]; int(r.Kind) == k && g.suits(r) {
					free[r.Rack] += r.Free
				}
			}
			for i, n := range free {
				if !tried[i] && n >= g.gpus() && (best < 0 || n < free[best]) {
					best = i
				}
			}
			if best < 0 {
				break
			}
			tried[best] = true
			if t := packByNode(rooms, g, k, int32(best), near); t != nil {
				return t
			}
		}
	}
	return nil
}

// Counting equal nodes gives the same results as checking each, however much is taken meanwhile.
func TestFloor(t *testing.T) {
	r := NewRand(3)
	fitted, tied, refused := 0, 0, 0
	for range 600 {
		f := &Floor{}
		racks, kinds, classes := 1+r.Int(4), 1+r.Int(3), 1+r.Int(4)
		for range 1 + r.Int(30) {
			size := []int32{4, 8, 8, 10}[r.Int(4)]
			f.Rooms = append(f.Rooms,
				Room{GPUs: size, Free: int32(r.Int(int(size) + 1)), Rack: int32(7 * r.Int(racks)),
					Kind: int32(r.Int(kinds)) - 1, Class: int32(63 + r.Int(classes))})
		}
		f.Begin()
		twin := slices.Clone(f.Rooms)
		for range 25 {
			g := &Gang{Tasks: int32(1 + r.Int(9)), Each: int32(1 + r.Int(4)),
				Classes: [4]uint64{1 << 63 * uint64(r.Int(2)), r.Uint64()}}
			have, want := f.fits(g), fitsByNode(f, g)
			if have != want {
				t.Fatalf("%+v on %+v: %+v, want %+v", g, f.Rooms, have, want)
			}
			any, first := want.ok != [levels]bool{}, f.room(g)
			if again := f.room(g); first != any || again != any {
				t.Fatalf("%+v on %+v: room %t", g, f.Rooms, !any)
			}
			near := Near(r.Int(int(levels)))
			got, dumb := slices.Clone(f.Take(g, near)), takeByNode(twin, f.kinds, len(f.racks), g, near)
			if !slices.Equal(got, dumb) || !slices.Equal(f.Rooms, twin) {
				t.Fatalf("%+v at %d: nodes %v, want %v", g, near, got, dumb)
			}
			if dumb == nil {
				refused++
			} else if fitted++; want.ok[SameNode] && want.size == 10 {
				tied++
			}
		}
	}
	if fitted < 1000 || tied < 20 || refused < 1000 {
		t.Errorf("too few were looked at: %d taken, %d of the larger nodes, %d refused", fitted, tied, refused)
	}
}

// BenchmarkPick is one pick of sched2 on 10,000 nodes while 1,000 different gangs wait, with a start of each.
func BenchmarkPick(b *testing.B) {
	r := NewRand(1)
	m := &Moment{Running: []float64{100}}
	for i := range 10000 {
		m.Rooms = append(m.Rooms, Room{GPUs: 8, Free: int32(r.Int(9)), Rack: int32(i / 40), Class: int32(r.Int(3))})
	}
	var line []Gang
	for range 1000 {
		line = append(line, Gang{Tasks: int32(1 + r.Int(64)), Each: int32(1 + r.Int(8)), Classes: AllClasses,
			Length: 600 * r.Float(), Loss: [2]float64{0.1, 0.3}})
	}
	s := NewSched2(NewAgent(NewRand(1), schedShape))
	rooms := append([]Room(nil), m.Rooms...)
	begin := func() {
		copy(m.Rooms, rooms)
		m.Begin()
	}
	b.Run("begin", func(b *testing.B) {
		for b.Loop() {
			begin()
		}
	})
	b.Run("pick", func(b *testing.B) {
		begin()
		for b.Loop() {
			m.Line, m.Waiting = append(m.Line[:0], line...), len(line)
			m.Shorten(func(int, int) {})
			if p, ok := s.Next(m); !ok || p.Wait {
				begin()
			}
		}
	})
}
