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
	card Card
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
		if s.c.Sample(s.now, s.task, s.card, s.alone()) && s.c.Judge(s.t, s.alone(), 2) {
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

// What a job sends by RDMA passes no counter of its own: the card's is the job's while no other job runs.
func TestClaimsOverRDMA(t *testing.T) {
	const full = 2e6 / .2 // bytes per second
	job := func() *sends {
		return &sends{now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
			t:    cluster.Traffic{Pattern: cluster.Ring, Bytes: 200_000, Compute: 100 * time.Millisecond},
			task: []dscp.State{{Counted: true, Spaces: 1}, {Counted: true, Spaces: 1}},
			card: Card{Counts: true, Alone: true}}
	}
	send := func(s *sends, span time.Duration, aloneAt func(second int) bool) {
		for i := range int(span / time.Second) {
			s.card.Sent += full
			s.card.Alone = aloneAt(i)
			s.send([]float64{0, 0}, time.Second)
		}
	}
	alone := job()
	send(alone, 10*time.Minute, func(int) bool { return true })
	if got := alone.t.Bytes; got < 1_900_000 || got > 2_010_000 {
		t.Errorf("%d bytes are believed of a job that has the card alone: %s", got, alone.c.Text())
	}
	mixed := job()
	send(mixed, 10*time.Minute, func(second int) bool { return second%8 > 0 }) // in no span from beginning to end
	if text := mixed.c.Text(); mixed.t.Bytes != 200_000 || !strings.Contains(text, "RDMA") {
		t.Errorf("%d bytes are believed of one that has not: %q", mixed.t.Bytes, text)
	}
}

// What a card sends by RDMA is counted with what its interface sends: on Ethernet beside it, on InfiniBand it is part
// of it. The folder is like the kernel's (sysfs-class-net, sysfs-class-infiniband), made by hand.
func TestCard(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name            string
		out, back, sent uint64
		counts          bool
	}{{"roce0", 1000 + 4*500, 2000 + 4*700, 4 * 500, true}, {"ib1", 4 * 900, 4 * 800, 4 * 900, true},
		{"eth0", 10, 20, 0, false}} {
		p := Port{Interface: c.name, Class: "testdata/class"}
		p.Sample(at)
		if len(p.last) != 1 || p.last[0].out != c.out || p.last[0].back != c.back {
			t.Errorf("%s: %+v", c.name, p.last)
		}
		if card := p.Card(); card.Sent != c.sent || card.Counts != c.counts {
			t.Errorf("%s: %+v", c.name, card)
		}
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
	lo.last = []reading{{at: at, out: 1000}, {at: at.Add(2 * time.Second), out: 3000, back: 500}}
	if out, back, _ := lo.Rates(); out != 8000 || back != 2000 {
		t.Errorf("%v and %v bit/s", out, back)
	}
}
