package tune

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/journal"
	"github.com/muster-gpu/muster/trace"
)

// History gathers jobs from journals: what was submitted, and how long it really ran.
type History struct {
	Header journal.Header // of the last journal
	Notes  []string
	Costs  Costs         // of the workload's jobs, in its order
	past   []pastOutcome // of the workload's jobs, in its order
	nodes  []cluster.Node
	queues []cluster.Queue
	jobs   []pastJob
	at     map[cluster.JobID]int
}

// NewHistory returns an empty history.
func NewHistory() *History { return &History{at: map[cluster.JobID]int{}} }

// Since drops the jobs that were submitted before an instant.
func (h *History) Since(at cluster.Time) {
	h.jobs = slices.DeleteFunc(h.jobs, func(j pastJob) bool { return j.submit < at })
}

type pastJob struct {
	spec    cluster.Job
	submit  cluster.Time
	started cluster.Time
	runs    bool
	done    time.Duration // useful work before the current run
	ended   bool
	// cancelled: a person asked for its end, whatever reason its driver reports for the stop.
	cancelled bool
	ignores   bool // it saved nothing when asked for a checkpoint, as the daemon observed
	saved     bool // ... but reported checkpoints of its own
	why       engine.StopReason
	took      stopCosts
	wrote     bool         // it wrote a checkpoint at its last stop
	end       cluster.Time // when it ended, if it has
	under     ruleSet      // rules at its submission; zero: they have changed since
	held      []stay       // time on devices by size
	since     cluster.Time // it has had its size, while it runs
}

// stay is the time for which a job had a size.
type stay struct {
	tasks []cluster.TaskSet
	time  time.Duration
}

// hold counts the time up to now for which a running job had its size.
func (j *pastJob) hold(now cluster.Time) {
	if !j.runs {
		return
	}
	i := slices.IndexFunc(j.held, func(s stay) bool { return slices.Equal(s.tasks, j.spec.Tasks) })
	if i < 0 {
		i, j.held = len(j.held), append(j.held, stay{tasks: j.spec.Tasks})
	}
	j.held[i].time += now.Sub(j.since)
	j.since = now
}

// sized is the size that a job had longest, and its run time at that size: its GPU time stays the same.
func (j *pastJob) sized() ([]cluster.TaskSet, time.Duration) {
	if len(j.held) < 2 {
		return j.spec.Tasks, j.done
	}
	longest, had, all := j.held[0], int64(0), time.Duration(0)
	for _, s := range j.held {
		if s.time > longest.time {
			longest = s
		}
		all += s.time
		had += (&cluster.Job{Tasks: s.tasks}).GPUMilli() * int64(s.time/time.Millisecond)
	}
	most := (&cluster.Job{Tasks: longest.tasks}).GPUMilli()
	if most == 0 || all < time.Millisecond {
		return longest.tasks, j.done
	}
	average := had / int64(all/time.Millisecond)
	return longest.tasks, j.done / time.Duration(most) * time.Duration(average)
}

// Add reads a whole journal. The journals of one daemon share their clock and job numbers, so a job
// may begin in one and end in the next.
func (h *History) Add(j *journal.Reader) error {
	if h.Header.Version != "" && h.Header.Spec.Epoch != j.Header.Spec.Epoch {
		return fmt.Errorf("journals of different daemons: their clocks begin at %d and %d (Unix seconds)",
			h.Header.Spec.Epoch, j.Header.Spec.Epoch)
	}
	if now := ruleSetOf(&j.Header); now != ruleSetOf(&h.Header) {
		for i := range h.jobs {
			if !h.jobs[i].ended {
				h.jobs[i].under = ruleSet{}
			}
		}
	}
	h.Header = j.Header
	h.join(j.Header.Spec.Nodes)
	h.queues = j.Header.Spec.Queues
	if s := j.Header.Snapshot; s != nil {
		h.join(s.Nodes)
		if len(s.Queues) > 0 {
			h.queues = s.Queues
		}
	}
	for {
		b, _, err := j.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for i := range b.Events {
			h.event(b.Now, &b.Events[i])
		}
	}
}

func ruleSetOf(h *journal.Header) ruleSet { return ruleSet{h.Policy, h.Backfill, h.Placer} }

// join adds nodes with new names.
func (h *History) join(nodes []cluster.Node) {
	for _, n := range nodes {
		if !slices.ContainsFunc(h.nodes, func(o cluster.Node) bool { return o.Name == n.Name }) {
			h.nodes = append(h.nodes, n)
		}
	}
}

func (h *History) event(now cluster.Time, ev *engine.Event) {
	switch ev.Type {
	case engine.Submitted:
		h.at[ev.Spec.ID] = len(h.jobs)
		h.jobs = append(h.jobs, pastJob{spec: *ev.Spec, submit: now, under: ruleSetOf(&h.Header)})
		return
	case engine.Adopted: // no rules chose when and where it started
		r := ev.Record
		h.at[r.Spec.ID] = len(h.jobs)
		h.jobs = append(h.jobs, pastJob{spec: *r.Spec, runs: true, submit: r.Started, started: r.Started,
			since: r.Started})
		return
	case engine.NodeUp:
		if ev.Spare != nil {
			h.join([]cluster.Node{*ev.Spare})
		}
		return
	case engine.QueueChanged:
		h.queues = ev.Queues
		return
	}
	k, ok := h.at[ev.Job]
	if ev.Spec != nil {
		k, ok = h.at[ev.Spec.ID]
	}
	if !ok {
		return // submitted before the first journal
	}
	j := &h.jobs[k]
	if ev.Saves != engine.SavesUnknown {
		j.ignores = ev.Saves == engine.SavesNothing
	}
	j.saved = j.saved || ev.Saved > 0
	j.measured(ev)
	switch ev.Type {
	case engine.Updated:
		j.spec = *ev.Spec
	case engine.JobReshaped:
		j.hold(now)
		j.spec.Tasks, j.spec.Elastic = ev.Reshape.Tasks, cluster.Elastic{}
	case engine.Started:
		j.started, j.since, j.runs = now, now, true
	case engine.Cancelled:
		j.cancelled, j.ended, j.why, j.end = true, !j.runs, engine.WasCancelled, now // if it runs, Stopped follows
	case engine.Stopped:
		h.stopped(j, now, ev)
	}
}

// stopped ends a run. The work done is what the driver reports, otherwise the time on devices.
func (h *History) stopped(j *pastJob, now cluster.Time, ev *engine.Event) {
	did := ev.Done
	if did == 0 && j.runs {
		did = max(1, j.done+now.Sub(j.started)) // a busy daemon learns of the start and the end at once
	}
	j.hold(now)
	j.runs = false
	switch again := ev.Reason == engine.Preempted || ev.Reason == engine.NodeLost; {
	case again && j.cancelled:
		j.done, j.ended, j.end = did, true, now
	case again:
		j.done = ev.Done
	default:
		j.done, j.ended, j.why, j.end = did, true, ev.Reason, now
	}
}

// note keeps the outcome of a job that is replayed, and the costs of its stops.
func (h *History) note(j *pastJob) {
	was := pastOutcome{under: j.under}
	if j.why == engine.Completed || j.why == engine.Failed {
		was.jct = j.end.Sub(j.submit)
	}
	h.past = append(h.past, was)
	h.Costs.jobs, h.Costs.stated = append(h.Costs.jobs, j.took), append(h.Costs.stated, j.spec.Checkpoint)
}

// ErrNoHistory is returned for journals without a job to replay.
var ErrNoHistory = errors.New("the journal contains no job that was submitted, ran and ended in it")

// Workload makes a trace of the jobs with known run times. Time 0 is the first submission.
func (h *History) Workload() (*trace.Workload, *cluster.Spec, error) {
	wl := &trace.Workload{Name: "journal", Format: "journal"}
	spec := h.Header.Spec
	spec.Nodes, spec.Queues = h.nodes, h.queues
	slices.SortStableFunc(h.jobs, func(a, b pastJob) int { return int(min(1, max(-1, a.submit-b.submit))) })
	number := map[cluster.JobID]cluster.JobID{}
	open, never := 0, 0
	var origin cluster.Time
	for i := range h.jobs {
		j := &h.jobs[i]
		switch {
		case !j.ended:
			open++
		case j.done <= 0:
			never++
		}
		if !j.ended || j.done <= 0 {
			h.Costs.others = append(h.Costs.others, j.took)
			continue
		}
		if len(wl.Jobs) == 0 {
			origin = j.submit - j.submit%cluster.Time(time.Second) // whole seconds, like the epoch
		}
		number[j.spec.ID] = cluster.JobID(len(wl.Jobs))
		e := trace.Entry{Job: j.spec}
		e.Job.Tasks, e.Run = j.sized()
		switch j.why {
		case engine.Failed, engine.TimedOut:
			e.Outcome = trace.Failed
		case engine.WasCancelled:
			e.Outcome = trace.Cancelled
		}
		e.Job.ID, e.Job.Submit = number[j.spec.ID], j.submit-origin
		if e.Job.Deadline > 0 {
			e.Job.Deadline = max(1, e.Job.Deadline-origin)
		}
		if j.ignores && !j.saved && e.Job.Checkpoint.Interval == 0 {
			e.Job.Checkpoint.None = true
		}
		e.Job.Begin = max(0, e.Job.Begin-origin)
		e.Job.Hold, e.Job.Array, e.Job.NodeLimits, e.Job.Reservation = false, nil, nil, ""
		h.note(j)
		wl.Jobs = append(wl.Jobs, e)
	}
	if len(wl.Jobs) == 0 {
		return nil, nil, fmt.Errorf("%w: %d did not end, %d never ran", ErrNoHistory, open, never)
	}
	for i := range wl.Jobs { // dependencies on jobs that are left out are dropped
		var after []cluster.Dependency
		for _, d := range wl.Jobs[i].Job.After {
			if id, ok := number[d.Job]; ok && d.Type != cluster.Singleton && d.Elements <= 1 {
				d.Job = id
				after = append(after, d)
			}
		}
		wl.Jobs[i].Job.After = after
	}
	spec.Reservations = nil // reservations are for dates in the past
	if spec.Epoch != 0 {
		spec.Epoch += int64(time.Duration(origin) / time.Second)
		wl.Epoch = spec.Epoch
	}
	if open+never > 0 {
		h.Notes = append(h.Notes,
			fmt.Sprintf("left out of the history: %d jobs that have not ended, %d that never ran", open, never))
	}
	return wl, &spec, nil
}
