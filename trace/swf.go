package trace

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// swfFormat is the Standard Workload Format of the Parallel Workloads Archive,
// version 2.2: comment lines with ";", then 18 numbers a line, -1 for unknown.
// Its processors are read as GPUs.
var swfFormat = Format{
	Name:   "swf",
	About:  "Standard Workload Format (.swf); processors are read as GPUs",
	Detect: detectSWF,
	Read:   readSWF,
}

// The fields in use, in the order of the standard.
const (
	swfID, swfSubmit, swfRun, swfAlloc = 0, 1, 3, 4
	swfReq, swfLimit, swfStatus        = 7, 8, 10
	swfUser, swfQueue, swfAfter        = 11, 14, 16
	swfFields                          = 18
)

var swfNames = [swfFields]string{"job number", "submit time", "wait time", "run time", "allocated processors",
	"average CPU time", "used memory", "requested processors", "requested time", "requested memory", "status",
	"user", "group", "executable", "queue", "partition", "preceding job", "think time"}

func detectSWF(head []byte, name string) bool {
	for line := range bytes.Lines(head) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == ';' {
			continue
		}
		f := bytes.Fields(line)
		if len(f) != swfFields {
			return false
		}
		for _, v := range f {
			if _, err := strconv.ParseFloat(string(v), 64); err != nil {
				return false
			}
		}
		return true
	}
	return bytes.HasSuffix([]byte(name), []byte(".swf"))
}

func readSWF(b *Builder) error {
	in := lines{in: b.in}
	t := &table{b: b, header: swfNames[:]} // for its accessors and messages
	unknown, parts, chained := 0, 0, 0
	for t.err == nil {
		line, long, err := b.row(&in)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if line[0] == ';' {
			b.swfComment(line)
			continue
		}
		t.line, t.reason, t.fields = in.n, "", bytes.Fields(line)
		if long || len(t.fields) != swfFields {
			t.err = b.bad(in.n, "has "+strconv.Itoa(len(t.fields))+" fields, must be 18 numbers")
			continue
		}
		var e Entry
		status := t.num(swfStatus, -1, 5)
		run, procs := t.swfAmount(swfRun), t.num(swfAlloc, -1, cluster.MaxTasks)
		if req := t.num(swfReq, -1, cluster.MaxTasks); procs <= 0 {
			procs = req
		}
		switch {
		case t.reason == "" && status >= 2 && status <= 4:
			parts++ // one part of a job that also has a line of its own
			continue
		case t.reason == "" && (run < 0 || procs <= 0):
			unknown++
			continue
		case status == 0:
			e.Outcome = Failed
		case status == 5:
			e.Outcome = Cancelled
		}
		if t.num(swfAfter, -1, 1<<40) > 0 {
			chained++
		}
		t.swfJob(&e, run, int(max(procs, 1)))
		t.emit(&e)
	}
	for _, n := range []struct {
		n    int
		what string
	}{{unknown, "left out: %d jobs without a run time or a number of processors"},
		{parts, "left out: %d partial executions (status 2 to 4)"},
		{chained, "%d jobs name a preceding job; their submission times are taken as they are"}} {
		if n.n > 0 {
			b.note(n.what, n.n)
		}
	}
	return t.err
}

func (t *table) swfJob(e *Entry, run time.Duration, procs int) {
	e.Run = max(run, 0)
	e.Job.Tier = cluster.Standard
	e.Job.Name = t.str(swfID)
	e.Job.Submit = t.at(swfSubmit, time.Second)
	if n := t.num(swfUser, -1, 1<<40); n >= 0 {
		e.Job.User = t.b.text(strconv.AppendInt([]byte("u"), n, 10))
	}
	if n := t.num(swfQueue, -1, 1<<40); n >= 0 {
		e.Job.Queue = t.b.text(strconv.AppendInt([]byte("q"), n, 10))
	}
	e.Job.Limit = max(t.swfAmount(swfLimit), 0)
	t.b.gang(e, procs, 0, 0)
}

// swfAmount reads seconds; -1 means unknown and comes back negative.
func (t *table) swfAmount(i int) time.Duration {
	f := t.raw(i)
	if v, err := strconv.ParseFloat(string(f), 64); err == nil && v == -1 {
		return -1
	}
	d, ok := parseAmount(f, time.Second)
	if !ok {
		t.fail(i, fmt.Sprintf("a number of seconds from 0 to %d (100 years), or -1 for unknown",
			cluster.MaxDuration/time.Second))
	}
	return d
}

// swfComment takes the start of the log from the header comments.
func (b *Builder) swfComment(line []byte) {
	key, value, ok := bytes.Cut(bytes.TrimLeft(line, "; \t"), []byte(":"))
	if !ok || string(bytes.TrimSpace(key)) != "UnixStartTime" {
		return
	}
	n, err := strconv.ParseInt(string(bytes.TrimSpace(value)), 10, 64)
	if err == nil && n > 0 && n < int64(cluster.MaxDuration/time.Second) {
		b.wl.Epoch = n
	}
}
