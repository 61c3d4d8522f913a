package cluster

import (
	"slices"
	"strings"
	"testing"
)

// A share becomes the smallest offer that provides the isolation.
func TestChooseWay(t *testing.T) {
	model, _ := FindModel("H100-80GB")
	quarter, part := Request{GPUs: 1, Share: 250}, Request{GPUs: 1, Share: 250, Memory: model.Memory / 4}
	for _, c := range []struct {
		name    string
		sharing Sharing
		have    string
		ask     Request
		want    Isolation
		prompt  bool
		get     Request
		text    string
	}{
		{"no GPU", MPS, "", Request{CPU: 1000}, Full, true, Request{CPU: 1000}, ""},
		{"whole GPUs", MPS, "1g.10gb", Request{GPUs: 2}, Full, true, Request{GPUs: 2}, ""},
		{"a slice", MPS, "", Request{GPUs: 1, Profile: "1g.10gb"}, Full, false, Request{GPUs: 1, Profile: "1g.10gb"},
			"by the GPU"},
		{"declared", TimeSlicing, "2g.20gb", quarter, Open, false, part, "declared only"},
		{"MPS has a part of the memory", MPS, "", quarter, OwnMemory, true, part, "memory by MPS"},
		{"MPS has the memory that is asked for", MPS, "", Request{GPUs: 1, Share: 250, Memory: 3000}, Open, false,
			Request{GPUs: 1, Share: 250, Memory: 3000}, "memory by MPS"},
		{"the smallest instance", MPS, "4g.40gb 2g.20gb 1g.10gb", quarter, Full, false,
			Request{GPUs: 1, Profile: "2g.20gb"}, "2g.20gb, for isolation full"},
		{"with so much memory", TimeSlicing, "4g.40gb 2g.20gb 1g.10gb", Request{GPUs: 1, Share: 100, Memory: 30000},
			OwnMemory, false, Request{GPUs: 1, Profile: "4g.40gb"}, "4g.40gb, for isolation memory"},
		{"an instance has less than its name says", TimeSlicing, "3g.40gb 2g.20gb 1g.10gb",
			Request{GPUs: 1, Share: 125, Memory: 10 << 10}, Full, false, Request{GPUs: 1, Profile: "2g.20gb"},
			"2g.20gb"},
		{"none is large enough", TimeSlicing, "1g.10gb", quarter, OwnMemory, false, Request{GPUs: 1},
			"a whole GPU, for isolation memory"},
		{"no turns", TimeSlicing, "", quarter, Open, true, Request{GPUs: 1},
			"a whole GPU, for a job that cannot wait for turns"},
		{"shares of two GPUs", TimeSlicing, "4g.40gb", Request{GPUs: 2, Share: 250}, Full, false, Request{GPUs: 2},
			"a whole GPU"},
	} {
		w := Ways{Sharing: c.sharing, Model: model, Profiles: strings.Fields(c.have)}
		if get, text := w.Choose(c.ask, c.want, c.prompt); get != c.get || !strings.Contains(text, c.text) ||
			c.text == "" && text != "" {
			t.Errorf("%s: gets %+v (%s), want %+v (%s)", c.name, get, text, c.get, c.text)
		}
	}
}

// Before Volta MPS has no limits: it isolates no memory.
func TestChooseOldMPS(t *testing.T) {
	model, _ := FindModel("P100-16GB")
	w := Ways{Sharing: MPS, Model: model}
	quarter, part := Request{GPUs: 1, Share: 250}, Request{GPUs: 1, Share: 250, Memory: model.Memory / 4}
	for _, c := range []struct {
		want   Isolation
		prompt bool
		get    Request
		text   string
	}{{Open, false, part, "declared only: MPS enforces neither"},
		{Open, true, part, "declared only: MPS enforces neither"},
		{OwnMemory, false, Request{GPUs: 1}, "a whole GPU, for isolation memory"}} {
		if get, text := w.Choose(quarter, c.want, c.prompt); get != c.get || !strings.Contains(text, c.text) {
			t.Errorf("isolation %v: gets %+v (%s), want %+v (%s)", c.want, get, text, c.get, c.text)
		}
	}
}

// NVIDIA's MPS documentation: a tenth of 80 GiB is 8192 MiB. For a third, users state 0.333: 27,279
// MiB, of which three fit, as would 27,306.
func TestShareMemory(t *testing.T) {
	model, _ := FindModel("A100-80GB")
	for _, how := range []Sharing{MPS, TimeSlicing} {
		w := Ways{Sharing: how, Model: model}
		for share, want := range map[Milli]MiB{100: 8192, 333: 27_279, 500: 40_960, 1: 81} {
			if r, _ := w.Choose(Request{GPUs: 1, Share: share}, Open, false); r.Memory != want ||
				r.Memory*(Whole/share) > model.Memory {
				t.Errorf("%v: a share of %d has %d MiB, want %d", how, share, r.Memory, want)
			}
		}
		if r, _ := w.Choose(Request{GPUs: 1, Share: 250, Memory: 70_000}, Open, false); r.Memory != 70_000 {
			t.Errorf("%v: a share with 70,000 MiB of its own has %d", how, r.Memory)
		}
	}
}

// A cluster's offer follows from its nodes: existing instances, or all that can be made; with
// several accepted models, that of the one with the least memory.
func TestWays(t *testing.T) {
	all := "1g.10gb 1g.10gb+me 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb"
	for _, c := range []struct {
		nodes string // MODEL/MIG of each node
		types string
		model string
		want  string
	}{
		{"A100-80GB/", "", "A100-80GB", all},
		{"A100-80GB/none", "", "A100-80GB", ""},
		{"A100-80GB/0:", "", "A100-80GB", ""},
		{"A100-80GB/0:*", "", "A100-80GB", all},
		{"A100-80GB/0:3g.40gb@4,1g.10gb@0;1:3g.40gb@0", "", "A100-80GB", "1g.10gb 3g.40gb"},
		{"A100-80GB/none A100-80GB/1:2g.20gb@0", "", "A100-80GB", "2g.20gb"},
		{"A100-80GB/ T4-16GB/", "", "T4-16GB", ""},
		{"A100-80GB/ T4-16GB/", "H100-80GB A100-80GB", "A100-80GB", all},
		{"A100-80GB/none A100-40GB/0:3g.20gb@0 T4-16GB/", "a100", "A100-40GB", "3g.20gb"},
		{"T4-16GB/", "A100-80GB", "", ""},
	} {
		s := Spec{Sharing: MPS}
		for _, text := range strings.Fields(c.nodes) {
			model, mig, _ := strings.Cut(text, "/")
			s.Nodes = append(s.Nodes, Node{Name: "n", Model: model, GPUs: 2, MIG: mig})
		}
		w := s.Ways(strings.Fields(c.types))
		slices.Sort(w.Profiles)
		if got := strings.Join(w.Profiles, " "); w.Sharing != MPS || w.Model.Name != c.model || got != c.want {
			t.Errorf("%s, for %q: %s with %q, want %s with %q", c.nodes, c.types, w.Model.Name, got, c.model, c.want)
		}
	}
}
