package learn

import (
	"reflect"
	"slices"
	"testing"
)

// Places show an agent the same numbers as considering every node, however workers are placed, also where a
// worker takes more room than one.
func TestPlaces(t *testing.T) {
	r := NewRand(31)
	var dumb, clever PlaceScene
	p := &Places{} // reused
	homes := 0
	for range 500 {
		w := &Worker{Tasks: int32(1 + r.Int(30)), Each: int32(1 + r.Int(2)), Loss: [2]float64{r.Float(), r.Float()}}
		var spots []Spot
		for range 1 + r.Int(60) {
			s := Spot{GPUs: int32(4 + 4*r.Int(2)), Crowd: int32(r.Int(7)), Rack: int32(5 + r.Int(4))}
			s.Free = int32(r.Int(int(s.GPUs) + 1))
			s.Room = s.Free / w.Each
			spots = append(spots, s)
		}
		p.Begin(slices.Clone(spots))
		for range w.Tasks {
			any := dumb.look(spots, w)
			if got := clever.lookAt(p, w); got != any {
				t.Fatalf("room: %t, places say %t", any, got)
			}
			if !any {
				break
			}
			if !reflect.DeepEqual(dumb.Scene, clever.Scene) || !slices.Equal(dumb.First, clever.First) {
				t.Fatalf("%+v on %+v\nsees %+v\nby places %+v", w, spots, dumb, clever)
			}
			at := int(dumb.First[r.Int(len(dumb.First))])
			for !dumb.Mask[slices.Index(dumb.First, int32(at))] {
				at = int(dumb.First[r.Int(len(dumb.First))])
			}
			o, room := *w, max(0, spots[at].Room-1-int32(r.Int(2)))
			p.Bind(&o, at, room)
			homes += int(one(w.Placed > 0 && o.Home != w.Home))
			w.Bind(spots, at)
			spots[at].Room = room
			if o != *w {
				t.Fatalf("%+v, by places %+v", *w, o)
			}
		}
	}
	if homes < 100 {
		t.Errorf("only %d times another rack became home", homes)
	}
}

// A gang of 1,024 workers on 10,000 nodes, a quarter of their GPUs busy.
func BenchmarkGang(b *testing.B) {
	a := NewAgent(NewRand(1), placeShape)
	r := NewRand(2)
	var spots []Spot
	for i := range 10_000 {
		s := Spot{GPUs: 8, Free: int32(8 - r.Int(5)), Crowd: int32(r.Int(3)), Rack: int32(i / 40)}
		s.Room = s.Free
		spots = append(spots, s)
	}
	choose, p := NewPlacing(a), &Places{}
	b.Run("places", func(b *testing.B) {
		for b.Loop() {
			w := &Worker{Tasks: 1024, Each: 1, Loss: [2]float64{0.1, 0.3}}
			p.Begin(slices.Clone(spots))
			for range w.Tasks {
				at := choose.NextOf(p, w)
				p.Bind(w, at, p.spots[at].Room-1)
			}
		}
	})
	b.Run("all nodes", func(b *testing.B) {
		for b.Loop() {
			w, list := &Worker{Tasks: 1024, Each: 1, Loss: [2]float64{0.1, 0.3}}, slices.Clone(spots)
			for range w.Tasks {
				w.Bind(list, choose.Next(list, w))
			}
		}
	})
}
