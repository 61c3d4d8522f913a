package traffic

import (
	"fmt"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/local/dscp"
	"github.com/muster-gpu/muster/network"
)

// What a job says of its traffic is a claim: one that understates it gains a class. So what its groups send is counted,
// over spans of several iterations, and believed where it is Factor times as much as the claim allows at most, in each
// of the last spans: a checkpoint that is written over the network is over before that.
const (
	Factor    = 1.5
	spans     = 3
	shortSpan = 10 * time.Second
	longSpan  = 5 * time.Minute
	perSpan   = 5 // iterations
)

// Claim is what a job says of its traffic, and what was counted of it. The zero value knows nothing.
type Claim struct {
	Bytes   int64 // that each rank transmits in an iteration, as the job says
	Counted int64 // ... as counted, if that is believed instead; 0: the claim is
	rates   []float64
	since   time.Time
	sent    []uint64 // by task, at that time
	card    Card     // at that time; Alone: up to now
	mixed   bool     // in the last span something was sent by RDMA, perhaps by others
}

// Card is what the machine's network card sent by RDMA. The kernel counts that for the card, not for jobs.
type Card struct {
	Sent   uint64 // bytes
	Counts bool   // it has such a counter
	Alone  bool   // no other job runs that may have sent it
}

// Sample takes what the job's tasks and the card sent up to now, while an iteration is believed to take so long; true:
// it is known of enough spans for Judge.
func (c *Claim) Sample(now time.Time, tasks []dscp.State, card Card, takes time.Duration) bool {
	sent := make([]uint64, len(tasks))
	c.card.Alone = c.card.Alone && card.Alone
	continues := len(c.sent) == len(tasks)
	for i, s := range tasks {
		if !s.Counted || s.Err != nil {
			c.sent = nil
			return false
		}
		sent[i] = s.Sent
		continues = continues && sent[i] >= c.sent[i]
	}
	took := now.Sub(c.since)
	switch {
	case !continues: // another run of the job, or the first sample
		c.rates = nil
	case took < min(max(shortSpan, perSpan*takes), longSpan):
		return false
	default:
		c.rates = append(c.rates, float64(c.busiest(tasks, card))/took.Seconds())
		c.rates = c.rates[max(0, len(c.rates)-spans):]
		c.mixed = card.Counts && card.Sent != c.card.Sent && !c.card.Alone
	}
	c.since, c.sent, c.card = now, sent, card
	return len(c.rates) == spans
}

// busiest is what one host sent at least since the last sample. Tasks with the machine's own network are one host; a
// task with one of its own may be a host by itself. The card's is that of one host, if it is the machine's own.
func (c *Claim) busiest(tasks []dscp.State, card Card) uint64 {
	alone, together := uint64(0), uint64(0)
	if c.card.Counts && c.card.Alone && card.Counts && card.Sent >= c.card.Sent {
		together = card.Sent - c.card.Sent
	}
	for i, s := range tasks {
		if d := s.Sent - c.sent[i]; s.Spaces > 1 {
			alone = max(alone, d)
		} else {
			together += d
		}
	}
	return max(alone, together)
}

// Judge compares what was counted with what is believed: the traffic between so many hosts, of which an iteration takes
// at least so long. It reports whether something else is to be believed from now on (Counted, or else Bytes).
func (c *Claim) Judge(believed cluster.Traffic, alone time.Duration, hosts int) bool {
	if c.Counted == 0 {
		c.Bytes = believed.Bytes
	}
	sends := network.Sends(believed, hosts)
	if sends <= 0 || c.Bytes <= 0 {
		return false
	}
	// As it is believed to transmit more, its iterations are believed to take longer: the next judgement comes closer.
	bytes := slices.Min(c.rates) * alone.Seconds() * float64(believed.Bytes) / float64(sends)
	before := c.Counted
	if c.Counted = int64(min(bytes, cluster.MaxTrafficBytes)); float64(c.Counted) < Factor*float64(c.Bytes) {
		c.Counted = 0
	}
	return c.Counted != before
}

// Believed is what each rank is believed to transmit in an iteration, in bytes.
func (c *Claim) Believed() int64 { return max(c.Bytes, c.Counted) }

// Text says what was counted, or why it was not; "": nothing else than what the job says.
func (c *Claim) Text() string {
	switch {
	case c.Counted == 0 && c.mixed:
		return "over RDMA it is not counted: the card counts for all jobs that run here"
	case c.Counted == 0:
		return ""
	}
	return fmt.Sprintf("it sends %.3g MB/s at least: %.2g times what it says (%.3g MB an iteration) allows",
		slices.Min(c.rates)/1e6, float64(c.Counted)/float64(c.Bytes), float64(c.Bytes)/1e6)
}
