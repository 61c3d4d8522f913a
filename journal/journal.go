// Package journal writes what went into an engine and the hashes of what came
// out, and plays it back: a live incident, copied and replayed, takes the same
// decisions. The format is JSON lines: a header, then one line per step.
package journal

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/internal/oldkeys"
)

// Version is the format's. Header.Names says what keys are called in it; the version before had no such number.
const (
	Version  = "muster.journal/v2"
	version1 = "muster.journal/v1"
)

// Header says how to build the engine that took the decisions.
type Header struct {
	Version string `json:"version"`
	Names   int    `json:"names"` // oldkeys.Current of the program that wrote it
	config.Rules
	Snapshot *engine.Snapshot `json:"snapshot,omitempty"` // what the engine knew already; absent: nothing
}

// Stamp says in a header which version of this program writes.
func (h *Header) Stamp() { h.Version, h.Names = Version, oldkeys.Current }

// ReadHeader reads a header of this version of the format or of an earlier one; names is what the steps after it are
// written with.
func ReadHeader(text []byte) (h Header, names int, err error) {
	var v struct {
		Version string `json:"version"`
	}
	if err := json.Unmarshal(text, &v); err != nil {
		return h, 0, fmt.Errorf("not a journal: %w", err)
	}
	if names, err = oldkeys.Of(text); err != nil {
		return h, 0, err
	}
	switch {
	case v.Version != Version && v.Version != version1:
		return h, 0, fmt.Errorf("version %q; this program reads %s and %s", v.Version, version1, Version)
	case names > oldkeys.Current:
		return h, 0, oldkeys.ErrNewer
	}
	if err := oldkeys.UnmarshalAs(oldkeys.Header, names, text, &h); err != nil {
		return h, 0, fmt.Errorf("not a journal: %w", err)
	}
	h.Stamp()
	return h, names, nil
}

// NewEngine builds the engine that the header describes.
func (h *Header) NewEngine() (*engine.Engine, error) {
	if h.Snapshot == nil {
		return h.Rules.NewEngine()
	}
	cfg, err := h.Config()
	if err != nil {
		return nil, err
	}
	return engine.Restore(cfg, h.Snapshot)
}

// line is one step. The hash is text: JSON numbers lose 64-bit integers.
type line struct {
	engine.Batch
	Hash string `json:"hash"`
}

// Writer writes a journal. It is not safe for concurrent use.
type Writer struct {
	w   *bufio.Writer
	enc *json.Encoder
}

// NewWriter writes the header and returns a writer for the steps.
func NewWriter(w io.Writer, h Header) (*Writer, error) {
	h.Stamp()
	h.Pin()
	b := bufio.NewWriterSize(w, 1<<16)
	j := &Writer{w: b, enc: json.NewEncoder(b)}
	j.enc.SetEscapeHTML(false)
	return j, j.enc.Encode(h)
}

// Record writes one step (driver.Journal).
func (j *Writer) Record(b *engine.Batch, d *engine.Decision) error {
	return j.enc.Encode(line{*b, strconv.FormatUint(d.Hash, 16)})
}

// Flush writes out what is buffered.
func (j *Writer) Flush() error { return j.w.Flush() }

// Reader reads a journal.
type Reader struct {
	Header Header
	name   string
	names  int // of the keys in it
	dec    *json.Decoder
	step   int64
	most   cluster.JobID // highest number so far
}

// NewReader reads the header; name stands in error messages.
func NewReader(name string, r io.Reader) (*Reader, error) {
	j := &Reader{name: name, dec: json.NewDecoder(bufio.NewReaderSize(r, 1<<16))}
	var text json.RawMessage
	err := j.dec.Decode(&text)
	if err != nil {
		return nil, fmt.Errorf("%s: not a journal: %w", name, err)
	}
	if j.Header, j.names, err = ReadHeader(text); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if s := j.Header.Snapshot; s != nil {
		if s.Next < 0 || s.Next > mostJobs {
			return nil, fmt.Errorf("%s: the snapshot's next number, %d, is out of range", name, s.Next)
		}
		j.most = s.Next
	}
	return j, nil
}

func (j *Reader) decode(l *line) error {
	if j.names == oldkeys.Current {
		return j.dec.Decode(l)
	}
	var text json.RawMessage
	if err := j.dec.Decode(&text); err != nil {
		return err
	}
	return oldkeys.UnmarshalAs(oldkeys.Step, j.names, text, l)
}

// Next returns the next step and the hash recorded with it; io.EOF ends it.
func (j *Reader) Next() (engine.Batch, uint64, error) {
	var l line
	if err := j.decode(&l); err != nil {
		if errors.Is(err, io.EOF) {
			return engine.Batch{}, 0, io.EOF
		}
		return engine.Batch{}, 0, fmt.Errorf("%s: step %d: %w", j.name, j.step+1, err)
	}
	j.step++
	h, err := strconv.ParseUint(l.Hash, 16, 64)
	if err != nil {
		return engine.Batch{}, 0, fmt.Errorf("%s: step %d: hash %q is not hexadecimal", j.name, j.step, l.Hash)
	}
	for i := range l.Events { // a job must be one that the engine can book
		ev := &l.Events[i]
		if ev.Spec != nil && (ev.Spec.ID < 0 || ev.Spec.ID > j.most+maxGap) ||
			ev.Type == engine.Submitted && ev.Spec == nil {
			return engine.Batch{}, 0, fmt.Errorf("%s: step %d: event %d has no valid job", j.name, j.step, i)
		}
		if ev.Spec != nil {
			j.most = max(j.most, ev.Spec.ID)
		}
	}
	return l.Batch, h, nil
}

// maxGap bounds how far job numbers, which are dense, may jump: the engine keeps
// a slot for each, and a damaged file must not ask for all memory.
const maxGap = 1 << 16

// mostJobs bounds, for the same reason, what a snapshot may begin with.
const mostJobs = 1 << 24

// ErrDiffers marks a replay whose decisions are not those of the journal.
var ErrDiffers = errors.New("this program decides differently")

// Replay feeds the journal to a new engine until just after the instant until,
// comparing each hash. It returns the engine in the state it then has.
func Replay(j *Reader, until cluster.Time) (e *engine.Engine, steps int64, err error) {
	return Watch(j, until, nil)
}

// Watcher looks at the engine after a step.
type Watcher func(b *engine.Batch, d *engine.Decision) error

// Watch is a Replay with an observer: watcher is given the engine before the first step; nil: there is none.
func Watch(j *Reader, until cluster.Time, watcher func(*engine.Engine) Watcher) (e *engine.Engine, steps int64,
	err error) {
	e, err = j.Header.NewEngine()
	if err != nil {
		return nil, 0, fmt.Errorf("%s: %w", j.name, err)
	}
	last, look := cluster.Time(0), Watcher(nil)
	if s := j.Header.Snapshot; s != nil {
		last = s.Now
	}
	if watcher != nil {
		look = watcher(e)
	}
	for {
		b, want, err := j.Next()
		if errors.Is(err, io.EOF) {
			return e, steps, nil
		}
		if err != nil {
			return e, steps, err
		}
		if b.Now < last {
			return e, steps, fmt.Errorf("%s: step %d: time runs backwards", j.name, j.step)
		}
		if b.Now > until {
			return e, steps, nil
		}
		last = b.Now
		d := e.Step(b)
		if d.Hash != want {
			return e, steps, fmt.Errorf("%s: step %d at %v: decision hash %x, recorded %x: %w",
				j.name, j.step, b.Now, d.Hash, want, ErrDiffers)
		}
		steps++
		if look != nil {
			if err := look(&b, &d); err != nil {
				return e, steps, fmt.Errorf("%s: step %d at %v: %w", j.name, j.step, b.Now, err)
			}
		}
	}
}
