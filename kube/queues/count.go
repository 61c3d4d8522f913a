package queues

import (
	"cmp"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// Count is what is counted of a queue's gangs.
type Count struct {
	Running, Pending int
	GPUs             cluster.Milli // that pending ones ask for
	Oldest           time.Time     // when the first of their pods was made; zero: none is pending
}

// Counts are those of queues, by name.
type Counts map[string]*Count

func (c Counts) of(name string) *Count {
	if c[name] == nil {
		c[name] = &Count{}
	}
	return c[name]
}

// Add counts a gang of a queue, "": the default one; what it asks for, and since when it is there, counts while it is
// pending.
func (c Counts) Add(queue string, pending bool, gpus cluster.Milli, since time.Time) {
	one := &Count{Running: 1}
	if pending {
		one = &Count{Pending: 1, GPUs: gpus, Oldest: since}
	}
	c.of(cmp.Or(queue, "default")).add(one)
}

func (c *Count) add(o *Count) {
	c.Running += o.Running
	c.Pending += o.Pending
	c.GPUs += o.GPUs
	if o.Pending > 0 && (c.Oldest.IsZero() || o.Oldest.Before(c.Oldest)) {
		c.Oldest = o.Oldest
	}
}

// Sum counts for each queue of a tree also those below it.
func (c Counts) Sum(t *Tree) Counts {
	sum := Counts{}
	for name, own := range c {
		for _, at := range t.Path(name) {
			sum.of(at).add(own)
		}
	}
	return sum
}
