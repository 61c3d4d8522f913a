package flow

import (
	"encoding/binary"
	"time"

	"github.com/muster-gpu/muster/network"
)

// Cache remembers what Steady found. The zero value is empty.
type Cache struct {
	known map[string][]time.Duration
}

// mostKnown bounds the mixes of jobs that are remembered; then all are forgotten.
const mostKnown = 1 << 15

// Steady is Steady, of which the result must not be written.
func (c *Cache) Steady(links network.Links, jobs []Job) []time.Duration {
	var key []byte
	for i := range jobs {
		j := &jobs[i]
		for _, v := range []int64{int64(j.Compute), int64(j.Release), int64(j.Class), int64(j.First), int64(j.Shift),
			int64(j.Period), int64(len(j.On))} {
			key = binary.AppendVarint(key, v)
		}
		for _, b := range j.On {
			key = binary.AppendVarint(key, int64(b.Link))
			key = binary.AppendVarint(key, b.Bytes)
		}
	}
	list, known := c.known[string(key)]
	if !known {
		list = Steady(links, jobs)
		if c.known == nil || len(c.known) >= mostKnown {
			c.known = map[string][]time.Duration{}
		}
		c.known[string(key)] = list
	}
	return list
}
