package gpu

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/muster-gpu/muster/cluster"
)

// Instances are made and GPUs made whole at random, 300,000 times, while some are in
// use: what a GPU has is a legal layout of the model at any time, what is in use
// stays, and what is asked for is there unless one in use is in its way.
func TestRepartition(t *testing.T) {
	for _, name := range []string{"A30-24GB", "A100-80GB", "H100-80GB"} {
		m, _ := cluster.FindModel(name)
		legal := map[string]bool{}
		for _, layout := range m.Layouts(nil) {
			legal[textOf(layout)] = true
		}
		src := Simulated(1, m, "", "")
		uuid := src.Devices()[0].UUID
		r := rand.New(rand.NewPCG(3, uint64(len(name))))
		used := map[string]cluster.Instance{}
		inUse := func(id string) bool { _, ok := used[id]; return ok }
		var have []Instance
		for event := range 100_000 {
			p := &m.Profiles[r.IntN(len(m.Profiles))]
			want := cluster.Instance{Profile: p.Name, Start: p.Starts[r.IntN(len(p.Starts))]}
			if r.IntN(20) == 0 {
				if err := src.Whole(uuid, inUse); (err != nil) != (len(used) > 0) {
					t.Fatalf("%s, event %d: whole while %v are in use: %v", name, event, used, err)
				} else if err == nil {
					have = nil
				}
				continue
			}
			blocked := false
			for _, in := range used {
				q, _ := m.Profile(in.Profile)
				blocked = blocked || in != want && (q.Mask(in.Start)&p.Mask(want.Start) != 0 || q.Media() && p.Media())
			}
			list, err := src.Make(uuid, want, inUse)
			if (err != nil) != blocked {
				t.Fatalf("%s, event %d: %v beside %v, in use %v: %v", name, event, want, have, used, err)
			}
			if err == nil {
				have = list
			}
			var there []cluster.Instance
			for _, in := range have {
				there = append(there, in.Instance)
			}
			if !legal[textOf(there)] || err == nil && !slices.Contains(there, want) {
				t.Fatalf("%s, event %d: after %v there is %v", name, event, want, there)
			}
			for id, in := range used {
				if !slices.Contains(have, Instance{in, id}) {
					t.Fatalf("%s, event %d: %v was in use", name, event, in)
				}
			}
			for _, in := range have { // some begin to be used, some are left
				switch r.IntN(6) {
				case 0:
					used[in.UUID] = in.Instance
				case 1, 2:
					delete(used, in.UUID)
				}
			}
		}
	}
}

// textOf is a layout in the order of its starts.
func textOf(layout []cluster.Instance) string {
	list := slices.Clone(layout)
	slices.SortFunc(list, func(a, b cluster.Instance) int { return a.Start - b.Start })
	return fmt.Sprint(list)
}
