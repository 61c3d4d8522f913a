package traffic

import (
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/local/dscp"
)

// sends has a job send bytes per second for a time, as tasks with the machine's own network or with their own, and
// judges it; its link carries 20 MB/s.
type sends struct {
	c    Claim
	t    cluster.Traffic // as it is believed
	now  time.Time
	task []dscp.State
}

func (s *sends) alone() time.Duration {
	return s.t.Compute + time.Duration(float64(s.t.Bytes)/20e6*float64(time.Second))
}

func (s *sends) send(rate []float64, span time.Duration) {
	for range int(span / time.Second) {
		s.now = s.now.Add(time.Second)
		for i := range rate {
			s.task[i].Sent += uint64(rate[i])
		}
		if s.c.Sample(s.now, s.task, s.alone()) && s.c.Judge(s.t, s.alone(), 2) {
			s.t.Bytes = s.c.Believed()
		}
	}
}

// A job of two hosts that computes 100 ms and sends 2 MB says that it sends a tenth of that: what it sends is believed
// instead, until it sends what it says. One that tells the truth, or that sends more for a while only, is believed.
func TestClaims(t *testing.T) {
	begin := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	job := func(says int64, spaces int) *sends {
		return &sends{now: begin,
			t:    cluster.Traffic{Pattern: cluster.Ring, Bytes: says, Compute: 100 * time.Millisecond},
			task: []dscp.State{{Counted: true, Spaces: spaces}, {Counted: true, Spaces: spaces}}}
	}
	const full = 2e6 / .2 // bytes per second
	liar := job(200_000, 2)
	liar.send([]float64{full, full}, time.Minute)
	if liar.c.Counted < 900_000 {
		t.Errorf("after a minute %d bytes are believed", liar.c.Counted)
	}
	liar.send([]float64{full, full}, 10*time.Minute)
	text := liar.c.Text()
	if got := liar.t.Bytes; got < 1_900_000 || got > 2_010_000 || !strings.Contains(text, "10 times what it says") {
		t.Errorf("%d bytes are believed: %s", got, text)
	}
	liar.send([]float64{200_000 / .11, 200_000 / .11}, 10*time.Minute)
	if liar.t.Bytes != 200_000 || liar.c.Text() != "" {
		t.Errorf("once it sends what it says, %d bytes are believed: %s", liar.t.Bytes, liar.c.Text())
	}
	honest := job(2_000_000, 2)
	honest.send([]float64{1.1 * full, 1.1 * full}, 10*time.Minute)
	honest.send([]float64{20e6, 0}, 25*time.Second) // a checkpoint
	honest.send([]float64{full, full}, 10*time.Minute)
	if honest.c.Counted != 0 || honest.t.Bytes != 2_000_000 {
		t.Errorf("of one that tells the truth %d bytes are believed", honest.t.Bytes)
	}
	together := job(200_000, 1) // both tasks are on this host
	together.send([]float64{full / 2, full / 2}, 10*time.Minute)
	if got := together.t.Bytes; got < 1_900_000 || got > 2_010_000 {
		t.Errorf("of two tasks of one host %d bytes are believed", got)
	}
	uncounted := job(200_000, 1)
	uncounted.task[1].Counted = false
	uncounted.send([]float64{full, full}, 10*time.Minute)
	if uncounted.c.Counted != 0 {
		t.Error("what is not counted is judged")
	}
}

// An interface's counters become rates.
func TestPort(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	lo, none := Port{Interface: "lo"}, Port{Interface: "none0"}
	for i := range 30 {
		lo.Sample(at.Add(time.Duration(i) * time.Second))
		none.Sample(at.Add(time.Duration(i) * time.Second))
	}
	if _, _, ok := lo.Rates(); !ok || len(lo.last) != 11 {
		t.Errorf("lo: %v, %d readings", ok, len(lo.last))
	}
	if _, _, ok := none.Rates(); ok {
		t.Error("an interface that is not there has rates")
	}
	lo.last = []reading{{at, 1000, 0}, {at.Add(2 * time.Second), 3000, 500}}
	if out, back, _ := lo.Rates(); out != 8000 || back != 2000 {
		t.Errorf("%v and %v bit/s", out, back)
	}
}
