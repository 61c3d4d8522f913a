package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/progress"
)

// progressFile is what the sidecar knows of the job's progress file.
type progressFile struct {
	// Count goes on when the file begins again, so that it is seen that something is new
	lines   progress.Lines
	info    os.FileInfo              // the one that is read; nil: none was yet
	at      int64                    // up to where it is read
	tail    []byte                   // what stands before that: if it does not any more, the file was written again
	skip    bool                     // ... in the middle of a line that is too long to be one
	written time.Time                // when the file was written to last, as of that
	metrics map[int]map[string]point // by trial
}

const tailMost = 256 // bytes

// point is the last value of a metric.
type point struct {
	step float64
	v    *float64 // nil: no number
	line int      // in which it was said
}

// read takes in what is new in the file; whole: a last line without its end counts.
func (r *podReporter) read(whole bool) {
	err := r.readFile(whole)
	if errors.Is(err, syscall.ELOOP) {
		err = fmt.Errorf("%s is a symbolic link, or behind too many: want the file itself", r.file)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // the job has not begun to write
		r.warn("file: "+err.Error(), "the progress file cannot be read", "reason", err.Error(), "user", os.Geteuid())
	}
}

func (r *podReporter) readFile(whole bool) error {
	file, err := os.OpenFile(r.file, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	fi, err := file.Stat()
	if err != nil {
		return err
	}
	if !fi.Mode().IsRegular() {
		return fmt.Errorf("%s is no regular file", r.file)
	}
	same, err := r.same(file, fi)
	if err != nil {
		return err
	}
	if !same {
		r.progressFile = progressFile{lines: progress.Lines{Count: r.lines.Count}, metrics: map[int]map[string]point{}}
	}
	r.info = fi
	for r.at < fi.Size() {
		text, err := io.ReadAll(io.NewSectionReader(file, r.at, readMost))
		if err != nil || len(text) == 0 {
			return err
		}
		used := r.take(text, whole && len(text) < readMost, fi.ModTime())
		if used == 0 && len(text) < readMost {
			return nil // a line that is not complete yet
		}
		if used == 0 {
			used, r.skip = len(text), true
		}
		r.at += int64(used)
		r.tail = append(r.tail, text[max(0, used-tailMost):used]...)
		r.tail = slices.Clone(r.tail[max(0, len(r.tail)-tailMost):])
	}
	return nil
}

// same reports whether what was read of the file stands there still: it is no other one, is not shorter, and
// what was read last is where it was. A file that takes the place of one that was deleted may have its number.
func (r *podReporter) same(file io.ReaderAt, fi os.FileInfo) (bool, error) {
	switch {
	case r.info == nil:
		return true, nil
	case !os.SameFile(fi, r.info) || fi.Size() < r.at:
		return false, nil
	}
	text := make([]byte, len(r.tail))
	if _, err := file.ReadAt(text, r.at-int64(len(text))); err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	return bytes.Equal(text, r.tail), nil
}

// take takes in lines, and returns how many bytes of them.
func (r *podReporter) take(text []byte, whole bool, written time.Time) (used int) {
	if r.skip {
		n := bytes.IndexByte(text, '\n') + 1
		r.skip = n == 0
		if n == 0 {
			n = len(text)
		}
		return n
	}
	for used < len(text) {
		n := bytes.IndexByte(text[used:], '\n') + 1
		if n == 0 {
			n = len(text) - used
		}
		before := r.lines
		n, heard, _ := r.lines.Take(text[used:used+n], whole)
		if n == 0 {
			break
		}
		used += n
		if heard {
			r.written = written
			r.mend(&before)
			r.keep()
		}
	}
	return used
}

// mend leaves out what makes no sense of a line, so that the rest is reported: what was known before it stays.
func (r *podReporter) mend(before *progress.Lines) {
	l := &r.lines
	if l.Last.Steps < 0 {
		r.odd("steps", l.Last.Steps)
		l.Last.Steps = 0 // as if it did not say
	}
	for {
		rep := api.Report{Progress: l.Last}
		var field *api.FieldError
		if !errors.As(rep.Check(), &field) {
			return
		}
		was, now := &before.Last, &l.Last
		switch field.Field {
		case "progress.step":
			r.odd("step", now.Step)
			now.Step = was.Step
			// the step at which it was saved is not known
			if now.Checkpoint != was.Checkpoint || l.SavedAt != before.SavedAt {
				now.Checkpoint, l.SavedAt = was.Checkpoint, before.SavedAt
			}
			for i := range l.Said {
				l.Said[i].Step = was.Step
			}
		case "progress.steps":
			r.odd("steps", now.Steps)
			now.Steps = was.Steps
		case "progress.epoch":
			r.odd("epoch", now.Epoch)
			now.Epoch = was.Epoch
		case "progress.samples_per_s":
			r.odd("samples_per_s", now.SamplesPerSec)
			now.SamplesPerSec = was.SamplesPerSec
		default:
			r.odd("checkpoint", field.Text)
			now.Checkpoint, l.SavedAt = was.Checkpoint, before.SavedAt
			return
		}
	}
}

// odd says once of a field that it makes no sense.
func (r *podReporter) odd(field string, value any) {
	r.warn("field: "+field, "a field of the progress file makes no sense and is left out", "field", field, "value",
		value)
}

// keep keeps the last value of each metric of each trial.
func (r *podReporter) keep() {
	for _, m := range r.lines.Said {
		of := r.metrics[m.Trial]
		if of == nil {
			if len(r.metrics) == api.MaxTrials {
				continue
			}
			of = map[string]point{}
			r.metrics[m.Trial] = of
		}
		for _, name := range slices.Sorted(maps.Keys(m.Of)) {
			if _, known := of[name]; known || len(of) < api.MaxMetrics && len(name) <= api.MaxMetric {
				of[name] = point{m.Step, m.Of[name], r.lines.Count}
			}
		}
	}
	r.lines.Said = nil
}

// forget drops a sixteenth of the metrics, one at least: those that were said longest ago.
func (r *podReporter) forget() {
	type metric struct {
		trial int
		name  string
		line  int
	}
	var list []metric
	for _, trial := range slices.Sorted(maps.Keys(r.metrics)) {
		for _, name := range slices.Sorted(maps.Keys(r.metrics[trial])) {
			list = append(list, metric{trial, name, r.metrics[trial][name].line})
		}
	}
	slices.SortStableFunc(list, func(a, b metric) int { return cmp.Compare(a.line, b.line) })
	for _, m := range list[:(len(list)+15)/16] {
		if delete(r.metrics[m.trial], m.name); len(r.metrics[m.trial]) == 0 {
			delete(r.metrics, m.trial)
		}
	}
}

// kept are the metrics, those of one trial and step together.
func (r *podReporter) kept() (list []api.Metrics) {
	for _, trial := range slices.Sorted(maps.Keys(r.metrics)) {
		at := map[float64]int{}
		of := r.metrics[trial]
		for _, name := range slices.Sorted(maps.Keys(of)) {
			p := of[name]
			i, known := at[p.step]
			if !known {
				i = len(list)
				at[p.step] = i
				list = append(list, api.Metrics{Trial: trial, Step: p.step, Of: map[string]*float64{}})
			}
			list[i].Of[name] = p.v
		}
	}
	return list
}
