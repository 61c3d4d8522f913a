package compat

import (
	"cmp"
	"compress/gzip"
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// PolluxApps holds the measurements of the applications in Pollux' workloads (Pollux' simulator,
// sections 1 to 4).
type PolluxApps map[string]*polluxApp // looked up only

// polluxEpochs is the number of epochs of each application's jobs, which are constants in that
// simulator.
var polluxEpochs = []struct {
	app    string
	epochs int
}{{"bert", 2}, {"cifar10", 100}, {"ncf", 10}, {"imagenet", 90}, {"deepspeech2", 80}, {"yolov3", 50}}

type polluxApp struct {
	epochs     int
	first, max int // smallest and largest measured batch
	leastLocal int // minimum per GPU ...
	mostLocal  int // ... maximum without accumulation
	placements map[string][]stepTime
	spatial    map[[2]int][]stepSpan // by nodes and GPUs, for at least five nodes
	batches    []epochs              // by batch size
}

// stepTime is the seconds per step, and those of waiting for other workers, with a number of
// samples per GPU.
type stepTime struct {
	local      int
	step, sync float64
}

type stepSpan struct{ a, b stepTime }

// epochs is the course of training with a batch size, epoch by epoch.
type epochs struct {
	size int
	rows []epochRow
}

type epochRow struct{ progress, sqr, variance, iteration float64 }

// ReadPolluxApps reads traces/APP/*.csv and spatial.csv.gz from a folder.
func ReadPolluxApps(dir string) (PolluxApps, error) {
	apps := PolluxApps{}
	for _, e := range polluxEpochs {
		a := &polluxApp{epochs: e.epochs, placements: map[string][]stepTime{}, spatial: map[[2]int][]stepSpan{}}
		if err := a.read(filepath.Join(dir, "traces", e.app)); err != nil {
			return nil, err
		}
		if e.app == "yolov3" {
			a.mostLocal = 8 // a constant in that simulator
		}
		apps[e.app] = a
	}
	rows, err := table(filepath.Join(dir, "spatial.csv.gz"), 1, "app", "nodes", "gpus", "b_first", "b_last",
		"step_first", "sync_first", "step_last", "sync_last")
	if err != nil {
		return nil, err
	}
	for _, r := range rows {
		a := apps[r.text[0]]
		if a == nil {
			return nil, fmt.Errorf("%s: unknown application %q", dir, r.text[0])
		}
		key := [2]int{int(r.n[1]), int(r.n[2])}
		a.spatial[key] = append(a.spatial[key],
			stepSpan{stepTime{int(r.n[3]), r.n[5], r.n[6]}, stepTime{int(r.n[4]), r.n[7], r.n[8]}})
	}
	return apps, nil
}

func (a *polluxApp) read(dir string) error {
	rows, err := table(filepath.Join(dir, "placements.csv"), 1, "placement", "local_bsz", "step_time", "sync_time")
	if err != nil {
		return err
	}
	slices.SortStableFunc(rows, func(a, b record) int { return cmp.Compare(a.n[1], b.n[1]) })
	for _, r := range rows {
		key := r.text[0]
		a.placements[key] = append(a.placements[key], stepTime{int(r.n[1]), r.n[2], r.n[3]})
		if a.mostLocal = max(a.mostLocal, int(r.n[1])); a.leastLocal == 0 || int(r.n[1]) < a.leastLocal {
			a.leastLocal = int(r.n[1])
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "validation-*.csv"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("%s: no validation-SIZE.csv", dir)
	}
	for _, f := range files {
		size, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(filepath.Base(f), "validation-"), ".csv"))
		if err != nil {
			return fmt.Errorf("%s: not a batch size in the name", f)
		}
		rows, err := table(f, 0, "progress", "grad_sqr", "grad_var", "iteration")
		if err != nil {
			return err
		}
		if len(rows) < a.epochs {
			return fmt.Errorf("%s: %d epochs, want %d", f, len(rows), a.epochs)
		}
		b := epochs{size: size}
		for _, r := range rows {
			b.rows = append(b.rows, epochRow{r.n[0], r.n[1], r.n[2], r.n[3]})
		}
		a.batches = append(a.batches, b)
	}
	slices.SortFunc(a.batches, func(x, y epochs) int { return x.size - y.size })
	a.first, a.max = a.batches[0].size, a.batches[len(a.batches)-1].size
	return nil
}

// record is the requested columns of a row, as text and as numbers.
type record struct {
	text []string
	n    []float64
}

// table reads columns of a CSV file by name; the first texts columns are text.
func table(path string, texts int, columns ...string) ([]record, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	in := io.Reader(f)
	if strings.HasSuffix(path, ".gz") {
		if in, err = gzip.NewReader(f); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	rows, err := csv.NewReader(in).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("%s: empty", path)
	}
	at := make([]int, len(columns))
	for i, c := range columns {
		if at[i] = slices.Index(rows[0], c); at[i] < 0 {
			return nil, fmt.Errorf("%s: no column %q", path, c)
		}
	}
	list := make([]record, len(rows)-1)
	for i := range list {
		r := &list[i]
		for k, col := range at {
			text := rows[i+1][col]
			n, err := strconv.ParseFloat(text, 64)
			if err != nil && k >= texts {
				return nil, fmt.Errorf("%s: line %d: %s is %q, not a number", path, i+2, columns[k], text)
			}
			r.text, r.n = append(r.text, text), append(r.n, n)
		}
	}
	return list, nil
}

// timing is the seconds per step, and those of synchronisation, of a job with the given number of
// GPUs on each of its nodes, in order (section 2).
func (a *polluxApp) timing(shape []int, local int) (step, sync float64, err error) {
	if len(shape) > 4 {
		gpus := 0
		for _, n := range shape {
			gpus += n
		}
		for _, s := range a.spatial[[2]int{min(len(shape), 16), gpus}] {
			if s.a.local <= local && local <= s.b.local {
				if s.a.local == s.b.local {
					return s.a.step, s.a.sync, nil
				}
				x := float64(local-s.a.local) / float64(s.b.local-s.a.local)
				return s.a.step + (s.b.step-s.a.step)*x, s.a.sync + (s.b.sync-s.a.sync)*x, nil
			}
		}
		return 0, 0, fmt.Errorf("no time for %d GPUs on %d nodes with %d samples each", gpus, len(shape), local)
	}
	rows := a.placements[rotated(shape)]
	if len(rows) < 2 || local < rows[0].local || local > rows[len(rows)-1].local {
		return 0, 0, fmt.Errorf("no time for GPUs %v with %d samples each", shape, local)
	}
	i := 1
	for rows[i].local < local {
		i++
	}
	p, q, d := rows[i-1], rows[i], float64(local-rows[i-1].local)
	width := float64(q.local - p.local)
	return p.step + (q.step-p.step)/width*d, p.sync + (q.sync-p.sync)/width*d, nil
}

// predicted is the step time with a number of GPUs on as few nodes as possible, as the published
// Optimus predicts it: on one GPU it splits each batch in at least two parts.
func (a *polluxApp) predicted(batch, gpus, perNode int) (float64, error) {
	var shape []int
	for n := gpus; n > 0; n -= perNode {
		shape = append(shape, min(n, perNode))
	}
	atomic, more := a.split(batch, gpus, gpus == 1)
	step, sync, err := a.timing(shape, atomic)
	return step + (step-sync)*float64(more), err
}

// rotated is the lexicographically smallest rotation of the shape's digits.
func rotated(shape []int) string {
	text := ""
	for _, n := range shape {
		text += strconv.Itoa(n)
	}
	best := text
	for i := range text {
		best = min(best, text[i:]+text[:i])
	}
	return best
}

// grad is the gradient statistics with a batch after a number of epochs (section 3).
func (a *polluxApp) grad(batch, epoch int) (sqr, variance float64, err error) {
	if batch < a.first || batch > a.max {
		return 0, 0, fmt.Errorf("batch %d is not between %d and %d", batch, a.first, a.max)
	}
	sqr = a.between(batch, epoch, func(r *epochRow) float64 { return r.sqr })
	variance = a.between(batch, epoch, func(r *epochRow) float64 { return r.variance })
	return sqr, variance, nil
}

// between is a column at a row, interpolated between the neighbouring batch sizes.
func (a *polluxApp) between(batch, row int, column func(r *epochRow) float64) float64 {
	hi := slices.IndexFunc(a.batches, func(b epochs) bool { return b.size >= batch })
	if a.batches[hi].size == batch {
		return column(&a.batches[hi].rows[row])
	}
	x, y := &a.batches[hi-1], &a.batches[hi]
	below, above := float64(batch-x.size), float64(y.size-batch)
	return (below*column(&y.rows[row]) + above*column(&x.rows[row])) / float64(y.size-x.size)
}

// iterations is the number of steps with the batch at the end of a row.
func (a *polluxApp) iterations(batch, row int) float64 {
	return a.between(batch, row, func(r *epochRow) float64 { return r.iteration })
}

// need is the progress at which a number of epochs, at least one, are complete.
func (a *polluxApp) need(epochs int) float64 {
	least := math.Inf(1)
	for i := range a.batches {
		least = min(least, a.batches[i].rows[epochs-1].progress)
	}
	return least
}

// split is the number of samples per GPU at a time, and the number of accumulation steps beyond the
// first, at least one if twice (section 4).
func (a *polluxApp) split(batch, gpus int, twice bool) (atomic, accumulate int) {
	up := func(x float64) int { return int(math.Ceil(x - 1e-8)) }
	local := up(float64(batch) / float64(gpus))
	accumulate = up(float64(local)/float64(a.mostLocal)) - 1
	if twice {
		accumulate = max(accumulate, 1)
	}
	atomic = up(float64(local) / float64(accumulate+1))
	return min(atomic, a.max/(gpus*(accumulate+1))), accumulate
}
