package engine

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/heap"
)

func compareItems(a, b item) int {
	return cmp.Or(slices.Compare(a.key[:], b.key[:]), cmp.Compare(a.submit, b.submit), cmp.Compare(a.id, b.id))
}

// TestOlistTwin plays random insertions and removals on the list and on a plain
// sorted slice. Phases of growth and of shrinkage make chunks split and vanish.
func TestOlistTwin(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		var l olist
		var twin, spare []item
		keys := []int{3, 50, 1 << 30}[seed%3] // many ties, some, none
		ascending := seed%4 == 0              // as fifo's lists grow
		beside := 0                           // in the twin, where the last change was
		for step := range 6000 {
			it := item{key: Key{int64(r.IntN(keys)), int64(r.IntN(2)), int64(r.IntN(2))}, submit: cluster.Time(r.IntN(3)), id: int32(r.IntN(4000))}
			if ascending {
				it = item{key: Key{int64(step)}, id: int32(step)}
			}
			at, have := slices.BinarySearchFunc(twin, it, compareItems)
			switch grow := step%2000 < 1400; {
			case !have && (grow || r.IntN(4) == 0):
				if near := twin[min(beside, max(0, len(twin)-1)):]; r.IntN(2) == 0 && len(near) > 0 { // beside the last change
					it = near[0]
					it.submit += cluster.Time(r.IntN(3) - 1)
					it.id += int32(r.IntN(3) - 1)
					if at, have = slices.BinarySearchFunc(twin, it, compareItems); have {
						break
					}
				}
				l.insert(it)
				twin, beside = slices.Insert(twin, at, it), at
			case len(twin) > 0:
				k := r.IntN(len(twin))
				switch r.IntN(6) {
				case 0, 1:
					k = 0 // the head leaves most often
				case 2, 3:
					k = min(beside, len(twin)-1) // who comes after the last one,
				case 4:
					k = min(max(0, beside-1), len(twin)-1) // or before it
				}
				beside = k
				if !l.remove(twin[k]) {
					t.Fatalf("seed %d, step %d: %+v is missing", seed, step, twin[k])
				}
				twin = slices.Delete(twin, k, k+1)
			}
			if absent := (item{key: Key{-1}, id: int32(step)}); l.remove(absent) {
				t.Fatalf("seed %d: removed what was never there", seed)
			}
			if step%89 == 0 { // all keys grow, or some of them change places
				of := []int64{0, 1, 7}[r.IntN(3)]
				change := func(it item) item {
					it.key[0] += 5 + int64(it.id)*of%3*int64(keys)
					return it
				}
				for k := range twin {
					twin[k] = change(twin[k])
				}
				slices.SortFunc(twin, compareItems)
				spare = l.rewrite(spare, change)
			}
			if step%97 == 0 {
				checkOlist(t, &l, twin, it)
			}
		}
	}
}

func checkOlist(t *testing.T, l *olist, twin []item, probe item) {
	t.Helper()
	items, err := l.items()
	if err != nil || !slices.Equal(items, twin) {
		t.Fatalf("the list has %d items, its twin %d: %v", len(items), len(twin), err)
	}
	var back []item
	l.walkBack(func(it item) bool { back = append(back, it); return true })
	slices.Reverse(back)
	if !slices.Equal(back, twin) {
		t.Fatal("backwards it is another list")
	}
	place := l.back()
	for i := len(twin) - 1; i >= -1; i-- {
		it := place.item()
		if (it == nil) != (i < 0) || it != nil && *it != twin[i] {
			t.Fatalf("backwards, one by one, item %d is %v", i, it)
		}
		if it != nil {
			place.move()
		}
	}
	n := 0
	l.walk(func(item) bool { n++; return n < 5 })
	if n != min(5, len(twin)) {
		t.Fatalf("a walk that stops after 5 saw %d of %d", n, len(twin))
	}
	first, ok := l.first()
	if ok != (len(twin) > 0) || ok && first != twin[0] {
		t.Fatalf("first is %+v (%v)", first, ok)
	}
	at, have := slices.BinarySearchFunc(twin, probe, compareItems)
	if have {
		at++
	}
	next, ok := l.after(&probe)
	if ok != (at < len(twin)) || ok && next != twin[at] {
		t.Fatalf("after %+v comes %+v (%v), not item %d of %d", probe, next, ok, at, len(twin))
	}
	for _, c := range l.chunks {
		if len(c) == 0 || len(c) > chunkMax {
			t.Fatalf("a chunk of %d items", len(c))
		}
	}
}

// TestBitsetTwin compares the bitset with a slice of booleans.
func TestBitsetTwin(t *testing.T) {
	for _, size := range []int{1, 63, 64, 65, 4096, 4097, 300_000} {
		r := rand.New(rand.NewPCG(uint64(size), 2))
		var b bitset
		b.grow(size)
		twin := make([]bool, size)
		for range 400 {
			i := int32(r.IntN(size))
			if r.IntN(3) == 0 {
				b.del(i)
				twin[i] = false
			} else {
				b.add(i)
				twin[i] = true
			}
			if err := b.check(); err != nil {
				t.Fatal(err)
			}
			from := r.IntN(size)
			want := slices.Index(twin[from:], true)
			if want >= 0 {
				want += from
			}
			if got := b.next(int32(from)); int(got) != want {
				t.Fatalf("size %d: next(%d) = %d, not %d", size, from, got, want)
			}
			if b.has(i) != twin[i] {
				t.Fatalf("size %d: has(%d) = %v", size, i, b.has(i))
			}
		}
		if b.next(int32(len(b.words)*64)) != -1 {
			t.Fatal("a member beyond the end")
		}
	}
}

// TestTimerHeapTwin compares the heap with a sorted slice; void timers never
// come up.
func TestTimerHeapTwin(t *testing.T) {
	scanned, popped := 0, 0
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 3))
		e := &Engine{}
		for range 20 {
			e.jobs = append(e.jobs, &jobState{tenure: &tenure{}})
		}
		var h timerHeap
		var twin []timer
		for range 400 {
			if r.IntN(3) > 0 {
				tm := timer{cluster.Time(r.IntN(50)), timerKind(r.IntN(2)), int32(r.IntN(20)), 0}
				tm.gen = e.jobs[tm.id].gen
				h.push(tm)
				twin = append(twin, tm)
			} else {
				e.jobs[r.IntN(20)].gen++ // its timers are void
			}
			twin = slices.DeleteFunc(twin, func(tm timer) bool { return e.jobs[tm.id].gen != tm.gen })
			slices.SortFunc(twin, func(a, b timer) int {
				return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.id, b.id), cmp.Compare(a.kind, b.kind))
			})
			at, ok := h.peek(e)
			if ok != (len(twin) > 0) || ok && at != twin[0].at {
				t.Fatalf("seed %d: next at %v (%v), twin has %v", seed, at, ok, twin)
			}
			if ok && r.IntN(2) == 0 {
				if got := h.pop(); got != twin[0] {
					t.Fatalf("seed %d: %+v comes up, not %+v", seed, got, twin[0])
				}
				twin = twin[1:]
			}
			if now := cluster.Time(r.IntN(60)); r.IntN(40) == 0 { // few of them are due, or many
				due := h.take(nil, now)
				for _, tm := range due {
					at := slices.Index(twin, tm)
					if tm.at > now || at < 0 && e.jobs[tm.id].gen == tm.gen {
						t.Fatalf("seed %d: %+v is taken at %v", seed, tm, now)
					}
					if at >= 0 {
						twin = slices.Delete(twin, at, at+1)
					}
				}
				if len(twin) > 0 && twin[0].at <= now {
					t.Fatalf("seed %d: %+v is not taken at %v", seed, twin[0], now)
				}
				scanned += count(len(due)*4 > len(due)+len(h))
				popped += count(len(due) > 0 && len(due)*16 < len(due)+len(h))
			}
		}
	}
	if scanned == 0 || popped == 0 {
		t.Errorf("many timers were due %d times, few of many %d times", scanned, popped)
	}
	var h timerHeap
	if h.push(timer{at: cluster.Never}); len(h) != 0 {
		t.Error("a timer for never is kept")
	}
}

// TestCandidateHeap: the heap of jobs beyond their group's first is in order.
func TestCandidateHeap(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	var h, twin []item
	for range 2000 {
		if len(h) == 0 || r.IntN(5) < 3 {
			it := item{key: Key{int64(r.IntN(9))}, id: int32(r.IntN(1 << 20))}
			heap.Push(&h, it)
			at, _ := slices.BinarySearchFunc(twin, it, compareItems)
			twin = slices.Insert(twin, at, it)
			continue
		}
		if got := heap.Pop(&h); got != twin[0] {
			t.Fatalf("%+v comes out, not %+v", got, twin[0])
		}
		twin = twin[1:]
	}
}

// store makes an engine's node store with nodes of one model.
func store(t testing.TB, model string, nodes ...cluster.Node) *Engine {
	t.Helper()
	m, ok := cluster.FindModel(model)
	if !ok {
		t.Fatal(model)
	}
	for i := range nodes {
		nodes[i].Name, nodes[i].Model = fmt.Sprintf("n%d", i), m.Name
	}
	e, err := New(Config{Spec: cluster.Spec{Nodes: nodes}, Policy: nobody{}, Placer: nowhere{}})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

type nobody struct{}

func (nobody) Name() string          { return "nobody" }
func (nobody) Traits() Traits        { return Traits{} }
func (nobody) Key(View, JobView) Key { return Key{} }

type nowhere struct{}

func (nowhere) Name() string     { return "nowhere" }
func (nowhere) Place(*Site) bool { return false }

// siteFor makes a site for one task set on all classes.
func siteFor(e *Engine, r cluster.Request, count int) *Site {
	j := &jobState{tenure: &tenure{}, spec: &cluster.Job{Tasks: []cluster.TaskSet{{Count: count, Request: r}}}}
	s := &Site{e: e, job: j, req: j.spec.Tasks}
	for ci := range e.st.classes {
		s.stage.classes = append(s.stage.classes, int32(ci))
	}
	return s
}

func snapshot(st *nodeStore) string {
	s := ""
	for i := range st.nodes {
		n := &st.nodes[i]
		s += fmt.Sprintln(n.free, n.nfree, n.cpu, n.ram, n.devs)
	}
	for i := range st.classes {
		c := &st.classes[i]
		s += fmt.Sprintln(c.free, c.buckets, c.partial)
	}
	return s
}

// TestStoreTwin books and releases at random, with marks and rollbacks: a
// rollback restores every bit, and the books and the index hold throughout.
func TestStoreTwin(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 5))
		e := store(t, "A100-80GB", cluster.Node{GPUs: 4, CPU: 16000}, cluster.Node{GPUs: 8, RAM: 9000}, cluster.Node{GPUs: 2, CPU: 8000, RAM: 8000}, cluster.Node{GPUs: 4, CPU: 16000})
		requests := []cluster.Request{{GPUs: 1}, {GPUs: 2, CPU: 3000}, {GPUs: 1, Share: 300, Memory: 20000}, {GPUs: 2, Share: 500, RAM: 1000},
			{GPUs: 1, Profile: "1g"}, {GPUs: 1, Profile: "3g"}, {GPUs: 1, Profile: "1g.10gb+me"}, {CPU: 1000, RAM: 500}}
		var held [][]Alloc
		step := func() {
			if len(held) > 0 && r.IntN(5) < 2 {
				k := r.IntN(len(held))
				for i := range held[k] {
					e.st.release(&held[k][i])
				}
				held = slices.Delete(held, k, k+1)
				return
			}
			s := siteFor(e, requests[r.IntN(len(requests))], 3)
			node, n := r.IntN(4), 1+r.IntN(3)
			if n = min(n, s.Room(node, 0, n)); n > 0 {
				s.TakeOn(node, 0, n, Pick(r.IntN(3)))
				held = append(held, s.allocs)
			}
		}
		for range 60 {
			for range r.IntN(6) {
				step()
			}
			before, kept := snapshot(&e.st), slices.Clone(held)
			mark := e.st.mark()
			for range r.IntN(8) {
				step()
			}
			if r.IntN(2) == 0 {
				e.st.rollback(mark)
				held = kept
				if after := snapshot(&e.st); after != before {
					t.Fatalf("seed %d: rolled back to\n%s\nfrom\n%s", seed, after, before)
				}
			}
			e.st.commit()
			e.jobs = e.jobs[:0]
			for i, allocs := range held { // so that the books can be recomputed
				e.jobs = append(e.jobs, &jobState{spec: &cluster.Job{ID: cluster.JobID(i)}, state: Running, tenure: &tenure{allocs: allocs}})
			}
			if err := e.checkBooks(); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if err := e.checkIndexes(); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		for i := range held {
			for k := range held[i] {
				e.st.release(&held[i][k])
			}
		}
		for i := range e.st.nodes {
			if n := &e.st.nodes[i]; int(n.nfree) != n.spec.GPUs {
				t.Fatalf("seed %d: node %d has %d free GPUs in the end", seed, i, n.nfree)
			}
		}
	}
}
