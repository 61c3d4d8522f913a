package compat

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/policy"
)

// The world of ElasticFlow's simulator (ASPLOS'23) under its Tiresias (sections 2, 3 and 6): the
// scheduler runs at arrivals, ends and demotions, where all that are due within a minute are
// merged; a start costs seconds of progress, but only if another event happens before the job's
// end; on every sixtieth event all jobs restart.
const (
	slot      = 60
	slotNode  = 8 // GPUs
	slotLarge = 256
)

// slotLimits are the ends of its levels, in GPU-seconds.
var slotLimits = []int{3250, 7200}

type slotJob struct {
	spec     cluster.Job
	gpus     int
	submit   int
	deadline int
	duration int
	given    bool // as the engine decided
	ran      bool // at the last event
	executed int
	seen     int
	over     int // remaining seconds of a start
	level    int
	place    int64
	end      int
	ended    bool
}

// SlotWorld is a driver.
type SlotWorld struct {
	total    int // GPUs
	jobs     []slotJob
	arrivals []arrivals
	known    []int // by GPUs, the largest first
	queues   [3][]int
	now      int
	clock    cluster.Time
	nextEnd  int
	ending   []int
	jump     int
	events   int
	reports  []engine.Event
	met      int
	pending  bool // the consequences of the last decision are not computed yet
}

// arrivals are the jobs that arrive at one time.
type arrivals struct {
	at   int
	jobs []int
}

const never = math.MaxInt / 2

// NewSlotWorld reads a deadline trace with the columns submission_time, deadline, num_gpu and
// duration, in seconds.
func NewSlotWorld(path string, gpus int) (*SlotWorld, error) {
	rows, err := table(path, 1, "job_id", "submission_time", "deadline", "num_gpu", "duration")
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(rows, func(a, b record) int { return int(a.n[1] - b.n[1]) })
	w := &SlotWorld{total: gpus, nextEnd: never, jump: never}
	for i, r := range rows {
		j := slotJob{submit: int(r.n[1]), deadline: int(r.n[2]), gpus: int(r.n[3]), duration: int(r.n[4])}
		if j.gpus < 1 || j.gpus > gpus || bits.OnesCount(uint(j.gpus)) != 1 {
			return nil, fmt.Errorf("%s: job %s: %d GPUs; this world knows powers of two up to %d", path, r.text[0],
				j.gpus, gpus)
		}
		j.spec = cluster.Job{ID: cluster.JobID(i), Name: r.text[0],
			Submit: cluster.Time(j.submit) * cluster.Time(time.Second), Tier: cluster.Standard,
			Tasks: []cluster.TaskSet{{Count: j.gpus, Request: cluster.Request{GPUs: 1}}}}
		w.jobs = append(w.jobs, j)
		if n := len(w.arrivals); n == 0 || w.arrivals[n-1].at != j.submit {
			w.arrivals = append(w.arrivals, arrivals{at: j.submit})
		}
		last := &w.arrivals[len(w.arrivals)-1]
		last.jobs = append(last.jobs, i)
	}
	return w, nil
}

// slotKept is the cost, in seconds, of an event for a job that continues.
func slotKept(total int) int {
	if total >= slotLarge {
		return 7
	}
	return 2
}

// slotStart is the cost, in seconds, of a start on gpus of all GPUs; more when all jobs restart.
func slotStart(total, gpus int, restart bool) int {
	c, more := slotKept(total), 27
	if total >= slotLarge {
		more = 47
	}
	if restart {
		c += more
	}
	return c + 2*bits.Len(uint(gpus))
}

// Next returns the next cluster event.
func (w *SlotWorld) Next(ctx context.Context) (engine.Batch, error) {
	if len(w.reports) == 0 {
		w.settle()
		arrive := never
		if len(w.arrivals) > 0 {
			arrive = w.arrivals[0].at
		}
		due := min(arrive, w.nextEnd)
		if min(due, w.jump) == never || ctx.Err() != nil {
			return engine.Batch{}, io.EOF
		}
		w.events++
		w.pending = true
		w.now = min(due, w.jump)
		w.clock = max(w.clock+1, cluster.Time(w.now)*cluster.Time(time.Second))
		if due <= w.jump { // otherwise no job arrives or ends in this event
			if w.nextEnd == w.now {
				w.finish()
			}
			if arrive == w.now {
				w.arrive()
			}
		}
		w.account()
	}
	b := engine.Batch{Seq: int64(w.events), Now: w.clock, Events: w.reports}
	w.reports = nil
	return b, nil
}

func (w *SlotWorld) finish() {
	for _, i := range w.ending {
		j := &w.jobs[i]
		j.ended, j.given = true, false
		if j.end <= j.deadline {
			w.met++
		}
		w.known = slices.DeleteFunc(w.known, func(k int) bool { return k == i })
		w.queues[j.level] = slices.DeleteFunc(w.queues[j.level], func(k int) bool { return k == i })
		w.reports = append(w.reports, engine.Event{Type: engine.Stopped, Job: j.spec.ID, Reason: engine.Completed})
	}
}

func (w *SlotWorld) arrive() {
	for _, i := range w.arrivals[0].jobs {
		w.known, w.queues[0] = append(w.known, i), append(w.queues[0], i)
		w.reports = append(w.reports,
			engine.Event{Type: engine.Submitted, Job: w.jobs[i].spec.ID, Spec: &w.jobs[i].spec})
	}
	w.arrivals = w.arrivals[1:]
}

// account brings jobs up to now, and moves jobs that reached a limit down a level.
func (w *SlotWorld) account() {
	for _, i := range w.known {
		j := &w.jobs[i]
		if j.given {
			j.executed += max(w.now-j.seen-j.over, 0)
			j.over = 0
			if j.level < len(slotLimits) && j.executed*j.gpus >= slotLimits[j.level] {
				w.queues[j.level] = slices.DeleteFunc(w.queues[j.level], func(k int) bool { return k == i })
				j.level++
				w.queues[j.level] = append(w.queues[j.level], i)
			}
		}
		j.seen, j.ran = w.now, j.given
	}
	for _, q := range w.queues {
		for k, i := range q {
			w.jobs[i].place = int64(k)
		}
	}
}

// settle computes the consequences of what runs now: start costs, the lists' order, the next end
// and the next demotion, and which arrivals are merged.
func (w *SlotWorld) settle() {
	if !w.pending {
		return
	}
	w.pending = false
	restart := w.events > 1 && (w.events-1)%slot == 0
	for _, i := range w.known {
		if j := &w.jobs[i]; j.given && !j.ran {
			j.over = slotStart(w.total, j.gpus, restart)
		}
	}
	slices.SortStableFunc(w.known, func(a, b int) int { return w.jobs[b].gpus - w.jobs[a].gpus })
	for _, q := range w.queues {
		slices.SortStableFunc(q, func(a, b int) int { return count(w.jobs[b].given) - count(w.jobs[a].given) })
	}
	w.nextEnd, w.ending, w.jump = never, w.ending[:0], never
	for _, i := range w.known {
		j := &w.jobs[i]
		if !j.given {
			continue
		}
		rest := j.duration - j.executed
		if restart {
			j.over = slotStart(w.total, j.gpus, restart)
			rest += j.over
		}
		if at := max(w.now+slot, w.now+rest); at <= w.nextEnd {
			if at < w.nextEnd {
				w.nextEnd, w.ending = at, w.ending[:0]
			}
			w.ending = append(w.ending, i)
			j.end = w.now + rest
		}
		if j.level < len(slotLimits) {
			need := slotLimits[j.level] - j.executed // seconds from GPU-seconds, as in that simulator
			w.jump = min(w.jump, max(w.now+slot, w.now+ceilDiv(need, j.gpus)))
		}
	}
	w.gather()
}

func ceilDiv(a, b int) int { return int(math.Ceil(float64(a) / float64(b))) }

// gather merges arrivals within a slot from now into the slot's end.
func (w *SlotWorld) gather() {
	for len(w.arrivals) >= 2 && w.arrivals[0].at-w.now <= slot {
		w.arrivals[0].at = w.now + slot
		if w.arrivals[1].at-w.now > slot {
			return
		}
		w.arrivals[0].jobs = append(slices.Clone(w.arrivals[0].jobs), w.arrivals[1].jobs...)
		w.arrivals = append(w.arrivals[:1], w.arrivals[2:]...)
	}
}

// Apply carries out a decision.
func (w *SlotWorld) Apply(_ context.Context, d engine.Decision) error {
	for i := range d.Actions {
		a := &d.Actions[i]
		j := &w.jobs[a.Job]
		switch a.Type {
		case engine.Start:
			j.given = true
			w.reports = append(w.reports, engine.Event{Type: engine.Started, Job: a.Job})
		case engine.Preempt:
			j.given = false
			w.reports = append(w.reports, engine.Event{Type: engine.Stopped, Job: a.Job, Reason: a.Reason})
		case engine.Reject:
			return fmt.Errorf("compat: job %s can never run: %s", j.spec.Name, a.Text)
		case engine.Resize:
			return errors.New("compat: jobs have one size")
		}
	}
	return nil
}

// service determines a job's level: what it executed, at most one level down per event.
func (w *SlotWorld) service(id cluster.JobID) int64 {
	j := &w.jobs[id]
	s := j.executed * j.gpus
	if j.level < len(slotLimits) {
		s = min(s, slotLimits[j.level]-1)
	}
	return int64(s) * 1_000_000
}

// Met returns the number of jobs that met their deadlines, and of all jobs.
func (w *SlotWorld) Met() (met, jobs int) { return w.met, len(w.jobs) }

// RunSlots replays a deadline trace on a number of nodes with 8 GPUs, which are only counted, under
// our tiresias-l.
func RunSlots(ctx context.Context, path string, nodes int) (*SlotWorld, error) {
	w, err := NewSlotWorld(path, nodes*slotNode)
	if err != nil {
		return nil, err
	}
	p, err := policy.New(SlotPolicy)
	if err != nil {
		return nil, err
	}
	cfg := engine.Config{Spec: counted(w.total),
		Policy: &listed{leveller: p.(leveller), place: func(id cluster.JobID) int64 {
			return w.jobs[id].place
		}, service: w.service}}
	return w, play(ctx, cfg, w)
}

// SlotPolicy is our policy in ElasticFlow's world.
const SlotPolicy = "tiresias-l:thresholds=3250/7200"
