package kube

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/internal/shared"
	"github.com/muster-gpu/muster/kube/retry"
)

// The leader is paused in the middle of its work, for longer than its lease lasts, and woken while its successor
// schedules; then the successor is, and so on. At no time is more given away than there is, and no gang is unwound:
// nothing here ever has a reason to leave. MUSTER_SOAK is how many seeds are played.
func testPaused(b *bench) {
	for seed := range uint64(shared.Soaking(b, 1)) {
		b.sub(fmt.Sprintf("seed-%d", seed+1), func(b *bench) { b.paused(rand.New(rand.NewPCG(seed+1, 24))) })
	}
}

func (b *bench) paused(r *rand.Rand) {
	var names []string
	for i := range shared.Soak(4, 12) {
		names = append(names, fmt.Sprintf("n%02d", i))
	}
	g := b.eights(names...)
	if err := b.c.CoordinationV1().Leases("default").DeleteCollection(b.ctx, metav1.DeleteOptions{},
		metav1.ListOptions{}); err != nil {
		b.Fatal(err)
	}
	c := b.crew()
	wanted := 0
	more := func(n int) {
		for range n {
			size := 1 + r.IntN(6)
			wanted += size
			c.add(fmt.Sprintf("g%d", len(c.list)), size, 1+r.IntN(4),
				map[string]string{runs: fmt.Sprintf("%dms", 300+r.IntN(1200))})
		}
	}
	over := func() (n int) {
		c.tend()
		for _, t := range c.list {
			if t.done {
				n++
			}
		}
		return n
	}
	schedulers := map[string]*process{"a": b.scheduler("|a")}
	b.wait("a leads", func() bool { return b.leader() == "a" })
	schedulers["b"] = b.scheduler("|b")
	for round := range 2 {
		more(shared.Soak(7, 40))
		begin, some := over(), r.IntN(4)
		b.wait("some have run", func() bool { return over() > begin+some })
		paused := b.leader()
		p := schedulers[paused].c.Process
		if err := p.Signal(syscall.SIGSTOP); err != nil {
			b.Fatal(err)
		}
		b.wait("the other leads", func() bool { c.tend(); return b.leader() != paused })
		begin = over()
		more(shared.Soak(4, 10))
		b.wait("the other schedules", func() bool { return over() > begin+2 })
		if err := p.Signal(syscall.SIGCONT); err != nil {
			b.Fatal(err)
		}
		begin = over()
		more(shared.Soak(8, 50)) // there is much to do for both
		b.wait(fmt.Sprintf("more have run since the one that slept in round %d woke", round), func() bool {
			return over() > begin+shared.Soak(6, 40)
		})
		c.finish()
		if c.made != wanted {
			b.Fatalf("%d pods were made for %d: some were made to leave", c.made, wanted)
		}
	}
	for _, p := range b.pods() {
		if slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool {
			return c.Type == v1.DisruptionTarget
		}) {
			b.Errorf("pod %s was made to leave: %v", p.Name, p.Status.Conditions)
		}
	}
	b.Logf("%d pods; at most %d of %d GPUs in use; the guard began again %d times", wanted, g.most, 8*len(names),
		g.lists)
	for _, p := range schedulers {
		p.kill()
	}
}

// A leader is stopped right before it binds a gang, and wakes when its successor has given the same GPUs to another:
// what it was about to write is not written.
func testWoken(b *bench) {
	b.eights("n1", "n2")
	if err := b.c.CoordinationV1().Leases("default").DeleteCollection(b.ctx, metav1.DeleteOptions{},
		metav1.ListOptions{}); err != nil {
		b.Fatal(err)
	}
	first := b.scheduler("kube-binding:1:stop|first")
	b.wait("the first leads", func() bool { return b.leader() == "first" })
	c := b.crew()
	c.add("late", 2, 8, map[string]string{runs: "200ms"})
	c.tend()
	b.wait("the first is stopped", func() bool { return stopped(b, first.c.Process.Pid) })
	soon := c.add("soon", 2, 8, map[string]string{LabelTier: "critical"})
	c.tend()
	second := b.scheduler("|second")
	b.wait("the successor has given away all GPUs", func() bool { return b.holding("soon") == 2 })
	if n := b.holding("late"); n != 0 {
		b.Fatalf("%d pods were bound before their scheduler was stopped", n)
	}
	if err := first.c.Process.Signal(syscall.SIGCONT); err != nil {
		b.Fatal(err)
	}
	retry.Pause(b.ctx, 500*time.Millisecond) // in which it would write
	second.kill()
	b.wait("the first leads again", func() bool { return b.leader() == "first" })
	if waits, runs := b.holding("late"), b.holding("soon"); waits != 0 || runs != 2 {
		b.Errorf("%d pods of the gang that waits are bound, and %d of the gang that runs", waits, runs)
	}
	soon.dropped = true
	c.finish()
	if c.made != 4 {
		b.Errorf("%d pods were made for 4: some were made to leave", c.made)
	}
	first.kill()
}

// stopped reports whether a process is stopped by a signal.
func stopped(b *bench, pid int) bool {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	return strings.HasPrefix(rest, "T")
}
