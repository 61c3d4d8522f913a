package compat

import (
	"fmt"
	"math"
	"math/rand"
	"slices"
	"testing"
)

func typicalOf(kinds ...Kind) *Typical {
	t := &Typical{Kinds: kinds}
	for i := range kinds {
		if k := &t.Kinds[i]; k.size == 0 {
			k.size = len(t.sizes)
			t.sizes = append(t.sizes, k.Milli)
		}
	}
	return t
}

// TestOpenbExamples: E1 to E6 of FGD's simulator.
func TestOpenbExamples(t *testing.T) {
	t.Parallel()
	all := ^uint64(0)
	typ := typicalOf(Kind{CPU: 4000, Milli: 500, GPUs: 1, Models: all, Share: 0.5},
		Kind{CPU: 16000, Milli: 1000, GPUs: 1, Models: all, Share: 0.3},
		Kind{CPU: 2000, Models: all, Share: 0.2})
	h := Host{CPU: 8000, GPUs: 2, Model: 1, Free: [MostDevices]int64{1000, 400}, Total: 1400}
	if f := typ.Fragments(&h); math.Abs(f-900) > 1e-9 {
		t.Errorf("E1: fragments %v, want 900", f)
	}
	part := Kind{CPU: 2000, Milli: 400, GPUs: 1, Models: all}
	if s, d := FGD(typ, &h, &part); s != 59 || d != 1 {
		t.Errorf("E2: score %d on device %d, want 59 on 1", s, d)
	}
	busy := Host{CPU: 64000, GPUs: 2, Model: 1, Free: [MostDevices]int64{1000, 1000}, Total: 2000}
	one := Kind{CPU: 12000, Milli: 1000, GPUs: 1, Models: all}
	if s, _ := bestFit(nil, &busy, &one); s != 73 {
		t.Errorf("E3: BestFit %d, want 73", s)
	}
	if s, _ := dotProd(nil, &busy, &one); s != 96 {
		t.Errorf("E4: DotProd %d, want 96", s)
	}
	for sizes, want := range map[uint64]int{0b1: 93, 0b101: 68, 0: 43, 0b10: 18} {
		busy.Sizes = sizes
		if s, _ := gpuClustering(nil, &busy, &part); s != want {
			t.Errorf("E5: GpuClustering with sizes %b: %d, want %d", sizes, s, want)
		}
	}
	mixed := Host{CPU: 64000, GPUs: 2, Model: 1, Free: [MostDevices]int64{1000, 300}, Total: 1300}
	for milli, want := range map[int64]int{200: 97, 500: 49} {
		if s, _ := gpuPacking(nil, &mixed, &Kind{Milli: milli, GPUs: 1, Models: all}); s != want {
			t.Errorf("E6: GpuPacking of %d: %d, want %d", milli, s, want)
		}
	}
	if s, _ := gpuPacking(nil, &busy, &Kind{CPU: 1}); s != 0 {
		t.Errorf("Q6: a pod without GPUs scores %d everywhere, want 0", s)
	}
}

// TestOpenbArrivals: E7, and the generator's properties of section 3.
func TestOpenbArrivals(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewSource(42))
	if first := r.Int(); first != 3440579354231278675 {
		t.Errorf("first draw %d", first)
	}
	v := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}
	r.Shuffle(10, func(i, k int) { v[i], v[k] = v[k], v[i] })
	i := r.Intn(8152)
	for range 10 {
		r.Int63()
	}
	if p := r.Perm(8); fmt.Sprint(v, i, p) != "[6 8 3 7 4 2 9 1 5 0] 305 [3 4 6 7 0 1 5 2]" {
		t.Errorf("shuffle, draw, ranks: %v %d %v", v, i, p)
	}
	machines := []Machine{{"b", 1000, 1000, 4, "x"}, {"a", 1000, 1000, 6, "x"}}
	var pods []Pod
	for i := range 25 {
		pods = append(pods, Pod{Name: fmt.Sprintf("p%02d", i), GPUs: 1, Milli: 400})
	}
	for n, want := range map[int]int{2: 32, 25: 32} { // 10,000 of 13,000 are requested by 25; 32 request 12,800
		o, err := NewOpenb(pods[:n], machines)
		if err != nil {
			t.Fatal(err)
		}
		list, ranked := o.arrivals(42)
		slices.Sort(ranked)
		if len(list) != want || !slices.Equal(ranked, []int32{0, 1}) {
			t.Errorf("%d pods become %d, want %d", n, len(list), want)
		}
	}
	pods = append(pods, pods...)
	for i := range pods {
		pods[i].Name = fmt.Sprintf("p%02d", i)
	}
	o, err := NewOpenb(pods, machines) // 20,000 are requested: pods are left out until it is 12,800
	if err != nil {
		t.Fatal(err)
	}
	if list, _ := o.arrivals(42); len(list) != 32 {
		t.Errorf("50 pods become %d, want 32", len(list))
	}
	if _, err := NewOpenb([]Pod{{Name: "p", GPUs: 2, Milli: 500}}, machines); err == nil {
		t.Error("half of each of two GPUs is no kind of pod here")
	}
	if _, err := NewOpenb(nil, []Machine{{"a", 1, 1, 9, "x"}}); err == nil {
		t.Error("a machine with nine GPUs is more than a host holds")
	}
}

// TestOpenbTypical: the most frequent kinds up to 95 %; the spelling of a list of models is part of
// the kind (Q16).
func TestOpenbTypical(t *testing.T) {
	t.Parallel()
	var pods []Pod
	add := func(n int, p Pod) {
		for range n {
			p.Name = fmt.Sprint(len(pods))
			pods = append(pods, p)
		}
	}
	add(60, Pod{CPU: 1, GPUs: 1, Milli: 1000, Spec: "x|y"})
	add(30, Pod{CPU: 2, GPUs: 1, Milli: 1000, Spec: "y|x"})
	add(4, Pod{CPU: 3})
	add(4, Pod{CPU: 4, Spec: "x"}) // models are ignored without GPUs
	add(2, Pod{CPU: 5})
	o, err := NewOpenb(pods, []Machine{{"a", 1, 1, 1, "x"}, {"b", 1, 1, 1, "y"}})
	if err != nil {
		t.Fatal(err)
	}
	// of the two kinds of 4 pods the one with more CPU comes first: 94 %, so the other is needed, too
	k := o.Typical.Kinds
	if len(o.kinds) != 5 || len(k) != 4 || k[2].CPU != 4 || k[3].CPU != 3 || math.Abs(k[0].Share-60./98) > 1e-12 {
		t.Errorf("%d kinds, of which typical are %+v", len(o.kinds), k)
	}
	if k[0].Models != 3 || k[2].Models != ^uint64(0) {
		t.Errorf("models %b and %b", k[0].Models, k[2].Models)
	}
}

// TestOpenbTable: means, roundings and empty columns of section 9.
func TestOpenbTable(t *testing.T) {
	t.Parallel()
	if x := math.RoundToEven(float64(3_261_300) / 6212 / 10); x != 52 {
		t.Errorf("E8: column %v, want 52", x)
	}
	for _, c := range []struct{ used, devices int64 }{{1553, 6212}, {0, 6212}, {6_212_000, 6212}, {3_000_000, 6212},
		{7_765, 6212}, {4_659, 6212}} {
		want := fmt.Sprintf("%.2f", float64(c.used)/float64(c.devices)/10)
		if got := fmt.Sprintf("%.2f", hundredths(c.used, c.devices)); got != want {
			t.Errorf("%d of %d: %s, want %s", c.used, c.devices, got, want)
		}
	}
	for used := int64(0); used < 700_000; used += 7 {
		if got, want := fmt.Sprintf("%.2f", hundredths(used, 6212)),
			fmt.Sprintf("%.2f", float64(used)/6212/10); got != want {
			t.Fatalf("%d: %s, want %s", used, got, want)
		}
	}
	columns := make([][]float64, 140)
	columns[0], columns[2], columns[3] = []float64{1, 2}, []float64{4}, []float64{5, 5, 5.02}
	c := cells(columns)
	if c[0] != 1.5 || c[1] != 2.33 || c[2] != 4 || c[3] != 5.01 || c[4] != 5.01 || !math.IsNaN(c[5]) {
		t.Errorf("cells %v", c[:6])
	}
	r := rand.New(rand.NewSource(1))
	for n := range 700 {
		v, sum := make([]float64, n), 0.0
		for i := range v {
			v[i] = r.Float64()
			sum += v[i]
		}
		if math.Abs(pairwise(v)-sum) > 1e-9 {
			t.Fatalf("%d numbers: %v, one after the other %v", n, pairwise(v), sum)
		}
	}
}

// dumbBest rates every host from scratch.
func dumbBest(w *run, kind int32, memory int64) (at, device int) {
	k, most := &w.o.kinds[kind], -1
	at = -1
	for i := range w.hosts {
		h := w.hosts[i]
		h.known = false
		if h.Memory < memory || !h.fits(k) {
			continue
		}
		if s, d := w.score(&w.o.Typical, &h, k); s > most {
			at, device, most = i, d, s
		}
	}
	return at, device
}

// TestOpenbTwin: for every policy the cached scores give the same choices as a run without caches.
func TestOpenbTwin(t *testing.T) {
	t.Parallel()
	for seed := range int64(6) {
		r := rand.New(rand.NewSource(seed))
		var machines []Machine
		for i := range 90 {
			machines = append(machines,
				Machine{fmt.Sprint(i), 32000 << r.Intn(3), 64000, 1 + r.Intn(8), []string{"x", "y"}[r.Intn(2)]})
		}
		var pods []Pod
		for i := range 300 {
			p := Pod{Name: fmt.Sprint(i), CPU: int64(r.Intn(8)) * 2000, Memory: int64(r.Intn(8)) * 3000,
				GPUs: r.Intn(3), Milli: 1000, Spec: []string{"", "x", "x|y"}[r.Intn(3)]}
			if p.GPUs == 1 && r.Intn(3) > 0 {
				p.Milli = int64(1+r.Intn(9)) * 100
			}
			pods = append(pods, p)
		}
		o, err := NewOpenb(pods, machines)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range append(OpenbPolicies()[1:], OpenbPolicy{"Rooms", Rooms}) {
			w := o.start(seed, p.Score)
			lost := 0
			for _, i := range w.pods {
				kind := o.kindOf[i]
				at, device := w.best(kind, o.pods[i].Memory)
				wantAt, wantDevice := dumbBest(w, kind, o.pods[i].Memory)
				if at != wantAt || at >= 0 && device != wantDevice {
					t.Fatalf("seed %d, %s: %+v goes to %d.%d, without caches %d.%d", seed, p.Name, o.pods[i], at,
						device, wantAt, wantDevice)
				}
				if at < 0 {
					lost++
					continue
				}
				w.place(at, device, i)
				h := &w.hosts[at]
				if h.CPU < 0 || h.Memory < 0 || h.Total < 0 || slices.Min(h.Free[:]) < 0 {
					t.Fatalf("seed %d, %s: host %+v", seed, p.Name, h)
				}
			}
			if lost == 0 || lost == len(w.pods) {
				t.Errorf("seed %d, %s: %d of %d pods are lost: not much is tried", seed, p.Name, lost, len(w.pods))
			}
		}
	}
}
