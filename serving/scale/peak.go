package scale

import (
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// peak is the highest rate of the last while: what is started is not stopped at once.
type peak struct {
	window time.Duration
	recent []needed
}

// needed is what a period needed: the rate that replicas have to cover.
type needed struct {
	at   cluster.Time
	rate float64
}

// highest adds the rate that is needed now, and returns the most that was needed within the window.
func (p *peak) highest(now cluster.Time, rate float64) float64 {
	keep := p.recent[:0]
	most := rate
	for _, n := range p.recent {
		if now.Sub(n.at) < p.window {
			keep = append(keep, n)
			most = max(most, n.rate)
		}
	}
	p.recent = append(keep, needed{now, rate})
	return most
}
