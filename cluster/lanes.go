package cluster

import (
	"fmt"
	"slices"
)

// LaneOrder is how jobs that share a lane of a GPU take turns, iteration by iteration (Salus,
// MLSys'20). It is a rule of the simulator: on real machines the GPU decides how the jobs'
// processes take turns.
type LaneOrder uint8

// The orders.
const (
	NoLanes   LaneOrder = iota // whole GPUs have no lanes
	LaneFIFO                   // the earliest runs until it is done
	LaneSRTF                   // the job with the least remaining work
	LaneEqual                  // equal time for all
)

var laneOrders = []string{"", "fifo", "srtf", "fair"}

// ParseLaneOrder reads fifo, srtf or fair.
func ParseLaneOrder(s string) (LaneOrder, error) {
	if i := slices.Index(laneOrders, s); i > 0 {
		return LaneOrder(i), nil
	}
	return NoLanes, fmt.Errorf("%q: want one of %v", s, laneOrders[1:])
}

// Footprint is a job's need of a GPU's memory: permanently, and additionally during an iteration.
type Footprint struct{ Persistent, Ephemeral MiB }

// Footprint is the need on each of a request's whole GPUs; false: it does not state a memory size.
// What is not stated to be ephemeral is persistent.
func (r *Request) Footprint() (Footprint, bool) {
	if r.Memory == 0 {
		return Footprint{}, false
	}
	if r.Resident == 0 {
		return Footprint{Persistent: r.Memory}, true
	}
	return Footprint{r.Resident, r.Memory - r.Resident}, true
}

// Lanes assigns jobs, in this order, lanes of a GPU with the given memory, so that all persistent
// parts and all lanes together fit, and each lane is as large as the largest iteration of its jobs
// (Salus, MLSys'20): a lane of its own if possible; otherwise the smallest lane that is large
// enough; otherwise the lane that has to grow least. It returns each job's lane; false: some job
// has no room.
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
