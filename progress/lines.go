// Package progress handles the progress that jobs report: it reads progress files
// (MUSTER_PROGRESS), measures a job's speed by its own account, and turns reports into engine
// events. Machine and cluster share it.
package progress

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/muster-gpu/muster/show"
)

// Lines is what the lines of progress files have reported.
type Lines struct {
	Last     show.Progress
	Said     []Measure // metrics, in order; the reader removes what it takes
	Finished bool      // a task reported that the work is finished
	Count    int       // number of valid lines
	SavedAt  float64   // step at which the last checkpoint was reported
}

// Measure is a line with metrics.
type Measure struct {
	Trial int
	Step  float64
	Of    map[string]*float64 // nil: not a number
}

// note is a line of a progress file.
type note struct {
	Step       *float64 `json:"step"`
	Steps      *float64 `json:"steps"`
	Epoch      *float64 `json:"epoch"`
	Samples    *float64 `json:"samples_per_s"`
	Iteration  float64  `json:"iteration_s"`
	Comm       float64  `json:"comm_s"`
	Bytes      float64  `json:"bytes"`
	Slots      string   `json:"slots"`
	Checkpoint string   `json:"checkpoint"`
	Finished   bool     `json:"finished"`

	Trial  int                 `json:"trial"`
	Metric map[string]*float64 `json:"metric"`
}

// Take reads lines. It returns the number of bytes read: a last line without its end is left for
// the next call, unless the text is whole because its writer is gone. heard reports whether a line
// was valid (lines that are the user's own output are not), and saved whether a checkpoint was
// reported.
func (l *Lines) Take(text []byte, whole bool) (used int, heard, saved bool) {
	for rest := text; len(rest) > 0; {
		line, after, ok := bytes.Cut(rest, []byte("\n"))
		if !ok && !whole {
			break // incomplete
		}
		used += len(rest) - len(after)
		rest = after
		var n note
		if json.Unmarshal(line, &n) != nil && json.Unmarshal(finite(line), &n) != nil {
			continue
		}
		heard = true
		l.Count++
		l.Finished = l.Finished || n.Finished
		for _, f := range []struct{ from, to *float64 }{{n.Step, &l.Last.Step}, {n.Steps, &l.Last.Steps},
			{n.Epoch, &l.Last.Epoch}, {n.Samples, &l.Last.SamplesPerSec}} {
			if f.from != nil {
				*f.to = *f.from
			}
		}
		n.iteration(&l.Last)
		if len(n.Metric) > 0 {
			l.Said = append(l.Said, Measure{n.Trial, l.Last.Step, n.Metric})
		}
		if n.Checkpoint != "" {
			l.Last.Checkpoint, l.SavedAt, saved = n.Checkpoint, l.Last.Step, true
		}
	}
	return used, heard, saved
}

// iteration takes over what a line says of an iteration, if it makes sense.
func (n *note) iteration(p *show.Progress) {
	if n.Iteration <= 0 || n.Iteration > maxIteration.Seconds() {
		return
	}
	p.IterationSec, p.CommSec, p.Bytes, p.Slots = n.Iteration, 0, 0, ""
	if n.Comm >= 0 && n.Comm <= n.Iteration {
		p.CommSec = n.Comm
	}
	if n.Bytes >= 0 && n.Bytes <= maxBytes {
		p.Bytes = int64(n.Bytes)
	}
	if n.Slots == show.SlotsHeld || n.Slots == show.SlotsTooShort {
		p.Slots = n.Slots
	}
}

// An iteration does not take longer, and does not communicate more.
const (
	maxIteration = 24 * time.Hour
	maxBytes     = 1 << 50
)

// finite replaces numbers of Python that JSON does not have (NaN, Infinity) in a line.
func finite(line []byte) []byte {
	for _, word := range [][]byte{[]byte("-Infinity"), []byte("Infinity"), []byte("NaN")} {
		line = bytes.ReplaceAll(line, word, []byte("null"))
	}
	return line
}
