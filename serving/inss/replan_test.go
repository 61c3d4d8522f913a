package inss

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// TestHysteresis: two services share a GPU. A rate that changes by less than a tenth changes nothing as long as goals
// hold; from then on shares change; then the service that needs less alone leaves; and when the rate falls, a GPU is
// given up.
func TestHysteresis(t *testing.T) {
	list := []Service{served(1, 2, 0, .2, .5, 200, 60), served(2, 2, 0, .2, .5, 200, 60)}
	plan, err := Make(&GPU{}, list, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		rate, planned float64
		want          string
		moves         []Migration
	}{
		{200, 200, "1:45/4 (18.5778) 2:45/4 (18.5778)", nil},
		{210, 200, "1:45/4 (18.5778) 2:45/4 (18.5778)", nil},
		{185, 200, "1:45/4 (18.5778) 2:45/4 (18.5778)", nil},
		{218, 218, "1:50/4 (16.7200) 2:45/4 (18.6667)", nil},
		{190, 190, "1:40/4 (20.9000) 2:45/4 (18.4889)", nil},
		{240, 240, "1:55/4 (15.2000) 2:45/4 (18.7556)", nil},
		{270, 270, "1:55/8 (29.0909); 2:40/4 (20.0000)", []Migration{{"2", 0, 1}}},
		{170, 170, "; 2:45/4 (18.4889) 1:40/4 (20.9000)", []Migration{{"1", 0, 1}}},
	} {
		list[0].Rate = c.rate
		now, moves, err := Replan(&GPU{}, plan, list, Options{})
		if err != nil {
			t.Fatal(err)
		}
		planned := 0.0
		for _, g := range now.GPUs {
			for _, x := range g {
				if x.Service == "1" {
					planned = x.Rate
				}
			}
		}
		if got := text(now); got != c.want || planned != c.planned || !slices.Equal(moves, c.moves) {
			t.Errorf("%v/s: %s, planned for %v, %v\nwant %s, %v, %v", c.rate, got, planned, moves, c.want, c.planned,
				c.moves)
		}
		plan = now
	}
}

// TestReplan: random services come, go and change. Every plan holds; one that is made again for the same services is
// the same; as long as all rates stay within a tenth and goals hold nothing moves; what moves is said.
func TestReplan(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 14))
	used, fresh, moved, movedFresh, kept := 0, 0, 0, 0, 0
	for range 60 {
		g, list := randomGPU(r), randomServices(r, 5+r.IntN(20))
		o := Options{GPUs: []int{0, 0, 4}[r.IntN(3)]}
		plan, err := Make(&g, list, o)
		if err != nil {
			t.Fatal(err)
		}
		before := plan
		for n := range 15 {
			list = slices.Clone(list)
			for k := range list {
				if r.IntN(3) == 0 {
					list[k].Rate *= 0.7 + 0.65*r.Float64()
				} else {
					list[k].Rate *= 0.97 + 0.06*r.Float64()
				}
			}
			if r.IntN(2) == 0 {
				list = slices.Delete(list, 0, 1)
			}
			if r.IntN(2) == 0 {
				list = append(list, randomServices(r, 1)...)
				list[len(list)-1].Name = fmt.Sprint("new", n)
			}
			now, moves, err := Replan(&g, plan, list, o)
			if err != nil {
				t.Fatal(err)
			}
			check(t, &g, list, o, now)
			if got := movesOf(plan, now); !reflect.DeepEqual(got, moves) {
				t.Fatalf("moves %v, said %v", got, moves)
			}
			again, none, err := Replan(&g, now, list, o)
			if err != nil || len(none) > 0 || text(again) != text(now) {
				t.Fatalf("again for the same services: %v (%v)\n%s\n%s", none, err, text(now), text(again))
			}
			whole, err := Make(&g, list, o)
			if err != nil {
				t.Fatal(err)
			}
			used, fresh = used+now.Used(), fresh+whole.Used()
			moved, movedFresh = moved+len(moves), movedFresh+len(movesOf(before, whole))
			for _, x := range now.GPUs {
				kept += len(x)
			}
			plan, before = now, whole
		}
	}
	t.Logf("GPUs %d, planned from the beginning %d; of %d services %d moved, and %d would", used, fresh, kept, moved,
		movedFresh)
	if used*100 > fresh*110 || moved*3 > movedFresh {
		t.Error("too many")
	}
}

func movesOf(old, now *Plan) (moves []Migration) {
	for to, list := range now.GPUs {
		for _, x := range list {
			there := func(o Placed) bool { return o.Service == x.Service }
			for from := range old.GPUs {
				if from != to && slices.ContainsFunc(old.GPUs[from], there) {
					moves = append(moves, Migration{x.Service, from, to})
				}
			}
		}
	}
	return moves
}
