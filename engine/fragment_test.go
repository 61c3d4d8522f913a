package engine

import (
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/placement"
)

// wants makes the demand of an engine: so many single-task jobs of each request.
func wants(e *Engine, kinds ...wanted) {
	e.jobs = nil
	for _, k := range kinds {
		for range k.jobs {
			e.jobs = append(e.jobs,
				&job.State{Tenure: &job.Tenure{}, Spec: &cluster.Job{ID: cluster.JobID(len(e.jobs)), GPUTypes: k.types,
					Tasks: []cluster.TaskSet{{Count: 1, Request: k.request}}}, Facts: job.Facts{State: job.Done}})
		}
	}
	e.find.Recount()
}

type wanted struct {
	jobs    int
	request cluster.Request
	types   []string
}

func share(milli int64) cluster.Request { return cluster.Request{GPUs: 1, Share: milli} }
func whole(gpus int) cluster.Request    { return cluster.Request{GPUs: gpus} }

// fragments is the expected fragments of a node in milli-GPU.
func fragments(e *Engine, id int) float64 {
	d := e.find.Demand()
	n := &e.st.Nodes()[id]
	return float64(n.FreeMilli()) - float64(e.st.UsableOf(n, d))/float64(d.Weight)
}

// occupy leaves so many milli-GPU free on each device of a node.
func occupy(e *Engine, id int, free ...int64) {
	for i, f := range free {
		a := inventory.Alloc{Node: int32(id), GPUs: 1 << i, Tasks: 1}
		if f == cluster.Whole {
			continue
		}
		if f > 0 {
			a.Share = int32(cluster.Whole - f)
		}
		e.st.Take(&a)
	}
	e.st.Commit()
}

// TestFragmentVector is the one of FGD, ATC'23: tasks of 0.6 GPU with probability 0.5,
// of one GPU 0.3, of two 0.2; a node with 0.5 and 1.0 free.
func TestFragmentVector(t *testing.T) {
	e := store(t, "V100-16GB", cluster.Node{GPUs: 2, CPU: 8000}, cluster.Node{GPUs: 2, CPU: 8000})
	with := func(r cluster.Request, cpu int64) cluster.Request { r.CPU = cpu; return r }
	mix := func(cpu int64) {
		wants(e, wanted{5, with(share(600), cpu), nil}, wanted{3, with(whole(1), cpu), nil},
			wanted{2, with(whole(2), cpu), nil},
			wanted{40, cluster.Request{CPU: 1000}, nil}) // no GPU is of use to these: they do not count
	}
	mix(4000)
	occupy(e, 0, 500, 1000)
	if f := fragments(e, 0); f != 700 {
		t.Errorf("fragments of (0.5, 1.0): %v, want 700", f)
	}
	if f := fragments(e, 1); f != 0 {
		t.Errorf("fragments of an idle node on which every kind fits: %v", f)
	}
	s := siteFor(e, share(500), 1)
	g, dev, ok := s.Growth(0, 0, inventory.Fragments)
	if d := e.find.Demand().Weight; !ok || dev != 0 || g != -500*d {
		t.Errorf("a share of 0.5: device %d, growth %d, ok %v; want device 0, growth -0.5", dev, g/d, ok)
	}
	for dev, want := range []float64{200, 1000} {
		mark, n := s.Mark()
		s.TakeDevice(0, 0, dev)
		if f := fragments(e, 0); f != want {
			t.Errorf("fragments with 0.5 on device %d: %v, want %v", dev, f, want)
		}
		s.Undo(mark, n)
	}
	if f := e.Fragmentation(); f.Free != 3500 || f.Usable != 2800 || math.Abs(f.Rate()-0.2) > 1e-12 {
		t.Errorf("fragmentation %+v, rate %v; want 3500 free, 2800 of use", f, f.Rate())
	}
	mix(9000) // too much for every node: nothing can be used, and such kinds do not count at all
	if d := e.find.Demand(); d.Weight != 0 {
		t.Errorf("kinds that no node can hold count: %+v", d.Kinds)
	}
	mix(8000)
	e.st.Take(&inventory.Alloc{CPU: 1})
	if f := fragments(e, 0); f != 1500 {
		t.Errorf("fragments where CPU is short for every kind: %v, want all that is free, 1500", f)
	}
	occupy(e, 1, 0, 0)
	if f := fragments(e, 1); f != 0 {
		t.Errorf("fragments of a full node: %v", f)
	}
}

// TestFragmentTypes: a kind that names another GPU model cannot use the node.
func TestFragmentTypes(t *testing.T) {
	e, err := New(Config{Policy: nobody{}, Placer: nowhere{}, Spec: cluster.Spec{Nodes: []cluster.Node{
		{Name: "a", Model: "V100-16GB", GPUs: 4}, {Name: "b", Model: "T4-16GB", GPUs: 4}}}})
	if err != nil {
		t.Fatal(err)
	}
	wants(e, wanted{1, whole(1), []string{"T4"}}, wanted{3, whole(1), nil})
	if a, b := fragments(e, 0), fragments(e, 1); a != 1000 || b != 0 {
		t.Errorf("fragments %v and %v, want 1000 (a quarter of the demand is for T4 alone) and 0", a, b)
	}
}

// TestFragmentUsers: where shares of several users keep apart, what is left beside
// one's is of use to that one only.
func TestFragmentUsers(t *testing.T) {
	e := store(t, "V100-16GB", cluster.Node{GPUs: 2})
	e.find.Sharing = cluster.MPS
	wants(e, wanted{4, share(250), nil})
	for i, j := range e.jobs {
		j.Spec.User = []string{"ann", "bob", "bob", "bob"}[i]
	}
	a := inventory.Alloc{GPUs: 1, Tasks: 1, Share: 250, User: "ann"}
	e.st.Take(&a)
	if f := e.Fragmentation(); f.Free != 1750 || f.Usable != 1000+750/4 {
		t.Errorf("beside a quarter of ann's: %+v; want 1750 free, and of use 1000 and a quarter of 750", f)
	}
	s := siteFor(e, share(250), 1)
	s.Job().Spec().User = "bob"
	g, dev, ok := s.Growth(0, 0, inventory.Fragments)
	if d := e.find.Demand().Weight; !ok || dev != 1 || g != 750 {
		t.Errorf("bob's share goes to GPU %d, growth %d of %d tasks (%v); want GPU 1, where 750 are lost to ann's task",
			dev, g, d, ok)
	}
	s.Job().Spec().User = "ann"
	if g, dev, ok := s.Growth(0, 0, inventory.Fragments); !ok || dev != 0 || g != -3*250 {
		t.Errorf("ann's share goes to GPU %d, growth %d (%v); want GPU 0, where the three tasks of bob's lose less",
			dev, g, ok)
	}
}

// dumbFragments is FGD, ATC'23 as it is written: kind by kind, GPU by GPU, in milli-GPU
// times tasks.
func dumbFragments(e *Engine, n *inventory.Node) (sum int64) {
	model := e.st.Classes()[n.Class()].Model()
	for _, k := range e.find.Demand().Kinds {
		var total, fits, small int64
		for i := range n.Devices() {
			d := n.Devices()[i]
			free := int64(d.Milli())
			held := n.Free()>>i&1 == 0 && d.Tenants() == 0 && !n.IsCut(i)
			if n.Healthy()>>i&1 == 0 || held || free == 0 {
				continue
			}
			total += free
			can := false
			switch r := k.Request; {
			case r.Profile != "":
				p, ok := model.Profile(r.Profile)
				can = ok && (d.Tenants() == 0 || d.Slots() != 0) && n.StartOn(model, p, i, nil) >= 0
			case r.Share > 0:
				can = free >= r.Share && d.Mem() >= r.Memory && d.Slots() == 0 && !n.IsCut(i) &&
					(d.Tenants() == 0 || d.User() == k.User)
			default:
				can = free == 1000 && n.Free()>>i&1 == 1
			}
			if can {
				fits++
			} else {
				small += free
			}
		}
		if !k.Suits.Has(n.Class()) || fits < int64(k.Request.GPUs) || n.CPU() < k.Request.CPU ||
			n.RAM() < k.Request.RAM {
			small = total
		}
		sum += small * k.Weight
	}
	return sum
}

// dumbRooms is what a node is worth under the measure Rooms, negative: kind by kind
// what is free on devices that would take one more task, and tasks one after the
// other, by counting down.
func dumbRooms(e *Engine, n *inventory.Node) (sum int64) {
	model := e.st.Classes()[n.Class()].Model()
	d := e.find.Demand()
	for _, k := range d.Kinds {
		r := k.Request
		var free, fits, each int64
		devices := 0
		for i := range n.Devices() {
			left := n.FreeMilliOn(i)
			p, _ := model.Profile(r.Profile)
			switch {
			case left == 0:
			case r.Profile != "":
				if (n.Devices()[i].Tenants() == 0 || n.Devices()[i].Slots() != 0) && p != nil &&
					n.StartOn(model, p, i, nil) >= 0 {
					free, fits, devices = free+left, fits+1, devices+1
				}
			case r.Share == 0:
				if left == 1000 && n.Free()>>i&1 == 1 {
					free, fits, devices = free+left, fits+1, devices+1
				}
			default:
				mem, ok := n.Devices()[i].Mem(), false
				for rest := left; rest >= r.Share && mem >= r.Memory && n.Devices()[i].Slots() == 0 &&
					(n.Devices()[i].Tenants() == 0 || n.Devices()[i].User() == k.User); rest, mem = rest-r.Share,
					mem-r.Memory {
					if ok && r.GPUs > 1 {
						break
					}
					ok = true
					fits++
				}
				if ok {
					free, devices = free+left, devices+1
				}
			}
		}
		if !k.Suits.Has(n.Class()) || devices < r.GPUs {
			continue
		}
		tasks := int64(0)
		for cpu, ram := n.CPU(), n.RAM(); tasks < fits/int64(r.GPUs) && cpu >= r.CPU && ram >= r.RAM; cpu,
			ram = cpu-r.CPU, ram-r.RAM {
			tasks++
		}
		if each = r.Milli(); r.Profile != "" {
			p, _ := model.Profile(r.Profile)
			each = int64(p.Compute) * 1000 / int64(model.Compute)
		}
		if tasks > 0 {
			sum -= k.Weight * (free + tasks*each)
		}
	}
	return sum
}

// dumbSteps is what dumbRooms loses in steps of 60 milli-GPU of the mean, and half.
func dumbSteps(e *Engine, lost int64) int64 {
	return int64(math.Ceil(float64(lost) / float64(2*60*max(1, e.find.Demand().Weight))))
}

// dumbGrowth tries every device that Room and deviceLeft allow.
func dumbGrowth(s *probe, node int, measure inventory.Measure) (growth int64, dev int, ok bool) {
	dumbFragments := dumbFragments
	after := func(now, before int64) int64 { return now - before }
	if measure == inventory.Rooms {
		dumbFragments = dumbRooms
		after = func(now, before int64) int64 { return dumbSteps(s.e, now-before) }
	}
	e, r := s.e, &s.Sets()[0].Request
	n := &e.st.Nodes()[node]
	if s.Room(node, 0, 1) < 1 {
		return 0, 0, false
	}
	before := dumbFragments(e, n)
	if !r.Fractional() || r.Profile != "" || r.GPUs > 1 {
		mark, k := s.Mark()
		s.Take(node, 0, 1)
		growth = after(dumbFragments(e, n), before)
		s.Undo(mark, k)
		return growth, -1, true
	}
	dev = -1
	for i := range n.Devices() {
		left, can := s.DeviceLeft(n, i, r)
		d := &n.Devices()[i]
		if !can || n.FreeMilliOn(i) == 0 || d.Tenants() > 0 && d.User() != e.find.Owner(s.Job().Spec()) {
			continue
		}
		mark, k := s.Mark()
		s.TakeDevice(node, 0, i)
		g := after(dumbFragments(e, n), before)
		s.Undo(mark, k)
		if was := int64(0); dev >= 0 {
			if was, _ = s.DeviceLeft(n, dev, r); g > growth || g == growth && left >= was {
				continue
			}
		}
		growth, dev = g, i
	}
	return growth, dev, dev >= 0
}

// TestFragmentTwin: what is remembered, and what was taken over from one state to
// another, is what the definition gives, through a thousand random changes each of
// which may be taken back; 0 <= fragments <= free, and a placement changes its own
// node only.
func TestFragmentTwin(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 11))
		model := []string{"A100-80GB", "T4-16GB", "A30-24GB"}[r.IntN(3)]
		var nodes []cluster.Node
		for range 1 + r.IntN(6) {
			nodes = append(nodes,
				cluster.Node{GPUs: []int{0, 1, 2, 4, 8}[r.IntN(5)], CPU: []int64{0, 8000, 16000}[r.IntN(3)],
					RAM: []int64{0, 65536}[r.IntN(2)], Islands: r.IntN(3), Bad: uint64(r.IntN(2) & r.IntN(2))})
		}
		nodes[0].GPUs = 4
		e := store(t, model, nodes...)
		request := func() cluster.Request {
			q := cluster.Request{GPUs: 1 + r.IntN(4), CPU: []int64{0, 1000, 5000}[r.IntN(3)],
				RAM: []int64{0, 9000}[r.IntN(2)]}
			switch r.IntN(5) {
			case 0, 1:
				q.Share, q.Memory = int64(1+r.IntN(9))*100, []int64{0, 4096, 9000}[r.IntN(3)]
				if r.IntN(4) > 0 {
					q.GPUs = 1
				}
			case 2:
				q.GPUs, q.Profile = 1, []string{"1g", "2g", "3g"}[r.IntN(3)]
			case 3:
				q.GPUs = r.IntN(2)
			}
			return q
		}
		var mix []wanted
		for range 1 + r.IntN(9) {
			mix = append(mix, wanted{1 + r.IntN(6), request(), nil})
		}
		wants(e, mix...)
		if seed%2 == 1 { // shares of several users keep apart
			e.find.Sharing = cluster.MPS
			for _, j := range e.jobs {
				j.Spec.User = []string{"", "ann", "bob"}[r.IntN(3)]
			}
		}
		var held []inventory.Alloc
		for range 150 {
			s := siteFor(e, request(), 1)
			s.Job().Spec().User = []string{"", "ann", "bob"}[r.IntN(3)]
			var before []int64
			for id := range e.st.Nodes() {
				n := &e.st.Nodes()[id]
				f := dumbFragments(e, n)
				before = append(before, f)
				d := e.find.Demand()
				if f < 0 || f > n.FreeMilli()*d.Weight {
					t.Fatalf("seed %d: fragments %d of %d free", seed, f, n.FreeMilli())
				}
				e.st.Memory().Fresh(d, len(e.st.Nodes()))
				if got := n.FreeMilli()*d.Weight - e.st.Usable(id, d).Usable(); got != f {
					t.Fatalf("seed %d: node %d %+v: fragments %d, by definition %d", seed, id, n.Devices(), got, f)
				}
				for _, m := range []inventory.Measure{inventory.Fragments, inventory.Rooms} {
					g, dev, ok := s.Growth(id, 0, m)
					wantG, wantDev, wantOK := dumbGrowth(s, id, m)
					if ok != wantOK || ok && (g != wantG || dev != wantDev) {
						t.Fatalf("seed %d: measure %d, %+v on node %d %+v: growth %d on %d (%v), by definition %d on %d (%v)", seed, m, s.Sets()[0].Request, id, n.Devices(), g, dev, ok, wantG, wantDev, wantOK)
					}
				}
			}
			id := r.IntN(len(nodes))
			if len(held) > 0 && r.IntN(3) == 0 {
				k := r.IntN(len(held))
				e.st.Release(&held[k])
				id = int(held[k].Node)
				held = slices.Delete(held, k, k+1)
				e.st.Commit()
			} else if _, dev, ok := s.Growth(id, 0, inventory.Fragments); ok {
				mark, k := s.Mark()
				if s.TakeDevice(id, 0, dev); r.IntN(3) == 0 {
					s.Undo(mark, k)
				} else {
					held = append(held, s.Bound()...)
					e.st.Commit()
				}
			}
			for other := range before {
				if other != id && dumbFragments(e, &e.st.Nodes()[other]) != before[other] {
					t.Fatalf("seed %d: a change of node %d changed the fragments of node %d", seed, id, other)
				}
			}
		}
	}
}

// What placement counts at most (demand.go).
const mostKinds, mostWeight = 64, 1000

// TestDemand: the last jobs count, by tasks, and only the most frequent kinds.
func TestDemand(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6)) // what is counted on and off is what is counted from scratch
	grown := store(t, "V100-16GB", cluster.Node{GPUs: 8})
	for id := range 4000 {
		grown.jobs = append(grown.jobs,
			&job.State{Tenure: &job.Tenure{},
				Spec: &cluster.Job{ID: cluster.JobID(id),
					Tasks: []cluster.TaskSet{{Count: 1 + r.IntN(3), Request: share(int64(1 + r.IntN(9)))}}}})
		if r.IntN(5) > 0 && id > 10 && id%700 < 500 {
			continue // it is not looked at with every job
		}
		got := *grown.find.Demand()
		fresh := placement.Finder{World: &grown.w, Around: grown.find.Around, Speeds: grown.find.Speeds}
		again := fresh.Demand()
		if got.Weight != again.Weight || !reflect.DeepEqual(got.Kinds, again.Kinds) {
			t.Fatalf("after %d jobs %+v, again %+v", id+1, got.Kinds, again.Kinds)
		}
	}
	e := store(t, "V100-16GB", cluster.Node{GPUs: 8})
	var mix []wanted
	for i := range 3 * mostKinds {
		mix = append(mix, wanted{1, share(int64(i + 1)), nil})
	}
	wants(e, mix...)
	if d := e.find.Demand(); len(d.Kinds) != mostKinds || d.Weight != mostKinds {
		t.Errorf("%d kinds of %d tasks count; at most %d", len(d.Kinds), d.Weight, mostKinds)
	}
	wants(e, wanted{96, whole(1), nil}, wanted{4, whole(2), nil})
	if d := e.find.Demand(); len(d.Kinds) != 1 || d.Kinds[0].Weight != 96 {
		t.Errorf("96 of 100 tasks are one kind, more than 95%%: %+v", d.Kinds)
	}
	wants(e, wanted{30, whole(1), nil}, wanted{1000, whole(2), nil})
	e.jobs[1029].Spec.Tasks[0].Count = 5000
	if d := e.find.Demand(); d.Upto != 1024 || len(d.Kinds) != 1 || d.Kinds[0].Weight != 994 {
		t.Errorf("of 1030 jobs numbers 24 to 1023 count: 6 of one GPU, 994 of two: %+v", d)
	}
	for range 122 {
		e.jobs = append(e.jobs, e.jobs[1029])
	}
	if d := e.find.Demand(); d.Upto != 1152 || d.Weight != 877+123*mostWeight {
		t.Errorf("jobs 152 to 1151 count, a set of theirs for %d tasks at most: %+v", mostWeight, d)
	}
}
