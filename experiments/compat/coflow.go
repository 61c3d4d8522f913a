package compat

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-gpu/muster/network/traffic"
)

// Coflow is flows that are of use only together, on a switch whose ports carry one MB per unit of time.
type Coflow struct {
	ID      int
	Release int64 // milliseconds
	Weight  int64
	Flows   []CoflowPart
}

// CoflowPart is a flow from an ingress port to an egress port.
type CoflowPart struct {
	From, To int
	MB       int64
}

// ReadCoflows reads a file of coflows: a line `ports coflows`, then of each `id milliseconds weight sources source…
// destinations destination:mb…`, where every source sends so many MB to each destination.
func ReadCoflows(path string) (ports int, list []Coflow, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		words := numbers{left: strings.Fields(lines.Text())}
		if n == 1 {
			ports = words.next()
			continue
		}
		c := Coflow{ID: words.next(), Release: int64(words.next()), Weight: int64(words.next())}
		var sources, destinations, sizes []int
		for range words.next() {
			sources = append(sources, words.next())
		}
		for range words.next() {
			to, mb := words.pair()
			destinations, sizes = append(destinations, to), append(sizes, mb)
		}
		for _, from := range sources {
			for i, to := range destinations {
				c.Flows = append(c.Flows, CoflowPart{from, to, int64(sizes[i])})
				if max(from, to) >= ports {
					words.bad = true
				}
			}
		}
		if words.bad || len(words.left) > 0 {
			return 0, nil, fmt.Errorf("%s:%d: this is no coflow on %d ports", path, n, ports)
		}
		list = append(list, c)
	}
	return ports, list, lines.Err()
}

// numbers are the words of a line.
type numbers struct {
	left []string
	bad  bool
}

func (w *numbers) word() string {
	if len(w.left) == 0 {
		w.bad = true
		return ""
	}
	s := w.left[0]
	w.left = w.left[1:]
	return s
}

func (w *numbers) number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		w.bad = true
		return 0
	}
	return n
}

func (w *numbers) next() int { return w.number(w.word()) }

func (w *numbers) pair() (a, b int) {
	x, y, _ := strings.Cut(w.word(), ":")
	return w.number(x), w.number(y)
}

// CoflowOrders are the orders of the coflow simulator that was published with Sincronia (github.com/sincronia-coflow),
// and three that compare with them: FIFO, W-SEBF, and BSSI with weights.
var CoflowOrders = []string{"PD", "BSSI", "BSSI, weights", "SEBF", "W-SEBF", "TCF", "SCF", "NCF", "FIFO"}

// waiting is a coflow that is not over, as orders see it.
type waiting struct {
	*Coflow
	at    int            // in the file
	runs  [][]CoflowPart // flows that are left; those of a run come from one port
	ended bool           // a flow has
}

// sending is a flow that has its ports.
type sending struct {
	f *CoflowPart
	c *waiting
}

// remaining is what a coflow has left on each port: ingress ports first.
func (c *waiting) remaining(ports int) []int64 {
	load := make([]int64, 2*ports)
	for _, run := range c.runs {
		for _, f := range run {
			load[f.From] += f.MB
			load[ports+f.To] += f.MB
		}
	}
	return load
}

// width is the smaller of the numbers of sources and of destinations of the whole coflow.
func (c *Coflow) width() int {
	from, to := map[int]bool{}, map[int]bool{}
	for _, f := range c.Flows {
		from[f.From], to[f.To] = true, true
	}
	return min(len(from), len(to))
}

// sizes are the largest flow that is left, and all of them together.
func (c *waiting) sizes() (largest, total int64) {
	for _, run := range c.runs {
		for _, f := range run {
			largest, total = max(largest, f.MB), total+f.MB
		}
	}
	return largest, total
}

// orderCoflows sorts coflows by the rules of an order.
func orderCoflows(order string, ports int, list []*waiting) []*waiting {
	switch order {
	case "PD":
		return publishedOrder(ports, list)
	case "BSSI", "BSSI, weights":
		load, weights := make([][]float64, 2*ports), make([]float64, len(list))
		for p := range load {
			load[p] = make([]float64, len(list))
		}
		for i, c := range list {
			if weights[i] = 1; order != "BSSI" {
				weights[i] = float64(c.Weight)
			}
			for p, mb := range c.remaining(ports) {
				load[p][i] = float64(mb)
			}
		}
		sorted := make([]*waiting, len(list))
		for at, i := range traffic.BSSI(load, weights) {
			sorted[at] = list[i]
		}
		return sorted
	}
	key := map[string]func(c *waiting) float64{
		"SEBF": func(c *waiting) float64 { return float64(slices.Max(c.remaining(ports))) },
		"W-SEBF": func(c *waiting) float64 {
			return float64(slices.Max(c.remaining(ports))) / float64(c.Weight)
		},
		"TCF": func(c *waiting) float64 {
			_, total := c.sizes()
			return float64(total)
		},
		"SCF": func(c *waiting) float64 {
			largest, _ := c.sizes()
			return float64(largest)
		},
		"NCF":  func(c *waiting) float64 { return float64(c.width()) },
		"FIFO": func(c *waiting) float64 { return float64(c.Release) },
	}[order]
	keys := map[*waiting]float64{}
	for _, c := range list {
		keys[c] = key(c)
	}
	return slices.SortedStableFunc(slices.Values(list), func(a, b *waiting) int {
		return cmp.Or(cmp.Compare(keys[a], keys[b]), cmp.Compare(a.at, b.at))
	})
}

// publishedOrder is BSSI in the arithmetic of the published simulator: it keeps the dual variables, in 32 bits, not the
// weights.
func publishedOrder(ports int, list []*waiting) []*waiting {
	load := make([][]int64, len(list))
	sums := make([]int64, 2*ports)
	for i, c := range list {
		load[i] = c.remaining(ports)
		for p, mb := range load[i] {
			sums[p] += mb
		}
	}
	sorted := make([]*waiting, len(list))
	var chosen []int // ports
	var duals []float32
	for k := len(list) - 1; k >= 0; k-- {
		port := 0
		for p := range sums {
			if sums[p] > sums[port] {
				port = p
			}
		}
		last, least := -1, float32(1e15)
		for i := range list {
			if load[i] == nil {
				continue
			}
			s := float32(0)
			for q, p := range chosen {
				s += float32(load[i][p]) * duals[q]
			}
			if term := (1 - s) / float32(load[i][port]); term < least {
				last, least = i, term
			}
		}
		chosen, duals = append(chosen, port), append(duals, least)
		sorted[k] = list[last]
		for p, mb := range load[last] {
			sums[p] -= mb
		}
		load[last] = nil
	}
	return sorted
}

// CoflowTimes are the completion times of coflows, in the order of the file.
type CoflowTimes struct {
	CCT      []float64 // from the release
	Makespan float64
	isolated []float64
	weights  []float64
}

func (t *CoflowTimes) weighted(f func(i int) float64) (sum, weights float64) {
	for i := range t.CCT {
		sum += f(i)
		weights += t.weights[i]
	}
	return sum, weights
}

// Sum is the sum of the completion times.
func (t *CoflowTimes) Sum() float64 {
	sum, _ := t.weighted(func(i int) float64 { return t.CCT[i] })
	return sum
}

// Weighted is the sum of completion times times weights, and the sum of the weights.
func (t *CoflowTimes) Weighted() (sum, weights float64) {
	return t.weighted(func(i int) float64 { return t.CCT[i] * t.weights[i] })
}

// Slowdown is the mean of completion times over what a coflow takes alone.
func (t *CoflowTimes) Slowdown() float64 {
	sum, _ := t.weighted(func(i int) float64 { return t.CCT[i] / t.isolated[i] })
	return sum / float64(len(t.CCT))
}

// Percentile is by nearest rank.
func (t *CoflowTimes) Percentile(p float64) float64 {
	sorted := slices.Sorted(slices.Values(t.CCT))
	return sorted[int(math.Ceil(p/100*float64(len(sorted))))-1]
}

func newCoflowTimes(ports int, list []Coflow) (t CoflowTimes, all []*waiting) {
	t.CCT = make([]float64, len(list))
	for i := range list {
		w := &waiting{Coflow: &list[i], at: i}
		for k, f := range list[i].Flows {
			if k == 0 || list[i].Flows[k-1].From != f.From {
				w.runs = append(w.runs, nil)
			}
			last := &w.runs[len(w.runs)-1]
			*last = append(*last, f)
		}
		all = append(all, w)
		t.isolated = append(t.isolated, float64(slices.Max(w.remaining(ports))))
		t.weights = append(t.weights, float64(list[i].Weight))
	}
	return t, all
}

// GreedyCoflows plays coflows whose flows take what is left of their ports, in order. With rate 0 all are released at
// once and ordered once; otherwise a coflow is released at its time, ports carry so many MB a second, and what is left
// is ordered again at each release and each completion.
func GreedyCoflows(order string, ports int, list []Coflow, rate int64) CoflowTimes {
	t, later := newCoflowTimes(ports, list)
	release := func(c *waiting) int64 { return c.Release * rate / 1000 }
	slices.SortStableFunc(later, func(a, b *waiting) int { return cmp.Compare(release(a), release(b)) })
	var open []*waiting
	from, to := make([]bool, ports), make([]bool, ports)
	now := int64(0)
	for changed := false; len(open)+len(later) > 0; {
		for len(later) > 0 && release(later[0]) <= now {
			open, later, changed = append(open, later[0]), later[1:], true
		}
		if changed && (rate > 0 || now == 0) {
			slices.SortFunc(open, func(a, b *waiting) int { return cmp.Compare(a.at, b.at) })
			open = orderCoflows(order, ports, open)
		}
		changed = false
		clear(from)
		clear(to)
		step := int64(math.MaxInt64)
		if len(later) > 0 {
			step = release(later[0]) - now
		}
		var running []sending
		for _, c := range open {
			for _, run := range c.runs {
				if from[run[0].From] {
					continue
				}
				for i := range run {
					if f := &run[i]; !to[f.To] {
						from[f.From], to[f.To] = true, true
						running = append(running, sending{f, c})
						step = min(step, f.MB)
						break
					}
				}
			}
			if len(running) == ports {
				break
			}
		}
		now += step
		for _, r := range running {
			if r.f.MB -= step; r.f.MB == 0 {
				r.c.ended = true
			}
		}
		open = slices.DeleteFunc(open, func(c *waiting) bool {
			if !c.ended {
				return false
			}
			c.ended = false
			for i := range c.runs {
				c.runs[i] = slices.DeleteFunc(c.runs[i], func(f CoflowPart) bool { return f.MB == 0 })
			}
			c.runs = slices.DeleteFunc(c.runs, func(run []CoflowPart) bool { return len(run) == 0 })
			if len(c.runs) > 0 {
				return false
			}
			t.CCT[c.at], changed = float64(now-release(c)), true
			return true
		})
	}
	t.Makespan = float64(now)
	return t
}

// Thresholds of the published simulator.
const (
	noMB   = 1.0 / (1 << 20)
	noRate = 1.0 / (1 << 40)
)

// MADDCoflows plays coflows, all released at once, with Varys' rates as that simulator computes them: the flows of a
// coflow end together, and what remains of the ports is dealt out in two rounds.
func MADDCoflows(order string, ports int, list []Coflow) CoflowTimes {
	t, all := newCoflowTimes(ports, list)
	type part struct {
		from, to   int
		left, rate float64
	}
	type coflow struct {
		at      int
		flows   []part
		skipped bool
	}
	var open []*coflow
	for _, c := range orderCoflows(order, ports, all) {
		o := &coflow{at: c.at}
		for _, f := range c.Flows {
			o.flows = append(o.flows, part{from: f.From, to: ports + f.To, left: float64(f.MB)})
		}
		open = append(open, o)
	}
	free, load, count := make([]float64, 2*ports), make([]float64, 2*ports), make([]float64, 2*ports)
	take := func(f *part, rate float64) { free[f.from], free[f.to] = free[f.from]-rate, free[f.to]-rate }
	for len(open) > 0 {
		for p := range free {
			free[p], count[p] = 1, 0
		}
		step := math.Inf(1)
		for _, c := range open {
			clear(load)
			for _, f := range c.flows {
				load[f.from] += f.left
				load[f.to] += f.left
			}
			longest := 0.0
			c.skipped = false
			for p, mb := range load {
				switch {
				case mb <= noMB:
				case free[p] < noRate:
					c.skipped = true
				default:
					longest = max(longest, mb/free[p])
				}
			}
			for i := range c.flows {
				f := &c.flows[i]
				if f.rate = 0; !c.skipped {
					f.rate = min(f.left/longest, free[f.from], free[f.to])
					take(f, f.rate)
				}
			}
			if !c.skipped {
				step = min(step, longest)
			}
		}
		each := func(do func(c *coflow, f *part)) {
			for _, c := range open {
				for i := range c.flows {
					do(c, &c.flows[i])
				}
			}
		}
		eligible := func(c *coflow, f *part) bool { return c.skipped && free[f.from] > noRate && free[f.to] > noRate }
		each(func(c *coflow, f *part) {
			if eligible(c, f) {
				count[f.from]++
				count[f.to]++
			}
		})
		each(func(c *coflow, f *part) {
			if eligible(c, f) {
				f.rate = min(free[f.from]/count[f.from], free[f.to]/count[f.to])
			}
		})
		each(func(c *coflow, f *part) {
			if c.skipped {
				take(f, f.rate)
			}
		})
		each(func(c *coflow, f *part) {
			if more := min(free[f.from], free[f.to]); more > 0 {
				f.rate += more
				take(f, more)
			}
		})
		t.Makespan += step
		open = slices.DeleteFunc(open, func(c *coflow) bool {
			for i := range c.flows {
				f := &c.flows[i]
				f.left -= min(f.left, f.rate*step)
			}
			c.flows = slices.DeleteFunc(c.flows, func(f part) bool { return f.left < noMB })
			if len(c.flows) > 0 {
				return false
			}
			t.CCT[c.at] = t.Makespan
			return true
		})
	}
	return t
}
