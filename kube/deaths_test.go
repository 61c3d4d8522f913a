package kube

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/internal/controlplane"
	"github.com/muster-gpu/muster/internal/shared"
	"github.com/muster-gpu/muster/kube/retry"
	"github.com/muster-gpu/muster/kube/terms"
)

// process is a scheduler that is a process of its own.
type process struct {
	b *bench
	c *exec.Cmd
}

// scheduler starts a scheduler as a process: its crash point, and after a "|" as
// who it takes part in the election of a leader.
func (b *bench) scheduler(point string) *process {
	b.Helper()
	c := exec.Command(os.Args[0], "-test.run=^$")
	c.Env = b.environ(point)
	c.Stderr = b.log
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		b.Fatal(err)
	}
	p := &process{b, c}
	b.Cleanup(func() { _ = c.Process.Kill() })
	return p
}

// wait waits until it killed itself.
func (p *process) wait() {
	p.b.Helper()
	t := time.AfterFunc(4*time.Minute, func() {
		p.b.Error("the scheduler did not come to its crash point")
		_ = p.c.Process.Kill()
	})
	defer t.Stop()
	err := p.c.Wait()
	if ws, ok := p.c.ProcessState.Sys().(syscall.WaitStatus); !ok || !ws.Signaled() {
		p.b.Fatalf("the scheduler was to be killed and ended by itself: %v", err)
	}
}

func (p *process) kill() {
	p.b.Helper()
	_ = p.c.Process.Kill()
	p.wait()
}

// A random load, on nodes that come and go, under schedulers that are killed at
// random: half at an instant, half at a named place. MUSTER_SEED is the first
// seed; MUSTER_SOAK says how many follow.
func testDeaths(b *bench) {
	first := uint64(1)
	if text := os.Getenv("MUSTER_SEED"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		first = n
	}
	var sum tally
	for seed := first; seed < first+uint64(shared.Soaking(b, 1)) && !b.Failed(); seed++ {
		b.sub(fmt.Sprintf("seed-%d", seed), func(b *bench) { b.deaths(rand.New(rand.NewPCG(seed, 4)), &sum) })
	}
	b.Logf("%+v", sum)
}

// tally is what a soak went through.
type tally struct {
	Gangs, Wanted, Made    int // pods that were asked for, pods that were made
	Deaths, Points, Flaps  int // deaths, and those of them at a named place
	InPart, Dropped, Lists int // deaths that left a gang bound in part; gangs that their owners deleted
}

// deaths plays one seed.
func (b *bench) deaths(r *rand.Rand, sum *tally) {
	names := []string{"n1", "n2", "n3", "n4"}
	g := b.eights(names...)
	c := b.crew()
	if b.moves {
		c.owner = b.trainer("crew")
	}
	tiers := []string{"best-effort", "standard", "critical"}
	more := func() {
		size := 1 + r.IntN(8)
		says := map[string]string{LabelTier: tiers[r.IntN(3)], runs: fmt.Sprintf("%dms", 100+r.IntN(700)),
			"!" + AnnotationLoss: []string{terms.LossRequeue, terms.LossRepair}[r.IntN(2)]}
		gpus := 1 + r.IntN(3)
		if b.moves { // what leaves halves of nodes, and what needs whole ones
			size, gpus, says[LabelTier], says["!"+AnnotationMovable] = 1+r.IntN(2), 1+r.IntN(8), "standard", "true"
			says[runs] = fmt.Sprintf("%dms", 1000+r.IntN(3000))
		}
		t := c.add(fmt.Sprintf("g%d", len(c.list)), size, gpus, says)
		sum.Gangs++
		sum.Wanted += t.size
	}
	life := 1
	if b.moves {
		life = 3
	}
	for range life*4 + r.IntN(4) {
		more()
	}
	for range 3 {
		point := ""
		if r.IntN(2) == 0 {
			point = fmt.Sprintf("%s:%d", CrashPoints[r.IntN(2)], 1+r.IntN(12))
			if b.moves && r.IntN(2) == 0 {
				point = fmt.Sprintf("kube-moving:%d", 1+r.IntN(3))
			}
			sum.Points++
		}
		p := b.scheduler(point)
		end := make(chan struct{})
		go func() {
			_ = p.c.Wait()
			close(end)
		}()
		t := time.NewTimer(time.Duration(life*(300+r.IntN(1200))) * time.Millisecond)
		for dead := false; !dead; {
			c.tend()
			switch r.IntN(life * 12) {
			case 0:
				b.flap(names[r.IntN(len(names))], r.IntN(3))
				sum.Flaps++
			case 1:
				if t := c.list[r.IntN(len(c.list))]; !t.done && !t.dropped {
					t.dropped = true
					sum.Dropped++
				}
			case 2:
				more()
			}
			select {
			case <-end:
				dead = true
			case <-t.C:
				_ = p.c.Process.Kill()
				<-end
				dead = true
			case <-time.After(30 * time.Millisecond):
			}
		}
		t.Stop()
		sum.Deaths++
		sum.InPart += b.partly(c)
	}
	last := b.scheduler("")
	c.finish()
	last.kill()
	sum.Made += c.made
	sum.Lists += g.lists
}

// partly counts gangs that are bound in part, none of whose pods is over.
func (b *bench) partly(c *crew) (n int) {
	for _, t := range c.list {
		if k := b.holding(t.name); !t.done && !t.dropped && k > 0 && k < t.size {
			n++
		}
	}
	return min(n, 1)
}

// Ten thousand pods, half of them in gangs of eight, for 1,600 GPUs on 200 nodes:
// all run to their end. It takes minutes, so only with MUSTER_SOAK.
func testMany(b *bench) {
	if shared.Soak(true, false) {
		b.Skip("10,000 pods take minutes: set MUSTER_SOAK")
	}
	const gangs, singles, nodes = 625, 5000, 200
	var names []string
	for i := range nodes {
		names = append(names, fmt.Sprintf("n%03d", i))
	}
	g := b.eights(names...)
	begin := time.Now()
	work := make(chan []*v1.Pod)
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for pods := range work {
				for _, p := range pods {
					if _, err := b.c.CoreV1().Pods(p.Namespace).Create(b.ctx, p, metav1.CreateOptions{}); err != nil {
						b.Error(err)
					}
				}
			}
		})
	}
	_, stop := b.schedule(func(o *Options) { o.Log = slog.New(slog.DiscardHandler) })
	defer stop()
	for i := range gangs {
		work <- controlplane.Gang(fmt.Sprintf("g%d", i), 8, 1+i%4, map[string]string{runs: "3s"})
		for k := range singles / gangs {
			work <- []*v1.Pod{controlplane.Pod(fmt.Sprintf("s%d-%d", i, k), 1+k%2, map[string]string{runs: "2s"})}
		}
	}
	close(work)
	workers.Wait()
	made := time.Since(begin)
	for n := -1; n < g.over(); { // as long as something comes to its end
		n = g.over()
		b.wait(fmt.Sprintf("more than %d pods are over", n), func() bool {
			return g.over() > n || g.over() == 8*gangs+singles
		})
		if g.over() == 8*gangs+singles {
			break
		}
		retry.Pause(b.ctx, time.Second)
	}
	b.Logf("%d pods, made in %.0f s, over after %.0f s; at most %d of %d GPUs in use; the guard began again %d times",
		g.over(), made.Seconds(), time.Since(begin).Seconds(), g.most, 8*nodes, g.lists)
}
