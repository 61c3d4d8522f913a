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
	return apart(links, jobs, func(links network.Links, group []Job) []time.Duration {
		return c.play(links, group, mostEvents)
	})
}

// Glance is about what Steady would find, in a fraction of the time where more than Few jobs share links, and exactly
// that elsewhere. What follows from a glance does not depend on what is remembered.
func (c *Cache) Glance(links network.Links, jobs []Job) []time.Duration {
	clear(c.begun)
	return apart(links, jobs, func(links network.Links, group []Job) []time.Duration {
		if len(group) <= Few {
			return c.play(links, group, mostEvents)
		}
		return c.play(links, group, min(max(leastGlance, glanced*len(group)), mostEvents/2))
	})
}

// Up to Few jobs are played as long by Glance as by Steady, more of them for a number of events each.
const (
	Few         = 8
	glanced     = 16
	leastGlance = 400
)

func (c *Cache) play(links network.Links, jobs []Job, events int) []time.Duration {
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
		p = newPlay(links, jobs)
	}
	list := p.until(events)
	known[key] = list
	c.bytes += len(key) + 64
	if events < mostEvents {
		c.begun[key] = p
	}
	return list
}
