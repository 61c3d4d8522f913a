package requests

import (
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/random"
)

// Arrivals says how a drawn stream arrives. The rate over time is Rate, or what Steps say, times the daily cycle, the
// spikes, and the state of the burst process; the gaps have the coefficient of variation CV relative to that rate.
type Arrivals struct {
	Rate   float64       // requests per second
	Steps  []Step        // the rate from an instant on; before the first it is Rate
	CV     float64       // coefficient of variation of the gaps: 0 even, 1 Poisson; gamma distributed
	Daily  float64       // amplitude of the daily cycle relative to the rate, 0 to 1
	Peak   time.Duration // time of day at which the cycle is highest
	Spikes []Spike
	Bursts Bursts
	From   cluster.Time
	For    time.Duration // the stream ends From + For
	Prompt Tokens        // tokens of prompts; the zero value: none
	Output Tokens
	Seed   uint64
}

// Step is a change of the rate.
type Step struct {
	At   time.Duration // since the start of the stream
	Rate float64       // requests per second
}

// Spike multiplies the rate for a time.
type Spike struct {
	At, For time.Duration // since the start of the stream
	Times   float64
}

// Bursts is a Markov-modulated process with two states: ordinary, and a burst in which the rate is Times as high. The
// time in each state is exponentially distributed. The zero value: no bursts.
type Bursts struct {
	Times   float64
	For     time.Duration // mean length of a burst
	Between time.Duration // mean time between bursts
}

// Tokens is a log-normal distribution of token counts; Sigma 0: always the median.
type Tokens struct {
	Median float64
	Sigma  float64
	Most   int32 // 0: 1<<20
}

func (t *Tokens) draw(r *rand.Rand) int32 {
	if t.Median == 0 {
		return 0
	}
	most := t.Most
	if most == 0 {
		most = mostTokens
	}
	n := t.Median
	if t.Sigma > 0 {
		n *= math.Exp(t.Sigma * r.NormFloat64())
	}
	return int32(max(1, min(math.Round(n), float64(most))))
}

const (
	mostTokens = 1 << 20
	mostRate   = 1e9 // requests per second
	never      = cluster.Never
)

// Check says what is wrong with the parameters.
func (a *Arrivals) Check() error {
	rate := func(v float64) bool { return v >= 0 && v <= mostRate }
	switch {
	case !rate(a.Rate):
		return fmt.Errorf("rate: %g is not a number of requests per second from 0 to %g", a.Rate, mostRate)
	case !(a.CV >= 0 && a.CV <= 50):
		return fmt.Errorf("cv: %g is not from 0 (even) to 50; 1 is Poisson", a.CV)
	case !(a.Daily >= 0 && a.Daily <= 1):
		return fmt.Errorf("daily: %g is not from 0 to 1", a.Daily)
	case a.Peak < 0 || a.Peak >= day:
		return fmt.Errorf("peak: %s is not a time of day", cluster.FormatDuration(a.Peak))
	case a.For <= 0:
		return errors.New("for: how long the requests come is missing")
	case a.From < 0:
		return errors.New("from: must not be negative")
	}
	for i, s := range a.Steps {
		if s.At < 0 || !rate(s.Rate) || i > 0 && s.At <= a.Steps[i-1].At {
			return fmt.Errorf("steps[%d]: times must rise, and rates be from 0 to %g requests per second", i, mostRate)
		}
	}
	for i, s := range a.Spikes {
		if s.At < 0 || s.For <= 0 || !(s.Times >= 0 && s.Times <= 1e6) {
			return fmt.Errorf("spikes[%d]: needs at, for and times (0 to 1e6)", i)
		}
	}
	if b := a.Bursts; b != (Bursts{}) && (!(b.Times >= 0 && b.Times <= 1e6) || b.For <= 0 || b.Between <= 0) {
		return errors.New("bursts: needs times (0 to 1e6), for and between")
	}
	for _, t := range []*Tokens{&a.Prompt, &a.Output} {
		if !(t.Median == 0 || t.Median >= 1 && t.Median <= mostTokens) || !(t.Sigma >= 0 && t.Sigma <= 10) ||
			t.Most < 0 {
			return fmt.Errorf("tokens: the median is from 1 to %d, sigma from 0 to 10", mostTokens)
		}
	}
	return nil
}

const (
	day   = 24 * time.Hour
	piece = time.Minute // the daily cycle is constant within
)

// Draw is a stream drawn from arrivals that Check accepts; service is the number that its requests get.
func Draw(a *Arrivals, service int32) Stream {
	d := &drawn{a: *a, service: service, rng: rand.New(rand.NewPCG(a.Seed, 0x72657173)), at: float64(a.From)}
	d.end = float64(a.From.Add(a.For))
	if a.Bursts != (Bursts{}) {
		d.change = d.at + d.rng.ExpFloat64()*float64(a.Bursts.Between)
	} else {
		d.change = float64(never)
	}
	d.segment()
	return d
}

// drawn advances in the time of the rate: a gap of the unit process is passed once the integral of the rate has
// reached it. The rate is constant within a segment.
type drawn struct {
	a       Arrivals
	service int32
	rng     *rand.Rand
	at, end float64 // nanoseconds
	until   float64 // the segment's end
	rate    float64 // requests per second in the segment
	burst   bool
	change  float64 // when the burst process changes its state
}

// segment begins the segment at d.at.
func (d *drawn) segment() {
	since := time.Duration(d.at) - time.Duration(d.a.From)
	until, rate := d.end, d.a.Rate
	upTo := func(at time.Duration) {
		if at > since {
			until = min(until, float64(d.a.From)+float64(at))
		}
	}
	i, found := slices.BinarySearchFunc(d.a.Steps, since, func(s Step, t time.Duration) int { return int(s.At - t) })
	if found {
		i++
	}
	if i > 0 {
		rate = d.a.Steps[i-1].Rate
	}
	if i < len(d.a.Steps) {
		upTo(d.a.Steps[i].At)
	}
	if d.a.Daily > 0 {
		minute := time.Duration(d.at) / piece * piece
		phase := 2 * math.Pi * float64(minute+piece/2-d.a.Peak) / float64(day)
		rate *= 1 + d.a.Daily*math.Cos(phase)
		until = min(until, float64(minute+piece))
	}
	for i := range d.a.Spikes {
		s := &d.a.Spikes[i]
		upTo(s.At)
		upTo(s.At + s.For)
		if since >= s.At && since < s.At+s.For {
			rate *= s.Times
		}
	}
	for d.change <= d.at {
		mean := d.a.Bursts.For
		if d.burst {
			mean = d.a.Bursts.Between
		}
		d.burst = !d.burst
		d.change += d.rng.ExpFloat64() * float64(mean)
	}
	if d.burst {
		rate *= d.a.Bursts.Times
	}
	d.until, d.rate = max(min(until, d.change), d.at+1), rate
}

func (d *drawn) Next(r *Request) error {
	left := 1.0
	if d.a.CV > 0 {
		left = random.Gamma(d.rng, d.a.CV)
	}
	for d.at < d.end {
		if passed := d.rate * (d.until - d.at) / 1e9; passed < left {
			left -= passed
			d.at = d.until
			d.segment()
			continue
		}
		if d.at += left * 1e9 / d.rate; d.at >= d.end {
			break
		}
		*r = Request{At: cluster.Time(math.Round(d.at)), Service: d.service, Prompt: d.a.Prompt.draw(d.rng),
			Output: d.a.Output.draw(d.rng)}
		return nil
	}
	return io.EOF
}
