package compat

import (
	"context"
	"encoding/csv"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/muster-gpu/muster/internal/shared"
)

func polluxApps(t *testing.T) PolluxApps {
	t.Helper()
	apps, err := ReadPolluxApps(shared.Path(t, "traces/pollux"))
	if err != nil {
		t.Fatal(err)
	}
	return apps
}

// Pollux' simulator, example A: how a batch is split.
func TestPolluxSplit(t *testing.T) {
	t.Parallel()
	apps := polluxApps(t)
	for _, c := range []struct {
		app                             string
		batch, gpus, atomic, accumulate int
	}{{"ncf", 32768, 1, 16384, 1}, {"yolov3", 64, 4, 8, 1}, {"imagenet", 6400, 48, 134, 0},
		{"deepspeech2", 20, 1, 20, 0}, {"cifar10", 2048, 6, 342, 0}, {"bert", 384, 6, 10, 5}} {
		if atomic, more := apps[c.app].split(c.batch, c.gpus, c.gpus == 1 &&
			c.batch > apps[c.app].first); atomic != c.atomic || more != c.accumulate {
			t.Errorf("%+v: %d, %d", c, atomic, more)
		}
	}
}

// Example C: step times between measured ones, and of six nodes.
func TestPolluxTiming(t *testing.T) {
	t.Parallel()
	apps := polluxApps(t)
	for _, c := range []struct {
		app        string
		shape      []int
		local      int
		step, sync float64
	}{{"cifar10", []int{4, 2}, 342, 0.26877741, 0}, {"cifar10", []int{2, 4}, 342, 0.26877741, 0},
		{"imagenet", []int{4, 4, 4, 4, 4, 4}, 134, 0.74533214, 0.05992654}} {
		step, sync, err := apps[c.app].timing(c.shape, c.local)
		if err != nil || math.Abs(step-c.step) > 1e-7 || c.sync > 0 && math.Abs(sync-c.sync) > 1e-7 {
			t.Errorf("%+v: %.8f %.8f %v", c, step, sync, err)
		}
	}
}

// Example B: one job of ncf, alone.
func TestPolluxJob(t *testing.T) {
	t.Parallel()
	apps := polluxApps(t)
	path := t.TempDir() + "/workload.csv"
	if err := os.WriteFile(path, []byte("name,time,application,num_replicas,batch_size\nx,135,ncf,1,32768\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	w, err := RunPollux(context.Background(), apps, path, "tiresias")
	if err != nil || !slices.Equal(w.JCT(), []int{122}) {
		t.Errorf("%v %v, want 122 s", w.JCT(), err)
	}
}

// Every job of a workload ends in the same second as in the published simulator.
func TestPolluxTiresias(t *testing.T) {
	t.Parallel()
	f, err := os.Open(shared.Path(t, "traces/pollux/expected/tiresias_per_job_jct_load1.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	apps := polluxApps(t)
	w, err := RunPollux(context.Background(), apps, shared.Path(t, "traces/pollux/workloads/workload-1.csv"),
		"tiresias")
	if err != nil {
		t.Fatal(err)
	}
	wrong, n := 0, 0
	for _, r := range rows[1:] {
		if r[0] != "workload-1" {
			continue
		}
		i := slices.Index(w.Names(), r[1])
		want, err := strconv.ParseFloat(r[2], 64)
		if n++; err != nil || i < 0 || float64(w.JCT()[i]) != want {
			if wrong++; wrong < 10 {
				t.Errorf("job %s: %d s, want %s", r[1], w.JCT()[max(i, 0)], r[2])
			}
		}
	}
	if n != 160 || wrong > 0 {
		t.Errorf("%d of %d jobs differ", wrong, n)
	}
}

// A table without a column, or with an application without measurements, is an error.
func TestPolluxBadInput(t *testing.T) {
	t.Parallel()
	apps, dir := polluxApps(t), t.TempDir()
	for text, want := range map[string]string{
		"name,time,application,num_replicas\nx,1,ncf,1\n":              `no column "batch_size"`,
		"name,time,application,num_replicas,batch_size\nx,1,gpt,1,8\n": `line 2: unknown application "gpt"`,
		"name,time,application,num_replicas,batch_size\nx,y,ncf,1,8\n": `line 2: time is "y", not a number`,
	} {
		path := dir + "/w.csv"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := RunPollux(context.Background(), apps, path, "tiresias"); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// Pollux (OSDI'21), vectors 1 and 2: four GPUs on two nodes, ten samples on each; and the value of
// a sample in a batch of twice the size.
func TestPolluxVectors(t *testing.T) {
	t.Parallel()
	for g, want := range map[float64]float64{1: 95.24, 2: 134.53} {
		m := polluxModel{}
		m[computeBase], m[computeSlope], m[nodesBase], m[nodesBase+1], m[overlap] = 0.1, 0.01, 0.2, 0.01, g
		step, compute := m.step(2, 4, 10)
		if got := 40 / step; math.Abs(got-want) > 0.01 || math.Abs(compute-0.2) > 1e-12 {
			t.Errorf("g=%g: %g samples a second, computing takes %g", g, got, compute)
		}
	}
	for scale, want := range map[float64]float64{1: 1, 2: 2.0 / 3, 4: 0.4} {
		if got := gainOf(1, 1, scale) / scale; math.Abs(got-want) > 1e-12 {
			t.Errorf("a batch %g times as large: efficiency %g, want %g", scale, got, want)
		}
	}
	last := 1.0
	for scale := 1.0; scale < 100; scale *= 1.1 {
		e := gainOf(2, 7, scale) / scale
		if e <= 0 || e > last+1e-12 {
			t.Errorf("a batch %g times as large: efficiency %g after %g", scale, e, last)
		}
		last = e
	}
}

// Pollux (OSDI'21), the invariants for any parameters and gradients: efficiency is in (0, 1] and
// falls with the batch size; goodput is at most the throughput with the best batch, and equals it
// with a batch of the first size; the speedup of one GPU is one.
func TestPolluxGoodput(t *testing.T) {
	t.Parallel()
	r, tuned := rand.New(rand.NewPCG(3, 9)), 0
	for range 500 {
		up := func(least, most float64) float64 { return least * math.Pow(most/least, r.Float64()) }
		m := polluxModel{up(1e-3, 1), up(1e-5, 1e-2), up(1e-3, 1), up(1e-4, 1e-1), up(1e-3, 1), up(1e-4, 1e-1),
			1 + 9*r.Float64()}
		app := &polluxApp{first: 1 + r.IntN(256), leastLocal: 1 + r.IntN(8), mostLocal: 32 + r.IntN(256)}
		app.max = app.first * (1 + r.IntN(64))
		l := polluxLearner{rows: make([]polluxSeen, 1), model: m, sqr: up(1e-3, 1e3), variance: up(1e-3, 1e3)}
		last := 1 + 1e-12
		for scale := 1.0; scale < 1e4; scale *= 1.5 {
			e := gainOf(l.sqr, l.variance, scale) / scale
			if !(e > 0 && e <= last) {
				t.Fatalf("sqr %g, var %g: a batch %g times as large has efficiency %g, a smaller one %g", l.sqr,
					l.variance, scale, e, last)
			}
			last = e
		}
		for _, gpus := range []int{1, 2, 4, 8, 32} {
			nodes := (gpus + polluxPerNode - 1) / polluxPerNode
			goodput, atomic, more := l.best(app, nodes, gpus)
			if goodput == 0 {
				continue // no allowed batch size
			}
			batch := float64(gpus * atomic * (more + 1))
			step, compute := m.step(nodes, gpus, atomic)
			throughput := batch / (float64(more)*compute + step)
			want := throughput * gainOf(l.sqr, l.variance, batch/float64(app.first)) / (batch / float64(app.first))
			if math.Abs(goodput/want-1) > 1e-9 || batch >= float64(app.first) && goodput > throughput*(1+1e-9) {
				t.Fatalf("%d GPUs, a batch of %g (first %d): goodput %g, throughput %g", gpus, batch, app.first,
					goodput, throughput)
			}
			if tuned++; gpus == 1 && l.speed(app, 1) != 1_000_000 {
				t.Fatalf("one GPU is %d ppm as fast as one", l.speed(app, 1))
			}
		}
	}
	if tuned < 1000 {
		t.Errorf("%d sizes have a batch", tuned)
	}
}

// A job that has seen enough steps predicts the time of others, and its best batch is an allowed
// one.
func TestPolluxFit(t *testing.T) {
	t.Parallel()
	truth := polluxModel{0.2, 0.01, 0.3, 0.02, 0.05, 0.01, 1.5}
	var rows []polluxSeen
	for _, gpus := range []int{1, 2, 3, 4, 6, 8, 16} {
		for _, local := range []int{4, 8, 12} {
			s := polluxSeen{nodes: (gpus + 3) / 4, gpus: gpus, local: local}
			s.step, s.compute = truth.step(s.nodes, gpus, local)
			rows = append(rows, s)
		}
	}
	m := fitPollux(rows)
	for _, c := range []struct{ nodes, gpus, local int }{{1, 1, 6}, {1, 4, 10}, {3, 12, 8}, {8, 32, 12}} {
		want, _ := truth.step(c.nodes, c.gpus, c.local)
		if got, _ := m.step(c.nodes, c.gpus, c.local); math.Abs(got/want-1) > 0.02 {
			t.Errorf("%+v: %g s, want %g (%v)", c, got, want, m)
		}
	}
	app := polluxApps(t)["bert"]
	l := polluxLearner{rows: rows, model: m, sqr: 1, variance: 50}
	small, atomic, more := l.best(app, 1, 4)
	if small <= 0 || atomic < app.leastLocal || atomic > app.mostLocal || 4*atomic*(more+1) > app.max+4 {
		t.Errorf("best of 4 GPUs: %g with %d, %d", small, atomic, more)
	}
	l.variance = 5000 // noisy gradients make larger batches worth more
	if _, a, n := l.best(app, 1, 4); a*(n+1) <= atomic*(more+1) {
		t.Errorf("with noise %d samples a GPU, without %d", a*(n+1), atomic*(more+1))
	}
}

// Placement uses the fewest nodes; small jobs move out of the way of large ones.
func TestPolluxArrange(t *testing.T) {
	t.Parallel()
	w := &PolluxWorld{jobs: make([]polluxJob, 33), learns: true}
	app := &polluxApp{first: 1, max: 1 << 20, leastLocal: 1, mostLocal: 1 << 20}
	for i := range w.jobs {
		w.jobs[i].app = app
		w.jobs[i].given = 1
		if i < 16 {
			w.jobs[i].where, w.jobs[i].shape = []int{i}, []int{1} // one on each node
		}
	}
	for i := 16; i < len(w.jobs); i++ {
		w.jobs[i].given = 0
	}
	w.jobs[32].given = 8
	w.arrange()
	moved, used := 0, [polluxNodes]int{}
	for i := range w.jobs {
		moved += count(i < 16 && w.jobs[i].where[0] != i)
		for _, n := range w.jobs[i].where {
			used[n]++
		}
	}
	if !slices.Equal(w.jobs[32].shape, []int{4, 4}) || moved != 2 || slices.Max(used[:]) > polluxPerNode {
		t.Errorf("shape %v, %d moved, used %v", w.jobs[32].shape, moved, used)
	}
}
