package report

import (
	"math"
	"math/bits"
	"slices"
	"strconv"

	"github.com/muster-gpu/muster/cluster"
)

// Bounds of a page's data for each run.
const (
	maxQuantiles = 512 // points of a distribution
	maxQueueBins = 512 // points of a queue's curve
)

// curve is a list of numbers, written to four digits.
type curve []float64

// MarshalJSON writes the numbers without exponents, to four digits.
func (c curve) MarshalJSON() ([]byte, error) {
	b := make([]byte, 0, 2+6*len(c))
	b = append(b, '[')
	for i, v := range c {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendFloat(b, digits(v), 'f', -1, 64)
	}
	return append(b, ']'), nil
}

// digits rounds to four significant digits.
func digits(v float64) float64 {
	if v == 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0
	}
	if math.Abs(v) >= 1000 {
		return math.Round(v)
	}
	f := math.Pow(10, 3-math.Floor(math.Log10(math.Abs(v))))
	if math.IsInf(f, 0) {
		return 0
	}
	return math.Round(v*f) / f
}

// page is the data of the HTML report. Times are seconds of the run.
type page struct {
	Title    string       `json:"title"`
	Trace    string       `json:"trace"`
	Cluster  string       `json:"cluster"`
	Epoch    int64        `json:"epoch"`
	Capacity float64      `json:"capacity"` // GPUs
	Figures  []pageFigure `json:"figures"`
	Queues   []string     `json:"queues"`
	Runs     []pageRun    `json:"runs"`
	Picks    []pick       `json:"picks,omitempty"` // runs that are shown first; none: all
	Unlike   string       `json:"unlike,omitempty"`
}

type pageFigure struct {
	Key    string `json:"key"`
	Group  string `json:"group"`
	Label  string `json:"label"`
	Short  string `json:"short"`
	Unit   string `json:"unit"`
	Better int8   `json:"better"`
	Help   string `json:"help"`
}

type pageRun struct {
	Label    string      `json:"label"`
	Policy   string      `json:"policy"`
	Placer   string      `json:"placer"`
	Backfill string      `json:"backfill"`
	Traffic  string      `json:"traffic,omitempty"`
	Links    []LinkLoad  `json:"links,omitempty"` // of the network, the busiest first
	Services []Service   `json:"services,omitempty"`
	Hash     string      `json:"hash"`
	Note     string      `json:"note"`
	Values   []*float64  `json:"values"` // per figure; null: undefined
	Texts    []string    `json:"texts"`
	Best     []bool      `json:"best"`
	Series   pageSeries  `json:"series"`
	JCT      pageDist    `json:"jct"`
	Delay    pageDist    `json:"delay"`
	Queues   []pageQueue `json:"queues"`
	Nodes    []pageNode  `json:"nodes,omitempty"`
	Jobs     []pageJob   `json:"jobs,omitempty"`
	Spans    [][6]int64  `json:"spans,omitempty"` // index of the job, node, first GPU, GPUs, from ms, to ms
}

// pageSeries holds means over bins, in GPUs and jobs; the first bin is number
// First, the last ends at End at the latest.
type pageSeries struct {
	Width   float64 `json:"width"`
	First   int     `json:"first"`
	End     float64 `json:"end"`
	Alloc   curve   `json:"alloc"`
	Busy    curve   `json:"busy"`
	Pending curve   `json:"pending"`
	Running curve   `json:"running"`
	Demand  curve   `json:"demand"`
	Split   curve   `json:"split"`
	Useless curve   `json:"useless"`
	Free    curve   `json:"free"`
}

// pageDist is a distribution: Q has its quantiles in equal steps of rank, or all of its values; Of
// is the number of jobs that should have the figure.
type pageDist struct {
	N  int   `json:"n"`
	Of int   `json:"of"`
	Q  curve `json:"q"`
}

type pageQueue struct {
	Name  int     `json:"name"` // index in the page's list
	Owed  float64 `json:"owed"` // GPUs
	Jobs  int     `json:"jobs"`
	Width float64 `json:"width"`
	First int     `json:"first"`
	Use   curve   `json:"use"` // GPUs
}

type pageNode struct {
	Name string `json:"name"`
	GPUs int    `json:"gpus"`
}

type pageJob struct {
	Name    string  `json:"name"`
	User    string  `json:"user,omitempty"`
	Queue   int     `json:"queue"`
	GPUs    int     `json:"gpus"`
	Share   int     `json:"share,omitempty"` // milli-GPU of each device, if not whole
	Submit  float64 `json:"submit"`
	Waited  float64 `json:"waited"`
	Stops   int     `json:"stops,omitempty"`
	Outcome string  `json:"outcome"`
}

func newPage(title string, runs []Run, sums []Summary) *page {
	p := &page{Title: title, Figures: []pageFigure{}, Queues: []string{}, Runs: make([]pageRun, len(sums)),
		Picks: picks(sums), Unlike: unlike(sums)}
	figs := shown(figures(), sums)
	names := labels(sums)
	marks := make([][]bool, len(figs))
	for i := range figs {
		f := &figs[i]
		marks[i] = best(f, sums)
		p.Figures = append(p.Figures, pageFigure{Key: f.key, Group: f.group, Label: f.label, Short: f.short,
			Unit: unitNames[f.unit], Better: f.better, Help: f.help})
	}
	for k := range sums {
		s, r := &sums[k], &p.Runs[k]
		*r = pageRun{Label: names[k], Policy: s.Policy, Placer: s.Placer, Backfill: s.Backfill,
			Traffic: s.Traffic, Hash: s.Hash, Note: note(s), Queues: []pageQueue{}}
		for i := range figs {
			var value *float64
			if v, ok := figs[i].get(s); ok && !math.IsNaN(v) && !math.IsInf(v, 0) {
				value = &v
			}
			r.Values, r.Texts, r.Best = append(r.Values, value), append(r.Texts, figs[i].show(s)),
				append(r.Best, marks[i][k])
		}
	}
	queues := map[string]int{}
	for k := range min(len(runs), len(sums)) {
		p.add(&p.Runs[k], &runs[k], queues)
	}
	return p
}

// add fills in a run's data besides its figures.
func (p *page) add(to *pageRun, r *Run, queues map[string]int) {
	if p.Capacity == 0 {
		p.Trace, p.Cluster, p.Epoch, p.Capacity = r.Trace, r.Cluster, r.Epoch, float64(r.Capacity)/1000
	}
	id := make([]int, len(r.Queues))
	for i, name := range r.Queues {
		if name == "" {
			name = "(no queue)"
		}
		n, ok := queues[name]
		if !ok {
			n = len(p.Queues)
			queues[name] = n
			p.Queues = append(p.Queues, name)
		}
		id[i] = n
	}
	to.Series = r.pageSeries()
	to.JCT, to.Delay = r.pageDists()
	to.Queues = r.pageQueues(id)
	to.Links, to.Services = r.Links, r.Services
	r.pageSpans(to, id)
}

// bin returns how long the run was in bin i of a width, in seconds.
func (r *Run) bin(i int, width float64) (cover float64) {
	from, to := float64(i)*width, float64(i+1)*width
	if r.Last != cluster.Never && r.Last > 0 {
		to = min(to, r.Last.Sub(0).Seconds())
	}
	return max(to-from, 1e-3)
}

func (r *Run) firstBin() int {
	if r.First == cluster.Never || r.Series.Width <= 0 {
		return 0
	}
	return max(0, min(int(r.First/cluster.Time(r.Series.Width)), len(r.Series.Bins)))
}

func (r *Run) pageSeries() pageSeries {
	w := r.Series.Width.Seconds()
	s := pageSeries{Width: w, First: r.firstBin(), End: float64(len(r.Series.Bins)) * w}
	if r.Last > 0 && r.Last != cluster.Never {
		s.End = min(s.End, r.Last.Sub(0).Seconds())
	}
	for i := s.First; i < len(r.Series.Bins); i++ {
		b, c := &r.Series.Bins[i], r.bin(i, w)
		s.Alloc = append(s.Alloc, b.Alloc/c/1000)
		s.Busy = append(s.Busy, b.Busy/c/1000)
		s.Pending = append(s.Pending, b.Pending/c)
		s.Running = append(s.Running, b.Running/c)
		s.Demand = append(s.Demand, b.Demand/c/1000)
		s.Split = append(s.Split, b.Split/c/1000)
		s.Useless = append(s.Useless, b.Useless/c/1000)
		s.Free = append(s.Free, b.Free/c/1000)
	}
	return s
}

func (r *Run) pageDists() (jct, delay pageDist) {
	var ends, waits []float64
	for i := range r.Records {
		rec := &r.Records[i]
		if rec.Outcome == Rejected {
			continue
		}
		delay.Of++
		if rec.FirstStart != cluster.Never {
			waits = append(waits, rec.Waited.Seconds())
		}
		switch rec.Outcome {
		case Completed, Failed:
			ends = append(ends, rec.End.Sub(rec.Submit).Seconds())
			jct.Of++
		case Unfinished, Lost:
			jct.Of++
		}
	}
	jct.N, delay.N = len(ends), len(waits)
	jct.Q, delay.Q = quantiles(ends), quantiles(waits)
	return jct, delay
}

// quantiles thins sorted values to the nearest ranks of equal steps; the last is the maximum.
func quantiles(v []float64) curve {
	slices.Sort(v)
	if len(v) <= maxQuantiles {
		return v
	}
	out := make(curve, maxQuantiles)
	for i := range out {
		out[i] = v[((i+1)*len(v)+maxQuantiles-1)/maxQuantiles-1]
	}
	return out
}

func (r *Run) pageQueues(id []int) []pageQueue {
	factor := 1
	for (len(r.Series.Bins)+factor-1)/factor > maxQueueBins {
		factor *= 2
	}
	width := r.Series.Width.Seconds() * float64(factor)
	first := r.firstBin() / factor
	out := make([]pageQueue, len(r.Queues))
	for q := range out {
		out[q] = pageQueue{Name: id[q], Width: width, First: first}
		if q < len(r.Owed) {
			out[q].Owed = float64(r.Owed[q]) / 1000
		}
		for i := first * factor; i < len(r.Series.Bins); i += factor {
			sum := 0.0
			for k := i; k < min(i+factor, len(r.Series.Bins)); k++ {
				if b := &r.Series.Bins[k]; q < len(b.Queues) {
					sum += b.Queues[q]
				}
			}
			out[q].Use = append(out[q].Use, sum/r.bin(i/factor, width)/1000)
		}
	}
	for i := range r.Records {
		if q := int(r.Records[i].Queue); q >= 0 && q < len(out) {
			out[q].Jobs++
		}
	}
	return out
}

// pageSpans adds the data of the Gantt strips: neighbouring GPUs become one bar.
func (r *Run) pageSpans(to *pageRun, id []int) {
	if len(r.Spans) == 0 {
		return
	}
	for i, name := range r.Nodes {
		to.Nodes = append(to.Nodes, pageNode{name, r.GPUs[i]})
	}
	at := map[cluster.JobID]int64{}
	for i := range r.Spans {
		s := &r.Spans[i]
		n, ok := at[s.Job]
		if !ok {
			n = int64(len(to.Jobs))
			at[s.Job] = n
			to.Jobs = append(to.Jobs, r.pageJob(s, id))
		}
		until := s.To
		if until == cluster.Never {
			until = r.Last
		}
		for mask := s.GPUs; mask != 0; {
			first := bits.TrailingZeros64(mask)
			count := bits.TrailingZeros64(^(mask >> first))
			to.Spans = append(to.Spans,
				[6]int64{n, int64(s.Node), int64(first), int64(count), s.From.Sub(0).Milliseconds(),
					until.Sub(0).Milliseconds()})
			if first+count >= 64 {
				break
			}
			mask &^= (1<<count - 1) << first
		}
	}
}

func (r *Run) pageJob(s *Span, id []int) pageJob {
	rec, j := &r.Records[s.Job], r.Jobs[s.Job]
	out := pageJob{Name: j.Name, User: j.User, GPUs: int(rec.GPUs), Submit: rec.Submit.Sub(0).Seconds(),
		Waited: rec.Waited.Seconds(), Stops: int(rec.Preemptions + rec.Losses), Outcome: rec.Outcome.String()}
	if out.Name == "" {
		out.Name = "job " + strconv.Itoa(int(s.Job))
	}
	if s.Share > 0 && cluster.Milli(s.Share) < cluster.Whole {
		out.Share = int(s.Share)
	}
	if q := int(rec.Queue); q >= 0 && q < len(id) {
		out.Queue = id[q]
	}
	return out
}
