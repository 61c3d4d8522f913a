package trace

import (
	"bufio"
	"cmp"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The run time of a Pollux job at a fixed size, by the rules of the published simulator: measured
// time per step by placement, and progress per step from the gradient statistics of each epoch.

// polluxNode is the number of GPUs per node in the published measurements.
const polluxNode = 4

// polluxMaxLocal overrides the largest batch per GPU where the published simulator has a constant
// instead of the largest measured one.
var polluxMaxLocal = map[string]int{"yolov3": 8}

// polluxPoint is a measurement: batch per GPU, seconds per step, and the part
// of it spent synchronising.
type polluxPoint struct{ batch, step, sync float64 }

// polluxEpoch is the state after an epoch: progress in steps of the smallest
// batch size, and the gradient's squared norm and variance.
type polluxEpoch struct{ progress, sqr, variance float64 }

type polluxApp struct {
	placed   map[string][]polluxPoint // by placement ("24": 2 and 4 GPUs), by batch
	scaled   map[[2]int][]polluxPoint // by nodes and GPUs
	batches  []int                    // total batch sizes with statistics, ascending
	epochs   map[int][]polluxEpoch
	length   int // number of epochs of a whole training run
	maxLocal int
}

// readPolluxApp reads the measurements of one application.
func readPolluxApp(dir, app string) (*polluxApp, error) {
	if err := polluxName(app); err != nil {
		return nil, err
	}
	dir = filepath.Join(dir, app)
	a := &polluxApp{placed: map[string][]polluxPoint{}, scaled: map[[2]int][]polluxPoint{},
		epochs: map[int][]polluxEpoch{}}
	err := readSmall(filepath.Join(dir, "placements.csv"), func(t *table) {
		key := string(t.raw(t.col("placement")))
		p := t.polluxPoint()
		a.maxLocal = max(a.maxLocal, int(p.batch))
		a.placed[key] = append(a.placed[key], p)
	}, "placement", "local_bsz", "step_time", "sync_time")
	if err != nil {
		return nil, err
	}
	if n, ok := polluxMaxLocal[app]; ok {
		a.maxLocal = n
	}
	err = readSmall(filepath.Join(dir, "scalability.csv"), func(t *table) {
		key := [2]int{int(t.num(t.col("num_nodes"), 1, 1024)), int(t.num(t.col("num_replicas"), 1, 1<<16))}
		a.scaled[key] = append(a.scaled[key], t.polluxPoint())
	}, "num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time")
	if err != nil {
		return nil, err
	}
	byBatch := func(x, y polluxPoint) int { return cmp.Compare(x.batch, y.batch) }
	for _, p := range a.placed {
		slices.SortStableFunc(p, byBatch)
	}
	for _, p := range a.scaled {
		slices.SortStableFunc(p, byBatch)
	}
	return a, a.readEpochs(dir)
}

func (t *table) polluxPoint() polluxPoint {
	return polluxPoint{t.real(t.col("local_bsz"), 1, 1e9), t.real(t.col("step_time"), 1e-9, 1e9),
		t.real(t.col("sync_time"), 0, 1e9)}
}

// readEpochs reads validation-<batch>.csv.
func (a *polluxApp) readEpochs(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "validation-*.csv"))
	if err != nil {
		return err
	}
	for _, f := range files {
		n, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(filepath.Base(f), "validation-"), ".csv"))
		if err != nil || n < 1 {
			return fmt.Errorf("%s: the name must be validation-BATCHSIZE.csv", f)
		}
		err = readSmall(f, func(t *table) {
			a.epochs[n] = append(a.epochs[n], polluxEpoch{t.real(t.col("progress"), 0, 1e15),
				t.real(t.col("grad_sqr"), 0, math.MaxFloat64), t.real(t.col("grad_var"), 0, math.MaxFloat64)})
		}, "progress", "grad_sqr", "grad_var")
		if err != nil {
			return err
		}
		a.batches = append(a.batches, n)
		if a.length == 0 || len(a.epochs[n]) < a.length {
			a.length = len(a.epochs[n])
		}
	}
	slices.Sort(a.batches)
	if a.length == 0 || len(a.placed) == 0 {
		return fmt.Errorf("%s: no placements or no epochs measured", dir)
	}
	return nil
}

// readSmall reads a companion table, row by row.
func readSmall(path string, row func(t *table), need ...string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	b := newBuilder(path, "", bufio.NewReaderSize(f, headSize), Options{})
	t, err := b.table(',', need...)
	if err != nil {
		return err
	}
	for t.next() {
		if row(t); t.reason != "" {
			return b.bad(t.line, t.reason)
		}
	}
	return t.err
}

// run returns the training time on n GPUs with a total batch size, without starts and restarts.
func (a *polluxApp) run(n, batch int) (time.Duration, error) {
	least, most := a.batches[0], a.batches[len(a.batches)-1]
	if batch < least || batch > most {
		return 0, fmt.Errorf("a batch size from %d to %d", least, most)
	}
	local, accum := a.split(batch, n)
	total := n * local * (accum + 1)
	if local < 1 || total < least || total > most {
		return 0, fmt.Errorf("a batch size that %d GPUs can share between %d and %d", n, least, most)
	}
	step, sync, err := a.timing(n, float64(local))
	if err != nil {
		return 0, err
	}
	perStep := step + (step-sync)*float64(accum)
	scale := float64(total) / float64(least)
	seconds, done := 0.0, 0.0
	for e := range a.length {
		need := math.Inf(1)
		for _, b := range a.batches {
			need = min(need, a.epochs[b][e].progress)
		}
		sqr, variance := a.gradient(total, e)
		gain := (variance + sqr) / (variance/scale + sqr)
		seconds += (need - done) / (gain / perStep)
		done = need
	}
	if !(seconds >= 0 && seconds < 1e9) {
		return 0, fmt.Errorf("a batch size with usable measurements (the run time comes out as %g s)", seconds)
	}
	return time.Duration(math.Round(seconds) * float64(time.Second)), nil
}

// split divides a total batch over n GPUs: the batch per GPU and step, and the number of further
// steps accumulated before a synchronisation.
func (a *polluxApp) split(batch, n int) (local, accum int) {
	up := func(x float64) int { return int(math.Ceil(x - 1e-8)) }
	share := up(float64(batch) / float64(n))
	accum = up(float64(share)/float64(a.maxLocal)) - 1
	if n == 1 && batch > a.batches[0] {
		accum = max(accum, 1) // statistics need two samples
	}
	local = up(float64(share) / float64(accum+1))
	return min(local, a.batches[len(a.batches)-1]/(n*(accum+1))), accum
}

// gradient interpolates the statistics of an epoch between batch sizes.
func (a *polluxApp) gradient(batch, epoch int) (sqr, variance float64) {
	i, exact := slices.BinarySearch(a.batches, batch)
	hi := a.epochs[a.batches[i]][epoch]
	if exact {
		return hi.sqr, hi.variance
	}
	lo := a.epochs[a.batches[i-1]][epoch]
	x, y, b := float64(a.batches[i-1]), float64(a.batches[i]), float64(batch)
	mix := func(l, h float64) float64 { return ((b-x)*h + (y-b)*l) / (y - x) }
	return mix(lo.sqr, hi.sqr), mix(lo.variance, hi.variance)
}

// timing returns seconds per step and of synchronisation for n GPUs on as few nodes as possible: by
// placement up to four nodes, beyond that the nearest measured (nodes, GPUs).
func (a *polluxApp) timing(n int, local float64) (step, sync float64, err error) {
	key := strings.Repeat(strconv.Itoa(polluxNode), n/polluxNode)
	if rest := n % polluxNode; rest > 0 {
		key = strconv.Itoa(rest) + key // the smallest rotation comes first
	}
	points, ok := a.placed[key]
	if !ok {
		nodes, best := (n+polluxNode-1)/polluxNode, math.MaxInt
		for _, k := range slices.SortedFunc(maps.Keys(a.scaled), func(x, y [2]int) int {
			return slices.Compare(x[:], y[:])
		}) {
			// The number of GPUs matters first, then the number of nodes.
			if d := 1000*abs(k[1]-n) + abs(k[0]-nodes); d < best {
				best, points = d, a.scaled[k]
			}
		}
	}
	if len(points) < 2 {
		return 0, 0, fmt.Errorf("a size with measured step times, not %d GPUs", n)
	}
	i := 1
	for i < len(points)-1 && points[i].batch < local {
		i++
	}
	p, q := points[i-1], points[i]
	if q.batch == p.batch {
		return q.step, q.sync, nil
	}
	f := (local - p.batch) / (q.batch - p.batch)
	return p.step + (q.step-p.step)*f, p.sync + (q.sync-p.sync)*f, nil
}

func abs(x int) int { return max(x, -x) }
