package flow

import (
	"encoding/binary"
	"time"

	"github.com/muster-gpu/muster/network"
)

// Cache remembers what Steady found. The zero value is empty.
type Cache struct {
	known map[string][]time.Duration
	bytes int // of the keys
}

// mostBytes bounds the mixes of jobs that are remembered; then all are forgotten.
const mostBytes = 32 << 20

// Steady is Steady, of which the result must not be written.
func (c *Cache) Steady(links network.Links, jobs []Job) []time.Duration {
	return apart(links, jobs, c.pattern)
}

func (c *Cache) pattern(links network.Links, jobs []Job) []time.Duration {
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
		list = pattern(links, jobs)
		if c.bytes += len(key) + 64; c.known == nil || c.bytes > mostBytes {
			c.known, c.bytes = map[string][]time.Duration{}, 0
		}
		c.known[string(key)] = list
	}
	return list
}
