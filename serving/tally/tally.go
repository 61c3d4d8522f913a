// Package tally counts what becomes of requests: the same in the simulator, in the gateway, and in what scales
// services.
package tally

import (
	"encoding/json"
	"fmt"
	"math"
	"math/bits"
	"time"
)

// Tally counts what became of requests.
type Tally struct {
	Arrived  int64         `json:"arrived"`
	Answered int64         `json:"answered"`
	InTime   int64         `json:"in_time"` // answered within the goal
	Dropped  int64         `json:"dropped"` // because they could no longer be answered in time
	Refused  int64         `json:"refused"` // because too many waited
	Failed   int64         `json:"failed"`  // lost with their replica
	Batches  int64         `json:"batches"`
	Busy     time.Duration `json:"busy_ns"` // replicas computed, all together
	Latency  Histogram     `json:"latency"` // from arrival to answer, of answered requests
	// of language models
	Prompts     int64     `json:"prompt_tokens,omitempty"` // tokens of the prompts of answered requests
	Outputs     int64     `json:"answer_tokens,omitempty"` // of their answers
	Tokens      int64     `json:"tokens,omitempty"`        // that came out
	Preemptions int64     `json:"preemptions,omitempty"`
	TTFT        Histogram `json:"ttft,omitzero"` // from arrival to the first token
	// mean time of a token after the first, of answered requests with several
	TPOT Histogram `json:"tpot,omitzero"`
	ITL  Histogram `json:"itl,omitzero"` // between two tokens
}

// Answer counts an answer.
func (t *Tally) Answer(took time.Duration, inTime bool) {
	t.Answered++
	if inTime {
		t.InTime++
	}
	t.Latency.Add(took, 1)
}

// Merge adds what another counted.
func (h *Histogram) Merge(o *Histogram) {
	if len(h.buckets) < len(o.buckets) {
		h.buckets = append(h.buckets, make([]int64, len(o.buckets)-len(h.buckets))...)
	}
	for k, n := range o.buckets {
		h.buckets[k] += n
	}
	h.total += o.total
}

// Merge adds what another counted.
func (t *Tally) Merge(o *Tally) {
	t.Arrived += o.Arrived
	t.Answered += o.Answered
	t.InTime += o.InTime
	t.Dropped += o.Dropped
	t.Refused += o.Refused
	t.Failed += o.Failed
	t.Batches += o.Batches
	t.Busy += o.Busy
	t.Prompts += o.Prompts
	t.Outputs += o.Outputs
	t.Tokens += o.Tokens
	t.Preemptions += o.Preemptions
	t.Latency.Merge(&o.Latency)
	t.TTFT.Merge(&o.TTFT)
	t.TPOT.Merge(&o.TPOT)
	t.ITL.Merge(&o.ITL)
}

// Since returns what was counted after an earlier state of the same tally.
func (t *Tally) Since(was *Tally) Tally {
	d := Tally{Arrived: t.Arrived - was.Arrived, Answered: t.Answered - was.Answered, InTime: t.InTime - was.InTime,
		Dropped: t.Dropped - was.Dropped, Refused: t.Refused - was.Refused, Failed: t.Failed - was.Failed,
		Batches: t.Batches - was.Batches, Busy: t.Busy - was.Busy, Prompts: t.Prompts - was.Prompts,
		Outputs: t.Outputs - was.Outputs, Tokens: t.Tokens - was.Tokens, Preemptions: t.Preemptions - was.Preemptions}
	d.Latency, d.TTFT = t.Latency.since(&was.Latency), t.TTFT.since(&was.TTFT)
	d.TPOT, d.ITL = t.TPOT.since(&was.TPOT), t.ITL.since(&was.ITL)
	return d
}

// Missed is how many requests were not answered within the goal.
func (t *Tally) Missed() int64 { return t.Answered - t.InTime + t.Dropped + t.Refused + t.Failed }

// Attainment is the part of all requests that were answered within the goal; those that were dropped, refused or lost
// were not. 1 without requests.
func (t *Tally) Attainment() float64 {
	done := t.Answered + t.Dropped + t.Refused + t.Failed
	if done == 0 {
		return 1
	}
	return float64(t.InTime) / float64(done)
}

// Histogram counts durations in buckets that are at most 1/64 of their value wide.
type Histogram struct {
	buckets []int64
	total   int64
}

const finest = 6 // a power of two is divided into 2^finest buckets

func bucket(d time.Duration) int {
	v := uint64(max(d, 0))
	e := bits.Len64(v)
	if e <= finest+1 {
		return int(v)
	}
	shift := e - finest - 1
	return shift<<finest + int(v>>shift)
}

// upper is the largest duration of a bucket.
func upper(k int) time.Duration {
	if k < 2<<finest {
		return time.Duration(k)
	}
	shift := k>>finest - 1
	return time.Duration((int64(k-shift<<finest)+1)<<shift - 1)
}

// Add counts a duration n times.
func (h *Histogram) Add(d time.Duration, n int64) {
	h.count(bucket(d), n)
}

func (h *Histogram) count(k int, n int64) {
	if k >= len(h.buckets) {
		h.buckets = append(h.buckets, make([]int64, k+1-len(h.buckets))...)
	}
	h.buckets[k] += n
	h.total += n
}

// Quantile is the duration that a part of all does not exceed (nearest rank), to 1/64 above; 0 if there is none.
func (h *Histogram) Quantile(part float64) time.Duration {
	rank := max(1, int64(math.Ceil(part*float64(h.total))))
	for k, n := range h.buckets {
		if rank -= n; rank <= 0 {
			return upper(k)
		}
	}
	return 0
}

// Total is how many durations were counted.
func (h *Histogram) Total() int64 { return h.total }

// since returns what was counted after an earlier state of the same histogram.
func (h *Histogram) since(was *Histogram) (d Histogram) {
	d.buckets = append([]int64(nil), h.buckets...)
	for k, n := range was.buckets {
		if k < len(d.buckets) {
			d.buckets[k] -= n
		}
	}
	d.total = h.total - was.total
	return d
}

// MarshalJSON writes the filled buckets, each as its index and count.
func (h Histogram) MarshalJSON() ([]byte, error) {
	list := [][2]int64{}
	for k, n := range h.buckets {
		if n != 0 {
			list = append(list, [2]int64{int64(k), n})
		}
	}
	return json.Marshal(list)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (h *Histogram) UnmarshalJSON(data []byte) error {
	var list [][2]int64
	if err := json.Unmarshal(data, &list); err != nil {
		return err
	}
	*h = Histogram{}
	for _, x := range list {
		if x[0] < 0 || x[0] > int64(bucket(math.MaxInt64)) || x[1] < 0 {
			return fmt.Errorf("bucket %d with %d durations is none of a histogram", x[0], x[1])
		}
		h.count(int(x[0]), x[1])
	}
	return nil
}

func (h *Histogram) reset() {
	clear(h.buckets)
	h.total = 0
}

// Reset forgets what was counted, but keeps the memory.
func (t *Tally) Reset() {
	kept := *t
	*t = Tally{Latency: kept.Latency, TTFT: kept.TTFT, TPOT: kept.TPOT, ITL: kept.ITL}
	for _, h := range []*Histogram{&t.Latency, &t.TTFT, &t.TPOT, &t.ITL} {
		h.reset()
	}
}
