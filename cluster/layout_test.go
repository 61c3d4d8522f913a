package cluster

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func profilesOf(t *testing.T, m *GPUModel, names string) (list []*SliceProfile) {
	t.Helper()
	for _, n := range strings.Split(names, ",") {
		p, ok := m.Profile(n)
		if !ok {
			t.Fatalf("%s has no %s", m.Name, n)
		}
		list = append(list, p)
	}
	return list
}

// NVIDIA's MIG user guide, vector 5: the number of layouts, of full ones, and of full ones that
// differ in more than starts.
func TestLayouts(t *testing.T) {
	for _, c := range []struct {
		model, profiles   string
		all, full, differ int
	}{
		{"A100-80GB", "1g,2g,3g,4g,7g", 298, 19, 14},
		{"H200-141GB", "1g,2g,3g,4g,7g", 298, 19, 14},
		{"A100-80GB", "1g,1g.20gb,2g,3g,4g,7g", 723, 78, 38},
		{"A30-24GB", "1g,2g,4g", 26, 5, 4},
	} {
		m, _ := FindModel(c.model)
		list := profilesOf(t, &m, c.profiles)
		full, kinds := m.FullLayouts(list), map[string]bool{}
		for _, l := range full {
			var names []string
			for _, in := range l {
				names = append(names, in.Profile)
			}
			slices.Sort(names)
			kinds[fmt.Sprint(names)] = true
		}
		if all := len(m.Layouts(list)); all != c.all || len(full) != c.full || len(kinds) != c.differ {
			t.Errorf("%s %s: %d layouts, %d full, %d different; want %d, %d, %d", c.model, c.profiles, all, len(full),
				len(kinds), c.all, c.full, c.differ)
		}
	}
}

// Every layout is valid in a node file, and all are different.
func TestLayoutsAreLegal(t *testing.T) {
	for _, name := range []string{"A30-24GB", "A100-40GB", "GB200-186GB"} {
		m, _ := FindModel(name)
		seen := map[string]bool{}
		for _, l := range m.Layouts(nil) {
			if l == nil {
				l = []Instance{}
			}
			text := GeometryText([][]Instance{l})
			n := Node{GPUs: 1, MIG: text}
			if _, _, err := n.Geometry(&m); err != nil || seen[text] {
				t.Fatalf("%s: %q: %v, seen before: %v", name, text, err, seen[text])
			}
			seen[text] = true
		}
	}
}

// The error for an unknown profile lists the model's profiles.
func TestLacks(t *testing.T) {
	for model, want := range map[string]string{
		"H100-80GB": "H100-80GB does not offer MIG profile 5g.40gb; it offers 1g.10gb, 1g.10gb+me, 1g.20gb, 2g.20gb, 3g.40gb, 4g.40gb, 7g.80gb",
		"V100-16GB": "V100-16GB does not offer MIG profile 5g.40gb: it cannot be partitioned",
	} {
		m, _ := FindModel(model)
		n := Node{GPUs: 1, MIG: "0:5g.40gb@0"}
		if _, _, err := n.Geometry(&m); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", model, err, want)
		}
	}
}

// Instances are laid out on the minimum number of GPUs, as found by a search through all layouts,
// and match the request.
func TestFit(t *testing.T) {
	m, _ := FindModel("A100-80GB")
	for want, gpus := range map[string]int{"7g": 1, "4g,3g": 1, "3g,3g": 1, "3g,3g,1g": 2, "4g,4g": 2, "2g,2g,2g,1g": 1,
		"1g,1g,1g,1g,1g,1g,1g": 1, "1g,1g,1g,1g,1g,1g,1g,1g": 2, "4g,1g,1g,1g": 1, "1g,1g,1g,4g": 1,
		"4g,1g.20gb,1g.20gb": 1, "4g,1g.20gb,1g.20gb,1g": 2, "1g.10gb+me,1g.10gb+me": 2} {
		got, exact, err := m.Fit(strings.Split(want, ","))
		if err != nil || len(got) != gpus || !exact {
			t.Errorf("%s: %v on %d GPUs, exact %v, %v; want %d", want, got, len(got), exact, err, gpus)
		}
	}
	if _, _, err := m.Fit([]string{"5g"}); err == nil || !strings.Contains(err.Error(), "5g") {
		t.Errorf("a profile that there is not: %v", err)
	}
	layouts := m.FullLayouts(nil)
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		var want []string
		for range 1 + r.IntN(6) {
			want = append(want, m.Profiles[r.IntN(len(m.Profiles))].Name)
		}
		got, exact, err := m.Fit(want)
		if err != nil || !exact {
			t.Fatalf("%v: exact %v, %v", want, exact, err)
		}
		var have []string
		for _, g := range got {
			n := Node{GPUs: 1, MIG: GeometryText([][]Instance{g})}
			if _, _, err := n.Geometry(&m); err != nil {
				t.Fatalf("%v: %v", want, err)
			}
			for _, in := range g {
				have = append(have, in.Profile)
			}
		}
		slices.Sort(want)
		slices.Sort(have)
		if !slices.Equal(want, have) || covers(layouts, want, len(got)-1) {
			t.Fatalf("%v are laid out as %v", want, got)
		}
	}
}

// covers reports whether instances fit on a number of GPUs, by trying all full layouts.
func covers(layouts [][]Instance, want []string, gpus int) bool {
	if len(want) == 0 || gpus == 0 {
		return len(want) == 0
	}
	tried := map[string]bool{}
	for _, l := range layouts {
		left := slices.Clone(want)
		for _, in := range l {
			if i := slices.Index(left, in.Profile); i >= 0 {
				left = slices.Delete(left, i, i+1)
			}
		}
		if k := fmt.Sprint(left); len(left) < len(want) && !tried[k] {
			if tried[k] = true; covers(layouts, left, gpus-1) {
				return true
			}
		}
	}
	return false
}
