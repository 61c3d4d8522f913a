package kube

import (
	"fmt"
	"strings"
	"time"
)

// Pods that each need one GPU come without end and state no run times, so a gang of eight can be promised nothing and
// each of them passes it. After hold_after the node is held for the gang: those that run end, none starts, and the
// gang does, while more of them wait than ever.
func testHold(b *bench) {
	b.eights("n1")
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
		for ; open < 14; open++ {
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
	b.wait("all GPUs are in use", func() bool { feed(); return running() == 8 })
	gang := b.crew()
	gang.add("gang", 8, 1, map[string]string{runs: "3s"}) // for long enough to be seen where a look takes a second
	gang.tend()
	said, before := false, singles
	b.wait("the gang runs", func() bool {
		feed()
		said = said || strings.Contains(condition(b.pod("gang-0")).Message, "are being held for it")
		return b.holding("gang") == 8 || singles > before+most
	})
	if b.holding("gang") != 8 {
		b.Fatalf("%d singles came before the gang and %d after it, which has not started (GPUs were held: %v)", before,
			singles-before, said)
	}
	if !said {
		b.Error("nothing said that GPUs were being held for the gang")
	}
	if waiting := open - running(); waiting < 8 {
		b.Errorf("%d singles wait beside the gang", waiting)
	}
	gang.finish()
	c.finish()
}
