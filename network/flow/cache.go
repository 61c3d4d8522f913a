package flow

import (
	"encoding/binary"
	"time"

	"github.com/muster-gpu/muster/network"
)

// Cache remembers what Steady and Glance found. The zero value is empty.
type Cache struct {
	steady, glance map[string][]time.Duration
	bytes          int              // of the keys
	begun          map[string]*play // by the last Glance
}

// mostBytes bounds the mixes of jobs that are remembered; then all are forgotten.
const mostBytes = 32 << 20

// Steady is Steady, of which the result must not be written.
func (c *Cache) Steady(links network.Links, jobs []Job) []time.Duration {
	return apart(links, jobs, func(links network.Links, group []Job, on [][]network.Bytes) []time.Duration {
		return c.play(links, group, on, mostEvents)
	})
}

// Glance is about what Steady would find, in a fraction of the time where more than Few jobs share links, and exactly
// that elsewhere. What follows from a glance does not depend on what is remembered.
func (c *Cache) Glance(links network.Links, jobs []Job) []time.Duration {
	clear(c.begun)
	return apart(links, jobs, func(links network.Links, group []Job, on [][]network.Bytes) []time.Duration {
		if len(group) <= Few {
			return c.play(links, group, on, mostEvents)
		}
		each := glanced
		if len(group) > Many {
			each = glancedOfMany
		}
		return c.play(links, group, on, min(max(leastGlance, each*len(group)), mostEvents/2))
	})
}

// Up to Few jobs are played as long by Glance as by Steady, more of them for a number of events each, and of more than
// Many for fewer: together they show sooner how fast they are.
const (
	Few           = 8
	Many          = 48
	glanced       = 16
	glancedOfMany = 4
	leastGlance   = 400
)

func (c *Cache) play(links network.Links, jobs []Job, on [][]network.Bytes, events int) []time.Duration {
	var bytes []byte
	for i := range jobs {
		j := &jobs[i]
		for _, v := range []int64{int64(j.Compute), int64(j.Release), int64(j.Class), int64(j.First), int64(j.Shift),
			int64(j.Period), int64(len(j.On))} {
			bytes = binary.AppendVarint(bytes, v)
		}
		for _, b := range j.On {
			bytes = binary.AppendVarint(bytes, int64(b.Link))
			bytes = binary.AppendVarint(bytes, b.Bytes)
		}
	}
	if c.steady == nil || c.bytes > mostBytes {
		c.steady, c.glance, c.begun, c.bytes = map[string][]time.Duration{}, map[string][]time.Duration{},
			map[string]*play{}, 0
	}
	known := c.steady
	if events < mostEvents {
		known = c.glance
	}
	if list := known[string(bytes)]; list != nil {
		return list
	}
	key := string(bytes)
	p := c.begun[key]
	if p == nil {
		p = newPlay(links, jobs, on)
	}
	list := p.until(events)
	known[key] = list
	c.bytes += len(key) + 64
	if events < mostEvents {
		c.begun[key] = p
	}
	return list
}
