package trace

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

const (
	chunkJobs  = 4096     // entries allocated together, to avoid copies
	maxBadKept = 1000     // reasons kept for skipped rows; further ones are only counted
	maxLine    = 16 << 20 // longest line, bytes
	maxSteps   = 1e15     // maximum training iterations of one job
)

// Builder collects the jobs of a trace. A format's Read calls table (or reads
// in itself) and add; the rest is shared: order, ids, origin, bad rows, notes.
type Builder struct {
	wl       *Workload
	file     string
	in       *bufio.Reader
	opt      Options
	calendar bool // submission times are Unix times: Time 0 becomes the first
	verbatim bool // the input is Muster's own: its notes and ids are kept
	chunks   [][]Entry
	tasks    []cluster.TaskSet
	strs     map[string]string
	unsorted int
	zero     int
	noGPU    int
	last     cluster.Time
}

func newBuilder(file, format string, in *bufio.Reader, o Options) *Builder {
	name := stem(file)
	if ext := filepath.Ext(name); ext != "" && len(ext) < len(name) {
		name = strings.TrimSuffix(name, ext)
	}
	return &Builder{
		wl:   &Workload{Name: strings.ToValidUTF8(name, "\ufffd"), Format: format},
		file: file, in: in, opt: o, strs: map[string]string{},
	}
}

// note adds a remark for the reader of the trace.
func (b *Builder) note(format string, args ...any) {
	b.wl.Notes = append(b.wl.Notes, fmt.Sprintf(format, args...))
}

// bad reports a malformed row: an error, unless such rows are to be skipped.
func (b *Builder) bad(line int, reason string) error {
	e := RowError{File: b.file, Line: line, Reason: reason}
	if !b.opt.SkipBad {
		return e
	}
	b.wl.BadAll++
	if len(b.wl.Bad) < maxBadKept {
		b.wl.Bad = append(b.wl.Bad, e)
	}
	return nil
}

// fatal returns an error that cannot be skipped.
func (b *Builder) fatal(line int, format string, args ...any) error {
	return RowError{File: b.file, Line: line, Reason: fmt.Sprintf(format, args...)}
}

// text interns a string; bytes that are not UTF-8 become U+FFFD, because the result must be valid
// JSON.
func (b *Builder) text(s []byte) string {
	if v, ok := b.strs[string(s)]; ok {
		return v
	}
	v := strings.ToValidUTF8(string(s), "\ufffd")
	// A column of unique values would grow the table for nothing.
	if len(b.strs) < 1<<16 {
		b.strs[v] = v
	}
	return v
}

// set returns a one-element task list from a shared slab.
func (b *Builder) set(count int, r cluster.Request) []cluster.TaskSet {
	if len(b.tasks) == 0 {
		b.tasks = make([]cluster.TaskSet, chunkJobs)
	}
	s := b.tasks[:1:1]
	b.tasks = b.tasks[1:]
	s[0] = cluster.TaskSet{Count: count, Request: r}
	return s
}

// gang sets the entry's tasks for a job with the given number of GPUs; the CPU (milli-cores) and
// host memory (MiB) of the whole job are spread evenly. A job without GPUs becomes one CPU task.
func (b *Builder) gang(e *Entry, gpus int, cpu cluster.Milli, ram cluster.MiB) {
	if gpus == 0 {
		e.Job.Tasks = b.set(1, cluster.Request{CPU: cpu, RAM: ram})
		return
	}
	e.Flexible = true
	e.Job.Tasks = b.set(gpus, cluster.Request{GPUs: 1,
		CPU: cpu / int64(gpus), RAM: ram / int64(gpus)})
}

// add takes a job read from the given line.
func (b *Builder) add(e *Entry, line int) error {
	if reason := checkEntry(e); reason != "" {
		return b.bad(line, reason)
	}
	if len(b.chunks) == 0 || len(b.chunks[len(b.chunks)-1]) == chunkJobs {
		b.chunks = append(b.chunks, make([]Entry, 0, chunkJobs))
	}
	last := &b.chunks[len(b.chunks)-1]
	*last = append(*last, *e)
	if e.Job.Submit < b.last {
		b.unsorted++
	}
	b.last = e.Job.Submit
	if e.Run == 0 && e.Job.Kind != cluster.Service {
		b.zero++
	}
	if e.Job.GPUs() == 0 && e.Job.Tasks[0].Request.Profile == "" {
		b.noGPU++
	}
	return nil
}

// checkEntry holds the limits common to all formats: accepted values can be added and multiplied
// without overflow.
func checkEntry(e *Entry) string {
	j := &e.Job
	for _, t := range []struct {
		name string
		at   cluster.Time
	}{{"submit", j.Submit}, {"deadline", j.Deadline}, {"end", e.End}, {"begin", j.Begin}} {
		if t.at < 0 || time.Duration(t.at) > cluster.MaxDuration {
			return fmt.Sprintf("%s %d ns: must be between 0 and 100 years", t.name, t.at)
		}
	}
	for _, d := range []struct {
		name string
		d    time.Duration
	}{{"run", e.Run}, {"limit", j.Limit}, {"estimate", j.Estimate}, {"checkpoint interval", j.Checkpoint.Interval},
		{"checkpoint cost", j.Checkpoint.Cost}, {"checkpoint restart", j.Checkpoint.Restart}} {
		if d.d < 0 || d.d > cluster.MaxDuration {
			return fmt.Sprintf("%s %d ns: must be between 0 and 100 years", d.name, d.d)
		}
	}
	if int(e.Outcome) >= len(outcomeNames) {
		return fmt.Sprintf("outcome %d: must be 0 to %d", e.Outcome, len(outcomeNames)-1)
	}
	if j.MinSpeed < 0 || j.MinSpeed > 1_000_000 {
		return fmt.Sprintf("least speed %d: must be between 0 and 1000000", j.MinSpeed)
	}
	if err := j.Traffic.Check(); err != nil {
		return "traffic: " + err.Error()
	}
	if j.Skew < 0 || j.Skew > cluster.MaxMilli {
		return fmt.Sprintf("skew %d: must be between 0 and %d", j.Skew, cluster.MaxMilli)
	}
	if j.Elastic.Min < 0 || j.Elastic.Max < j.Elastic.Min || j.Elastic.Max > cluster.MaxTasks {
		return fmt.Sprintf("elastic %d..%d: must be 0 <= min <= max <= %d", j.Elastic.Min, j.Elastic.Max,
			cluster.MaxTasks)
	}
	if a := j.Array; a != nil && (a.Index < 0 || a.Cap < 0) {
		return fmt.Sprintf("array index %d, cap %d: must be 0 or more", a.Index, a.Cap)
	}
	if w := e.Work; w != nil {
		if !(w.Steps >= 0 && w.Steps <= 1e15) || w.Batch < 0 || w.Step < 0 || w.Step > cluster.MaxDuration {
			return "work: steps, batch and step time must be 0 or more, and below 10^15 steps and 100 years"
		}
		for _, s := range w.Stages {
			if s < 0 || s > cluster.MaxDuration {
				return fmt.Sprintf("stage time %d ns: must be between 0 and 100 years", s)
			}
		}
	}
	return checkTasks(e)
}

func checkTasks(e *Entry) string {
	if len(e.Job.Tasks) == 0 {
		return "tasks: a job needs at least one task"
	}
	total := 0
	for i := range e.Job.Tasks {
		t := &e.Job.Tasks[i]
		r := &t.Request
		if t.Count < 1 || t.Count > cluster.MaxTasks {
			return fmt.Sprintf("%d tasks: must be 1 to %d", t.Count, cluster.MaxTasks)
		}
		if total += t.Count; total > cluster.MaxTasks {
			return fmt.Sprintf("more than %d tasks in one job", cluster.MaxTasks)
		}
		switch {
		case r.GPUs < 0 || r.GPUs > cluster.MaxGPUsPerNode:
			return fmt.Sprintf("%d GPUs in one task: must be 0 to %d", r.GPUs, cluster.MaxGPUsPerNode)
		case r.Share < 0 || r.Share > cluster.Whole:
			return fmt.Sprintf("share %d: must be 0 to %d milli-GPU", r.Share, cluster.Whole)
		case r.CPU < 0 || r.CPU > cluster.MaxMilli:
			return fmt.Sprintf("cpu %d: must be 0 to %d milli-cores", r.CPU, cluster.MaxMilli)
		case r.RAM < 0 || r.RAM > cluster.MaxMiB:
			return fmt.Sprintf("ram %d: must be 0 to %d MiB", r.RAM, cluster.MaxMiB)
		case r.Memory < 0 || r.Memory > cluster.MaxMiB:
			return fmt.Sprintf("GPU memory %d: must be 0 to %d MiB", r.Memory, cluster.MaxMiB)
		}
	}
	if e.Flexible && (len(e.Job.Tasks) != 1 || e.Job.Tasks[0].Request.GPUs != 1) {
		return "flexible: only for one set of one-GPU tasks"
	}
	return ""
}

// finish sorts and numbers the jobs and moves the origin.
func (b *Builder) finish() (*Workload, error) {
	jobs := b.sorted()
	if b.calendar && len(jobs) > 0 {
		b.wl.Epoch = int64(jobs[0].Job.Submit) / int64(time.Second)
		shift := cluster.Time(b.wl.Epoch) * cluster.Time(time.Second)
		for i := range jobs {
			e := &jobs[i]
			for _, t := range []*cluster.Time{&e.Job.Submit, &e.Job.Deadline, &e.Job.Begin, &e.End} {
				// 0 means "none" for all but Submit; an instant before the origin is in the past.
				if *t > 0 {
					*t = max(*t-shift, 0)
				}
			}
		}
	}
	if b.verbatim {
		if err := b.renumber(jobs); err != nil {
			return nil, err
		}
	}
	for i := range jobs {
		jobs[i].Job.ID = cluster.JobID(i)
	}
	if n := b.opt.Limit; n > 0 && n < len(jobs) {
		if err := b.within(jobs[:n]); err != nil {
			return nil, err
		}
		b.note("only the first %d of %d jobs", n, len(jobs))
		jobs = slices.Clip(jobs[:n])
	}
	b.wl.Jobs = jobs
	b.remarks()
	return b.wl, nil
}

func (b *Builder) remarks() {
	if b.verbatim {
		return
	}
	if b.unsorted > 0 {
		b.note("%d rows are earlier than the row before them; jobs were sorted by submission", b.unsorted)
	}
	if b.zero > 0 {
		b.note("%d jobs have no run time (0 s)", b.zero)
	}
	if b.noGPU > 0 {
		b.note("%d jobs ask for no GPU", b.noGPU)
	}
	if len(b.wl.Jobs) == 0 && len(b.wl.Nodes) == 0 {
		b.note("the trace contains no jobs")
	}
}

// sorted returns the collected jobs by submission, ties in file order.
func (b *Builder) sorted() []Entry {
	type key struct {
		submit cluster.Time
		row    int32
	}
	var keys []key
	for c, chunk := range b.chunks {
		for i := range chunk {
			keys = append(keys, key{chunk[i].Job.Submit, int32(c*chunkJobs + i)})
		}
	}
	if b.unsorted > 0 {
		slices.SortFunc(keys, func(x, y key) int {
			return cmp.Or(cmp.Compare(x.submit, y.submit), cmp.Compare(x.row, y.row))
		})
	}
	jobs := make([]Entry, len(keys))
	for i, k := range keys {
		jobs[i] = b.chunks[k.row/chunkJobs][k.row%chunkJobs]
	}
	b.chunks = nil
	if len(jobs) == 0 {
		return nil
	}
	return jobs
}

// renumber makes ids dense and adjusts references. A file whose jobs have no ids (all 0) must have
// no references.
func (b *Builder) renumber(jobs []Entry) error {
	now := make(map[cluster.JobID]cluster.JobID, len(jobs))
	refs, dense := false, true
	for i := range jobs {
		j := &jobs[i].Job
		if _, twice := now[j.ID]; twice {
			dense = false
		}
		now[j.ID] = cluster.JobID(i)
		refs = refs || len(j.After) > 0 || j.Array != nil
	}
	if !refs {
		return nil
	}
	if !dense {
		return b.fatal(0, "jobs refer to each other by id, but ids occur twice; give each job its own id")
	}
	for i := range jobs {
		j := &jobs[i].Job
		for k := range j.After {
			to, ok := now[j.After[k].Job]
			if !ok && j.After[k].Type != cluster.Singleton {
				return b.fatal(0, "job %d waits for job %d, which is not in the trace", j.ID, j.After[k].Job)
			}
			for e := 1; e < j.After[k].Elements; e++ {
				if next, ok := now[j.After[k].Job+cluster.JobID(e)]; !ok || next != to+cluster.JobID(e) {
					return b.fatal(0, "job %d waits for %d jobs from %d on: they must follow each other in the trace",
						j.ID, j.After[k].Elements, j.After[k].Job)
				}
			}
			j.After[k].Job = to
		}
		if j.Array != nil {
			to, ok := now[j.Array.ID]
			if !ok {
				return b.fatal(0, "job %d is an element of array %d, which is not in the trace", j.ID, j.Array.ID)
			}
			j.Array.ID = to
		}
	}
	return nil
}

// within checks that the kept jobs do not refer to jobs beyond the limit.
func (b *Builder) within(jobs []Entry) error {
	for i := range jobs {
		j := &jobs[i].Job
		for _, a := range j.After {
			if int(a.Last()) >= len(jobs) {
				return b.fatal(0, "the first %d jobs refer to later ones (job %d waits for job %d); raise the limit",
					len(jobs), j.ID, a.Job)
			}
		}
		if j.Array != nil && int(j.Array.ID) >= len(jobs) {
			return b.fatal(0, "the first %d jobs refer to later ones (array %d); raise the limit", len(jobs),
				j.Array.ID)
		}
	}
	return nil
}

// lines reads a file line by line, with numbers.
type lines struct {
	in   *bufio.Reader
	buf  []byte
	n    int      // number of the last line returned
	undo [][]byte // lines given back, to be read again
	eof  bool
}

// row returns the next line that is not blank, without blanks around it; io.EOF after the last.
func (b *Builder) row(in *lines) (line []byte, long bool, err error) {
	for {
		line, long, err = in.next()
		switch {
		case errors.Is(err, io.EOF):
			return nil, false, io.EOF
		case err != nil:
			return nil, false, b.fatal(in.n, "%s", readError(err))
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			return line, long, nil
		}
	}
}

// next returns the next line without its end, io.EOF after the last. A line beyond maxLine is
// truncated, with long set.
func (l *lines) next() (line []byte, long bool, err error) {
	if len(l.undo) > 0 {
		line, l.undo = l.undo[0], l.undo[1:]
		l.n++
		return line, false, nil
	}
	if l.eof {
		return nil, false, io.EOF
	}
	l.buf = l.buf[:0]
	part, err := l.in.ReadSlice('\n')
	for errors.Is(err, bufio.ErrBufferFull) {
		if len(l.buf) <= maxLine {
			l.buf = append(l.buf, part...)
		} else {
			long = true
		}
		part, err = l.in.ReadSlice('\n')
	}
	if len(l.buf) > 0 {
		l.buf = append(l.buf, part...)
		part = l.buf
	}
	if err == io.EOF {
		l.eof = true
		if len(part) == 0 {
			return nil, false, io.EOF
		}
		err = nil
	}
	l.n++
	if l.n == 1 {
		part = trimBOM(part)
	}
	part = bytes.TrimSuffix(part, []byte("\n"))
	return bytes.TrimSuffix(part, []byte("\r")), long || len(part) > maxLine, err
}
