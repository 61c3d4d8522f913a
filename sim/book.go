package sim

import (
	"cmp"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/report"
)

// maxSpans bounds what is kept for the Gantt strips.
const maxSpans = 4000

// maxQueues is how many queues get a curve of their own; the rest share one.
const maxQueues = 24

// Book keeps the records and integrals of a replay.
type Book struct {
	spec     *cluster.Spec
	capacity cluster.Milli
	now      cluster.Time
	done     int
	failures int

	alloc     cluster.Milli // held by jobs
	busy      cluster.Milli // the part of alloc whose jobs compute
	pending   int64
	running   int64
	demand    cluster.Milli // asked for by pending jobs
	nodeUsed  []cluster.Milli
	weight    []int64                        // of each node's GPU model, in thousandths
	kinds     []report.Kind                  // GPU models with their weights; nil: no model has a weight
	split     cluster.Milli                  // free on partly used nodes
	uselessAt cluster.Time                   // when useless was last computed
	useless   cluster.Milli                  // free, but of no use (inventory.Fragmentation)
	frag      func() inventory.Fragmentation // nil: fragmentation is not recorded
	queues    []string
	queueID   map[string]int32
	queueUse  []cluster.Milli

	Series report.Series
	Spans  []report.Span
	open   map[cluster.JobID]int // first open span of a job; looked up, never iterated
	full   bool                  // more than maxSpans: no spans are kept

	First, Last cluster.Time // first submission, last end
	active      int64
	loadArea    float64 // integral of active jobs over seconds, for Themis' fair share
	areaAt      []float64
	Records     []report.Record
}

func newBook(spec *cluster.Spec, n int) *Book {
	b := &Book{spec: spec, capacity: cluster.Milli(spec.GPUs()) * cluster.Whole, First: cluster.Never,
		nodeUsed: make([]cluster.Milli, len(spec.Nodes)), queueID: map[string]int32{},
		open: map[cluster.JobID]int{}, Records: make([]report.Record, n), areaAt: make([]float64, n)}
	for i := range b.Records {
		b.Records[i].FirstStart, b.Records[i].End = cluster.Never, cluster.Never
	}
	b.Series = report.NewSeries()
	b.weigh()
	return b
}

// weigh looks up the weights of the GPU models, if the cluster states any.
func (b *Book) weigh() {
	b.weight = make([]int64, len(b.spec.Nodes))
	weighted := false
	var kinds []report.Kind
	for i := range b.spec.Nodes {
		n := &b.spec.Nodes[i]
		m, _ := b.spec.Model(n.Model)
		b.weight[i] = cmp.Or(m.Weight, cluster.Whole)
		weighted = weighted || b.weight[i] != cluster.Whole
		k := slices.IndexFunc(kinds, func(k report.Kind) bool { return k.Model == n.Model })
		if k < 0 {
			k, kinds = len(kinds), append(kinds, report.Kind{Model: n.Model, Weight: b.weight[i]})
		}
		kinds[k].GPUs += n.GPUs
	}
	if weighted {
		b.kinds = kinds
	}
}

// grow makes room for one more job.
func (b *Book) grow() {
	b.Records = append(b.Records, report.Record{FirstStart: cluster.Never, End: cluster.Never})
	b.areaAt = append(b.areaAt, 0)
}

// Queues returns the names of the queues with a curve of their own, in the
// order in which they were first seen; the last may be "(others)".
func (b *Book) Queues() []string { return b.queues }

func (b *Book) queue(name string) int32 {
	id, ok := b.queueID[name]
	if !ok {
		if len(b.queues) == maxQueues-1 {
			name = "(others)"
			if id, ok = b.queueID[name]; ok {
				return id
			}
		}
		id = int32(len(b.queues))
		b.queueID[name] = id
		b.queues = append(b.queues, name)
		b.queueUse = append(b.queueUse, 0)
	}
	return id
}

// advance integrates everything up to an instant.
func (b *Book) advance(at cluster.Time) {
	if at <= b.now {
		return
	}
	b.loadArea += float64(b.active) * at.Sub(b.now).Seconds()
	if b.frag != nil && at.Sub(b.uselessAt) >= b.Series.Width/4 { // at most four samples per bin: each scans all nodes
		f := b.frag()
		b.useless, b.uselessAt = f.Free-f.Usable, at
	}
	b.Series.Add(b.now, at, report.Sample{Alloc: b.alloc, Busy: b.busy, Pending: b.pending, Running: b.running,
		Demand: b.demand, Split: b.split, Useless: min(b.useless, b.capacity-b.alloc), Free: b.capacity - b.alloc},
		b.queueUse)
	b.now = at
}

// arrived books a job's submission; its GPUs count as those of a queue, or of what is drawn like one.
func (b *Book) arrived(s *cluster.Job, queue string) {
	r := &b.Records[s.ID]
	r.Submit, r.GPUs, r.Queue = b.now, int32(s.GPUs()), b.queue(queue)
	b.First = min(b.First, b.now)
	b.pending++
	b.active++
	b.areaAt[s.ID] = b.loadArea
	b.demand += s.GPUMilli()
}

func (b *Book) started(j *jobRun, now cluster.Time) {
	id := j.entry.Job.ID
	r := &b.Records[id]
	r.FirstStart = min(r.FirstStart, now)
	r.Waited += now.Sub(j.since)
	b.pending--
	b.running++
	b.demand -= j.entry.Job.GPUMilli()
	b.hold(j, j.milli, now)
}

// hold books the devices that a job receives.
func (b *Book) hold(j *jobRun, milli cluster.Milli, now cluster.Time) {
	r := &b.Records[j.entry.Job.ID]
	b.alloc += milli
	b.queueUse[r.Queue] += milli
	for i := range j.allocs {
		b.useNode(j.allocs[i].Node, j.allocs[i].Milli())
	}
	j.heldFrom = now
	b.openSpans(j, now)
}

// drop books the devices that a job releases.
func (b *Book) drop(j *jobRun, milli cluster.Milli, now cluster.Time) {
	r := &b.Records[j.entry.Job.ID]
	b.alloc -= milli
	b.queueUse[r.Queue] -= milli
	worth := cluster.Milli(0)
	for i := range j.allocs {
		a := &j.allocs[i]
		b.useNode(a.Node, -a.Milli())
		worth += a.Milli() * b.weight[a.Node] / cluster.Whole
	}
	took := int64(now.Sub(j.heldFrom) / time.Millisecond)
	r.Held += milli * took
	r.Worth += worth * took
	r.Ran += now.Sub(j.heldFrom)
	b.closeSpans(j, now)
}

func (b *Book) useNode(node int32, m cluster.Milli) {
	total := cluster.Milli(b.spec.Nodes[node].GPUs) * cluster.Whole
	if u := b.nodeUsed[node]; u > 0 {
		b.split -= total - u
	}
	b.nodeUsed[node] += m
	if u := b.nodeUsed[node]; u > 0 {
		b.split += total - u
	}
}

func (b *Book) openSpans(j *jobRun, now cluster.Time) {
	if b.full {
		return
	}
	if len(b.Spans)+len(j.allocs) > maxSpans {
		b.full, b.Spans, b.open = true, nil, nil
		return
	}
	b.open[j.entry.Job.ID] = len(b.Spans)
	for i := range j.allocs {
		a := &j.allocs[i]
		b.Spans = append(b.Spans,
			report.Span{Job: j.entry.Job.ID, Node: a.Node, GPUs: a.GPUs, Share: a.Share, From: now, To: cluster.Never})
	}
}

func (b *Book) closeSpans(j *jobRun, now cluster.Time) {
	if b.full {
		return
	}
	for i := b.open[j.entry.Job.ID]; i < len(b.Spans) && b.Spans[i].Job == j.entry.Job.ID; i++ {
		b.Spans[i].To = now
	}
}

// computing books the start of useful work.
func (b *Book) computing(j *jobRun) { b.busy += j.milli }

// computed books the useful device time since the job's phase began.
func (b *Book) computed(j *jobRun, now cluster.Time) {
	b.Records[j.entry.Job.ID].Busy += j.milli * int64(now.Sub(j.since)/time.Millisecond)
}

// sent books a time in which a job computed and transmitted, and was slowed by others on the network.
func (b *Book) sent(j *jobRun, d time.Duration) {
	r, held := &b.Records[j.entry.Job.ID], float64(j.milli)*d.Seconds()*1000
	r.Sending += int64(held * (1 - float64(j.sends.job.Compute)/float64(max(j.sends.takes, j.sends.alone))))
	r.Contended += int64(held * (1 - float64(j.sends.speed)/1_000_000))
}

// lost books work that is thrown away: d of recorded run time.
func (b *Book) lost(j *jobRun, d time.Duration) {
	if d > 0 {
		b.Records[j.entry.Job.ID].Lost += j.milli * int64(stretch(d, max(1, j.rate))/time.Millisecond)
	}
}

func (b *Book) resized(j *jobRun, now cluster.Time, allocs []engine.Alloc) {
	b.drop(j, j.milli, now)
	old := j.allocs
	j.allocs = allocs
	var m cluster.Milli
	for i := range allocs {
		m += allocs[i].Milli()
	}
	b.hold(j, m, now)
	j.allocs = old
}

// left books that a job has released its devices.
func (b *Book) left(j *jobRun, now cluster.Time) {
	b.drop(j, j.milli, now)
	b.running--
}

func (b *Book) waits(j *jobRun, reason engine.StopReason) {
	r := &b.Records[j.entry.Job.ID]
	r.Preemptions++
	if reason == engine.NodeLost {
		r.Preemptions--
		r.Losses++
	}
	b.pending++
	b.demand += j.entry.Job.GPUMilli()
}

func (b *Book) ended(j *jobRun, now cluster.Time, reason engine.StopReason, waiting bool) {
	r := &b.Records[j.entry.Job.ID]
	if waiting {
		r.Waited += now.Sub(j.since)
		b.pending--
		b.demand -= j.entry.Job.GPUMilli()
	}
	r.End, r.Outcome = now, outcomeOf(reason)
	b.Last = max(b.Last, now)
	b.active--
	b.done++
	id := j.entry.Job.ID
	b.areaAt[id] = b.loadArea - b.areaAt[id] // active jobs, integrated over its life
}

func outcomeOf(r engine.StopReason) report.Outcome {
	switch r {
	case engine.Completed:
		return report.Completed
	case engine.WasCancelled:
		return report.Cancelled
	case engine.TimedOut:
		return report.TimedOut
	case engine.Impossible, engine.NeverReady:
		return report.Rejected
	case engine.Preempted, engine.NodeLost:
		return report.Lost
	}
	return report.Failed
}

// Run returns the books in the form that package report reads.
func (b *Book) Run(w *World) report.Run {
	r := report.Run{Cluster: b.spec.Name, Capacity: b.capacity, Kinds: b.kinds, Queues: b.queues, Epoch: b.spec.Epoch,
		Records: b.Records, Series: b.Series, Failures: b.failures, First: b.First, Last: b.Last, Spans: b.Spans}
	for i := range b.spec.Nodes {
		r.Nodes = append(r.Nodes, b.spec.Nodes[i].Name)
		r.GPUs = append(r.GPUs, b.spec.Nodes[i].GPUs)
	}
	for _, name := range b.queues {
		var owed cluster.Milli
		for i := range b.spec.Queues {
			if b.spec.Queues[i].Name == name {
				owed = b.spec.Queues[i].Guarantee
			}
		}
		r.Owed = append(r.Owed, owed)
	}
	r.Power = w.closePower()
	r.Links = w.net.loads(b.Last.Sub(b.First))
	for i := range w.jobs {
		e := w.jobs[i].entry
		r.Jobs = append(r.Jobs, &e.Job)
		r.Ideal = append(r.Ideal, e.Run)
		mean := 0.0
		if rec := &b.Records[i]; rec.End != cluster.Never && rec.End > rec.Submit {
			mean = b.areaAt[i] / rec.End.Sub(rec.Submit).Seconds()
		}
		r.Active = append(r.Active, mean)
	}
	return r
}

// close books the jobs that are still running or waiting when the replay ends.
func (b *Book) close(w *World) {
	b.advance(w.now)
	for i := range w.jobs {
		j := &w.jobs[i]
		switch j.phase {
		case running, starting, leaving:
			w.idle(j)
			b.drop(j, j.milli, w.now)
		case waiting:
			b.Records[i].Waited += w.now.Sub(j.since)
		}
	}
	b.Last = max(b.Last, w.now)
}
