package kube

import (
	"fmt"
	"strings"
	"time"

	"github.com/muster-gpu/muster/internal/controlplane"
)

// Pods that each need one GPU come without end and state no run times, so a gang of four can be promised nothing and
// each of them passes it. After hold_after the node is held for the gang: those that run end, none starts, and the
// gang does, while more of them wait than ever. The last of those that run stays until the gang was told so: what is
// told is looked at less and less often, and later still where the machine is busy.
func testHold(b *bench) {
	b.nodes(4, "n1")
	b.guard(map[string]int64{"n1": 4})
	c := b.crew()
	_, stop := b.schedule(func(o *Options) { o.Rules.Backfill, o.Rules.HoldAfter = "easy", 4*time.Second })
	defer stop()
	const most = 100 // singles that come after the gang, after which it has starved
	singles, open := 0, 0
	feed := func() {
		open = 0
		for _, t := range c.list {
			if !t.done {
				open++
			}
		}
		for ; open < 8; open++ {
			singles++
			c.add(fmt.Sprintf("s%d", singles), 1, 1,
				map[string]string{runs: fmt.Sprintf("%dms", 3000+137*(singles%20))})
		}
		c.tend()
	}
	running := func() (n int) {
		for _, p := range b.pods() {
			if p.Labels[LabelGang] != "gang" && live(&p) {
				n++
			}
		}
		return n
	}
	stays := controlplane.Pod("stays", 1, nil)
	b.create(stays)
	b.wait("all GPUs are in use, one of them by the pod that stays", func() bool {
		feed()
		return running() == 4 && live(b.pod(stays.Name))
	})
	gang := b.crew()
	gang.add("gang", 4, 1, map[string]string{runs: "3s"}) // for long enough to be seen where a look takes a second
	gang.tend()
	said, before := false, singles
	b.wait("the gang is told that GPUs are being held for it", func() bool {
		feed()
		said = strings.Contains(condition(b.pod("gang-0")).Message, "are being held for it")
		return said || singles > before+most
	})
	b.gone(stays)
	b.wait("the gang runs", func() bool {
		feed()
		return b.holding("gang") == 4 || singles > before+most
	})
	if !said || b.holding("gang") != 4 {
		b.Fatalf("%d singles came before the gang and %d after it; it was told that GPUs were held: %v", before,
			singles-before, said)
	}
	if waiting := open - running(); waiting < 4 {
		b.Errorf("%d singles wait beside the gang", waiting)
	}
	gang.finish()
	c.finish()
}
