package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-gpu/muster/client"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/journal"
	"github.com/muster-gpu/muster/trace"
)

// history reads what is to be replayed: a trace, journals, or those of the daemon.
func (f *tuneFlags) history(c *cobra.Command) (*trace.Workload, *cluster.Spec, error) {
	if (f.trace != "" || f.demo) && len(f.journals) > 0 {
		return nil, nil, usage(fmt.Errorf("--from-journal excludes --trace and --demo"))
	}
	h := &pastJobs{at: map[cluster.JobID]int{}}
	switch {
	case f.trace != "" || f.demo:
		if f.current == "" {
			f.notes = append(f.notes, "gains are over "+daemonPolicy+", which muster serve runs unless told otherwise; --current names the policy in force")
		}
		f.defaults(daemonPolicy, "best-fit")
		return f.load1()
	case len(f.journals) > 0:
		for _, path := range f.journals {
			j, done, err := openJournal(path)
			if err != nil {
				return nil, nil, err
			}
			err = h.add(j)
			done()
			if err != nil {
				return nil, nil, err
			}
		}
	default:
		if err := f.fromDaemon(c, h); err != nil {
			return nil, nil, fmt.Errorf("the daemon's history: %w (or give --trace FILE, --from-journal FILE, --demo)", err)
		}
	}
	force := tuneName(h.header.Policy, h.header.Backfill)
	f.defaults(force, h.header.Placer)
	wl, spec, err := h.workload()
	if err != nil {
		return nil, nil, err
	}
	f.notes, f.past, f.force, f.book = h.notes, h.past, reignOf(&h.header), &h.book
	if f.cluster != "" || f.load != 0 {
		spec, err = f.clusterFor(wl)
	}
	return wl, spec, err
}

func tuneName(policy, backfill string) string {
	if backfill == "" {
		return policy
	}
	return policy + "+" + backfill
}

func (f *tuneFlags) defaults(current, placer string) {
	if f.current == "" {
		f.current = current
	}
	if f.placers == "" {
		f.placers = placer
	}
}

// fromDaemon reads every segment of the daemon's journal that is still stored.
func (f *tuneFlags) fromDaemon(c *cobra.Command, h *pastJobs) error {
	cl, read := client.Connect(), 0
	for n := 1; ; n++ {
		r, err := cl.Journal(c.Context(), n)
		var refused *client.Error
		if errors.As(err, &refused) && refused.Status == http.StatusNotFound && n > 1 {
			break
		}
		if errors.As(err, &refused) && refused.Status == http.StatusConflict {
			continue // its first step is not kept any more
		}
		if err != nil {
			return err
		}
		j, err := journal.NewReader(fmt.Sprintf("segment %d", n), r)
		if err == nil {
			err = h.add(j)
		}
		if err = errors.Join(err, r.Close()); err != nil {
			return err
		}
		read++
	}
	if read == 0 {
		return fmt.Errorf("no segment of its journal is kept in full")
	}
	return nil
}

// pastJobs gathers jobs from journals: what was submitted, and how long it
// really ran.
type pastJobs struct {
	header journal.Header // the last one's
	nodes  []cluster.Node
	queues []cluster.Queue
	jobs   []pastJob
	at     map[cluster.JobID]int
	notes  []string
	past   []wasRun // of the workload's jobs, in its order
	book   costBook // likewise
}

type pastJob struct {
	spec    cluster.Job
	submit  cluster.Time
	started cluster.Time
	runs    bool
	done    time.Duration // useful work before the present run
	ended   bool
	// cancelled: a person asked for its end, whatever its driver then says it stopped for.
	cancelled bool
	deaf      bool // asked for a checkpoint it saved nothing, as the daemon found
	saved     bool // ... but of its own accord, now and then
	why       engine.StopReason
	took      stopCosts
	wrote     bool         // a checkpoint, when it was stopped last
	end       cluster.Time // if it has ended
	under     reign        // when it came; zero: that has changed since
}

// add reads a journal to its end. Those of one daemon share their clock and
// their job numbers, so a job may begin in one and end in the next.
func (h *pastJobs) add(j *journal.Reader) error {
	if h.header.Version != "" && h.header.Spec.Epoch != j.Header.Spec.Epoch {
		return fmt.Errorf("journals of different daemons: their clocks begin at %d and %d (Unix seconds)", h.header.Spec.Epoch, j.Header.Spec.Epoch)
	}
	if now := reignOf(&j.Header); now != reignOf(&h.header) {
		for i := range h.jobs {
			if !h.jobs[i].ended {
				h.jobs[i].under = reign{}
			}
		}
	}
	h.header = j.Header
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

func reignOf(h *journal.Header) reign { return reign{h.Policy, h.Backfill, h.Placer} }

// join adds nodes that are not known by name yet.
func (h *pastJobs) join(nodes []cluster.Node) {
	for _, n := range nodes {
		if !slices.ContainsFunc(h.nodes, func(o cluster.Node) bool { return o.Name == n.Name }) {
			h.nodes = append(h.nodes, n)
		}
	}
}

func (h *pastJobs) event(now cluster.Time, ev *engine.Event) {
	switch ev.Type {
	case engine.Submitted:
		h.at[ev.Spec.ID] = len(h.jobs)
		h.jobs = append(h.jobs, pastJob{spec: *ev.Spec, submit: now, under: reignOf(&h.header)})
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
		j.deaf = ev.Saves == engine.SavesNothing
	}
	j.saved = j.saved || ev.Saved > 0
	j.measured(ev)
	switch ev.Type {
	case engine.Updated:
		j.spec = *ev.Spec
	case engine.Started:
		j.started, j.runs = now, true
	case engine.Cancelled:
		j.cancelled, j.ended, j.why, j.end = true, !j.runs, engine.WasCancelled, now // if it runs, Stopped follows
	case engine.Stopped:
		h.stopped(j, now, ev)
	}
}

// stopped ends a run. What a job did is what the driver says, else how long it
// was on its devices.
func (h *pastJobs) stopped(j *pastJob, now cluster.Time, ev *engine.Event) {
	did := ev.Done
	if did == 0 && j.runs {
		did = max(1, j.done+now.Sub(j.started)) // a daemon that was busy hears of the start and the end at once
	}
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

// note keeps what became of a job that is replayed, and what its stops took.
func (h *pastJobs) note(j *pastJob) {
	was := wasRun{under: j.under}
	if j.why == engine.Completed || j.why == engine.Failed {
		was.jct = j.end.Sub(j.submit)
	}
	h.past = append(h.past, was)
	h.book.jobs, h.book.stated = append(h.book.jobs, j.took), append(h.book.stated, j.spec.Checkpoint)
}

// errNoHistory is returned for journals without a job to replay.
var errNoHistory = errors.New("the journal holds no job that was submitted, ran and ended in it")

// workload makes a trace of the jobs whose run time is known. Time 0 is the
// first submission.
func (h *pastJobs) workload() (*trace.Workload, *cluster.Spec, error) {
	wl := &trace.Workload{Name: "journal", Format: "journal"}
	spec := h.header.Spec
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
			h.book.others = append(h.book.others, j.took)
			continue
		}
		if len(wl.Jobs) == 0 {
			origin = j.submit - j.submit%cluster.Time(time.Second) // whole seconds, as the epoch is
		}
		number[j.spec.ID] = cluster.JobID(len(wl.Jobs))
		e := trace.Entry{Job: j.spec, Run: j.done}
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
		if j.deaf && !j.saved && e.Job.Checkpoint.Interval == 0 {
			e.Job.Checkpoint.None = true
		}
		e.Job.Begin = max(0, e.Job.Begin-origin)
		e.Job.Hold, e.Job.Array, e.Job.NodeLimits, e.Job.Reservation = false, nil, nil, ""
		h.note(j)
		wl.Jobs = append(wl.Jobs, e)
	}
	if len(wl.Jobs) == 0 {
		return nil, nil, fmt.Errorf("%w: %d did not end, %d never ran", errNoHistory, open, never)
	}
	for i := range wl.Jobs { // who waits for a job that is left out waits for nothing
		var after []cluster.Dependency
		for _, d := range wl.Jobs[i].Job.After {
			if id, ok := number[d.Job]; ok && d.Type != cluster.Singleton && d.Elements <= 1 {
				d.Job = id
				after = append(after, d)
			}
		}
		wl.Jobs[i].Job.After = after
	}
	spec.Reservations = nil // they are dates that are over
	if spec.Epoch != 0 {
		spec.Epoch += int64(time.Duration(origin) / time.Second)
		wl.Epoch = spec.Epoch
	}
	if open+never > 0 {
		h.notes = append(h.notes, fmt.Sprintf("left out of the history: %d jobs that have not ended, %d that never ran", open, never))
	}
	return wl, &spec, nil
}
