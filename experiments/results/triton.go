package results

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/heap"
	"github.com/muster-gpu/muster/service"
	"github.com/muster-gpu/muster/serving/batch"
)

// Triton's closed loops: instances of the model on a GPU, and the largest batch, which is the preferred one as well.
const (
	tritonInstances = 2
	tritonBatch     = 128
	tritonTime      = 5 * time.Second // that is played of each
)

// tritonLoop is a closed loop of callers as measured, or as played. Times are milliseconds of a request in the mean.
type tritonLoop struct {
	gpu                     string
	callers                 int
	rate                    float64 // requests per second
	network, queue, compute float64
	batch                   float64 // requests, in the mean; 0: not known
}

func (l *tritonLoop) takes() float64 { return l.network + l.queue + l.compute }

// readTriton reads the measured loops, and how long batches take on each GPU.
func readTriton(dir string) (list []tritonLoop, profiles map[string]service.Profile, err error) {
	profiles = map[string]service.Profile{}
	err = eachRow(filepath.Join(dir, "triton-batch.csv"), func(_, r []string) error {
		if r[0] != "resnet50" {
			return nil
		}
		size, err1 := strconv.Atoi(r[4])
		ms, err2 := strconv.ParseFloat(r[6], 64)
		profiles[r[1]] = append(profiles[r[1]], service.Point{Share: cluster.Whole, Batch: size,
			Latency: time.Duration(ms * float64(time.Millisecond))})
		return errors.Join(err1, err2)
	})
	if err != nil {
		return nil, nil, err
	}
	err = eachRow(filepath.Join(dir, "triton-dynamic-closed-loop.csv"), func(_, r []string) error {
		if len(r) < 11 {
			return errors.New("there are fewer than 11 columns")
		}
		var n [7]float64
		for i := range n {
			var err error
			if n[i], err = strconv.ParseFloat(r[4+i], 64); err != nil {
				return err
			}
		}
		l := tritonLoop{gpu: r[1], callers: int(n[0]), rate: n[1], network: n[2], queue: n[3],
			compute: n[4] + n[5] + n[6]}
		// all instances compute nearly all of the time
		l.batch = l.rate * l.compute / 1e3 / tritonInstances
		list = append(list, l)
		return nil
	})
	for gpu, p := range profiles {
		p.Sort()
		if p.MaxBatch() != tritonBatch {
			err = errors.Join(err, fmt.Errorf("%s: %s: batches of up to %d were measured, not %d", dir, gpu,
				p.MaxBatch(), tritonBatch))
		}
	}
	for i := range list {
		if profiles[list[i].gpu] == nil {
			err = errors.Join(err, fmt.Errorf("%s: no batches were measured on %s", dir, list[i].gpu))
		}
	}
	return list, profiles, err
}

// arrival is when a caller's next request comes.
type arrival struct{ at cluster.Time }

// Before orders arrivals.
func (a *arrival) Before(o *arrival) bool { return a.at < o.at }

// tritonInstance is a copy of the model on the GPU.
type tritonInstance struct {
	rule  batch.Rule
	items []batch.Item
	began cluster.Time
	end   cluster.Time // cluster.Never: it is idle
}

// playTriton plays a loop by our rule of that name. A request is on the network for as long as was measured in the
// mean; those of a batch come one after the other, as they share the way.
func playTriton(l *tritonLoop, p service.Profile) (tritonLoop, error) {
	instances := make([]tritonInstance, tritonInstances)
	for i := range instances {
		rule, err := batch.New("triton", batch.Setting{Max: tritonBatch, Preferred: []int{tritonBatch},
			Takes: func(n int) time.Duration { return p.Takes(cluster.Whole, n) }})
		if err != nil {
			return tritonLoop{}, err
		}
		instances[i] = tritonInstance{rule: rule, end: cluster.Never}
	}
	var coming []arrival
	send := func(now cluster.Time, n int) {
		for k := range n {
			back := l.network * float64(2*k+1) / float64(n) * float64(time.Millisecond)
			heap.Push(&coming, arrival{now.Add(time.Duration(back))})
		}
	}
	send(0, l.callers)
	var q batch.Queue
	queued, computed, answers, batches := 0.0, 0.0, 0.0, 0.0
	now := cluster.Time(0)
	for now < cluster.Time(tritonTime) {
		now = cluster.Never
		for i := range instances {
			now = min(now, instances[i].end)
		}
		if len(coming) > 0 {
			now = min(now, coming[0].at)
		}
		for i := range instances {
			x := &instances[i]
			if x.end != now {
				continue
			}
			for k := range x.items {
				queued += x.began.Sub(x.items[k].At).Seconds()
				computed += now.Sub(x.began).Seconds()
			}
			answers, batches = answers+float64(len(x.items)), batches+1
			x.rule.Done(len(x.items), now.Sub(x.began))
			send(now, len(x.items))
			x.items, x.end = x.items[:0], cluster.Never
		}
		for len(coming) > 0 && coming[0].at <= now {
			q.Push(batch.Item{At: heap.Pop(&coming).at})
		}
		for i := range instances {
			x := &instances[i]
			if x.end != cluster.Never || q.Len() == 0 {
				continue
			}
			c := x.rule.Next(&q, now)
			if c.Send == 0 || c.Drop > 0 {
				return tritonLoop{}, fmt.Errorf("%d requests wait for an idle instance, and the rule says %+v", q.Len(), c)
			}
			for k := range c.Send {
				x.items = append(x.items, *q.At(k))
			}
			q.Pop(c.Send)
			x.began, x.end = now, now.Add(p.Takes(cluster.Whole, c.Send))
		}
	}
	return tritonLoop{gpu: l.gpu, callers: l.callers, rate: answers / now.Sub(0).Seconds(), network: l.network,
		queue: 1e3 * queued / answers, compute: 1e3 * computed / answers, batch: answers / batches}, nil
}

// Triton sets closed loops of callers under our rule triton beside measurements of Triton.
func Triton(ctx context.Context, traces string) (Table, error) {
	t := Table{Title: "Triton's dynamic batcher: closed loops beside measurements", Tolerance: 0.15,
		About: "ResNet-50 in half precision on Triton Inference Server, measured by NVIDIA (DeepLearningExamples, BSD-3): two instances of the model on a GPU, batches of at most 128, which is the preferred size as well, no delay, and 16 to 256 callers, each of which sends an image when it has the answer to the one before. Ours is the batching rule `triton` (`serving/batch`) for the same callers on two instances. How long a batch takes is from a table of the same source, for a caller who sends one batch of a size after the other; how long an image is on the network is as measured, since the rule does not decide it. Nothing was fitted. " +
			"The tolerance is for the requests per second. The table's times bound what can be expected: they include a batch's way through the network, which many callers overlap with computing, so that we are below the measurement where batches are large, and one instance alone on the GPU, so that we are above it where two instances slow each other down. On all GPUs requests wait longer in Triton's queue than in ours, and are computed in less of their time; the measurement does not say why."}
	list, profiles, err := readTriton(filepath.Join(traces, "serving-profiles"))
	if err != nil {
		return t, err
	}
	sums := Section{Title: "By GPU",
		About: "The mean and the range of what ours is beside the measured figure: of requests per second and of requests in a batch in per cent, of the parts of a request's time in points. Measured batches follow from the rate, the time that one takes, and two instances that compute all the time.",
		Head: []string{"GPU", "loops", "requests/s, mean error", "from", "to", "batch, mean error", "queue, points",
			"computing, points"}}
	each := Section{Title: "Every loop", About: "Queue and computing are parts of a request's time, the network's among it.",
		Head: []string{"GPU", "callers", "requests/s measured", "ours", "difference", "batch measured", "ours",
			"queue measured", "ours", "computing measured", "ours"}}
	var gpus []string
	rates, batches := map[string]*differences{}, map[string]*differences{}
	queue, computing := map[string]float64{}, map[string]float64{}
	for i := range list {
		if err := ctx.Err(); err != nil {
			return t, err
		}
		l := &list[i]
		got, err := playTriton(l, profiles[l.gpu])
		if err != nil {
			return t, err
		}
		if rates[l.gpu] == nil {
			gpus = append(gpus, l.gpu)
			rates[l.gpu], batches[l.gpu] = &differences{}, &differences{}
		}
		rates[l.gpu].add(got.rate, l.rate)
		batches[l.gpu].add(got.batch, l.batch)
		queue[l.gpu] += 100 * (got.queue/got.takes() - l.queue/l.takes())
		computing[l.gpu] += 100 * (got.compute/got.takes() - l.compute/l.takes())
		row := Row{fmt.Sprintf("%s, %d callers", l.gpu, l.callers), "requests/s", l.rate, got.rate, ""}
		switch {
		case row.Off() > t.Tolerance:
			row.Reason = "the two instances slow each other down"
		case row.Off() < -t.Tolerance:
			row.Reason = "the table's times include the network"
		}
		t.Rows = append(t.Rows, row)
		percent := func(part, of float64) string { return fmt.Sprintf("%.0f %%", 100*part/of) }
		each.Cells = append(each.Cells, []string{l.gpu, strconv.Itoa(l.callers), fmt.Sprintf("%.0f", l.rate),
			fmt.Sprintf("%.0f", got.rate), fmt.Sprintf("%+.1f %%", 100*row.Off()), fmt.Sprintf("%.1f", l.batch),
			fmt.Sprintf("%.1f", got.batch), percent(l.queue, l.takes()), percent(got.queue, got.takes()),
			percent(l.compute, l.takes()), percent(got.compute, got.takes())})
	}
	for _, gpu := range gpus {
		r, b := *rates[gpu], *batches[gpu]
		n := float64(len(r))
		sums.Cells = append(sums.Cells, []string{gpu, strconv.Itoa(len(r)), fmt.Sprintf("%.1f %%", mean(r.off())),
			fmt.Sprintf("%+.1f %%", slices.Min(r)), fmt.Sprintf("%+.1f %%", slices.Max(r)),
			fmt.Sprintf("%.1f %%", mean(b.off())), fmt.Sprintf("%+.1f", queue[gpu]/n),
			fmt.Sprintf("%+.1f", math.Round(10*computing[gpu]/n)/10)})
	}
	t.Sections = append(t.Sections, sums, each)
	return t, nil
}

func mean(list []float64) (sum float64) {
	for _, v := range list {
		sum += v / float64(len(list))
	}
	return sum
}
