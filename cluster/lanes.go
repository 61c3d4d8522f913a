package cluster

import (
	"fmt"
	"slices"
)

// LaneOrder is how jobs that share a lane of a GPU take turns, iteration by iteration
// (Salus, MLSys'20). It is a rule of the simulator: on real machines the jobs' processes take
// turns as the GPU has it.
type LaneOrder uint8

// The orders.
const (
	NoLanes   LaneOrder = iota // whole GPUs have no lanes
	LaneFIFO                   // who came first runs until it is done
	LaneSRTF                   // who has least left
	LaneEqual                  // all get as much time
)

var laneOrders = []string{"", "fifo", "srtf", "fair"}

// ParseLaneOrder reads fifo, srtf or fair.
func ParseLaneOrder(s string) (LaneOrder, error) {
	if i := slices.Index(laneOrders, s); i > 0 {
		return LaneOrder(i), nil
	}
	return NoLanes, fmt.Errorf("%q: want one of %v", s, laneOrders[1:])
}

// Footprint is what a job needs of a GPU's memory: all the time, and during an
// iteration besides.
type Footprint struct{ Persistent, Ephemeral MiB }

// Footprint is that of each of a request's whole GPUs; false: it does not say how much
// memory it needs. What is not said to be ephemeral is persistent.
func (r *Request) Footprint() (Footprint, bool) {
	if r.Memory == 0 {
		return Footprint{}, false
	}
	if r.Resident == 0 {
		return Footprint{Persistent: r.Memory}, true
	}
	return Footprint{r.Resident, r.Memory - r.Resident}, true
}

// Lanes gives jobs, in this order, lanes of a GPU with so much memory, so that what all
// need always and all lanes together fit, and each lane is as large as what the largest
// of its jobs needs in an iteration (Salus, MLSys'20): a lane of its own; else the smallest lane
// that is large enough; else one that grows, by as little as can be. It returns each
// job's lane; false: somebody has no room.
func Lanes(jobs []Footprint, memory MiB) (lane []int, ok bool) {
	var sizes []MiB
	used := MiB(0) // persistent parts and lanes
	for _, j := range jobs {
		best := -1
		for l, size := range sizes {
			grows := max(0, j.Ephemeral-size)
			if used+j.Persistent+grows > memory {
				continue
			}
			if best < 0 {
				best = l
				continue
			}
			least := max(0, j.Ephemeral-sizes[best])
			if grows < least || grows == least && size < sizes[best] {
				best = l
			}
		}
		if used+j.Persistent+j.Ephemeral <= memory {
			best = len(sizes)
			sizes = append(sizes, 0)
		}
		if best < 0 {
			return nil, false
		}
		grows := max(0, j.Ephemeral-sizes[best])
		sizes[best] += grows
		used += j.Persistent + grows
		lane = append(lane, best)
	}
	return lane, true
}
