// Package progress is what jobs tell of themselves: it reads the lines of a progress
// file (MUSTER_PROGRESS), measures how fast a job goes by its own account, and makes of
// a report what the engine is to know. Machine and cluster share it.
package progress

import (
	"bytes"
	"encoding/json"

	"github.com/muster-gpu/muster/show"
)

// Lines is what the lines of progress files told so far.
type Lines struct {
	Last     show.Progress
	Said     []Measure // metrics, in the order in which they came; who takes them, takes them away
	Finished bool      // somebody said that the work is finished
	Count    int       // lines that were understood
	SavedAt  float64   // step at which the last checkpoint was reported
}

// Measure is a line with metrics.
type Measure struct {
	Trial int
	Step  float64
	Of    map[string]*float64 // nil: no number
}

// note is a line of a progress file.
type note struct {
	Step       *float64 `json:"step"`
	Steps      *float64 `json:"steps"`
	Epoch      *float64 `json:"epoch"`
	Samples    *float64 `json:"samples_per_s"`
	Checkpoint string   `json:"checkpoint"`
	Finished   bool     `json:"finished"`

	Trial  int                 `json:"trial"`
	Metric map[string]*float64 `json:"metric"`
}

// Take reads lines. It returns how many bytes it read: a last line without its end is
// left for the next time, unless the text is whole, since nobody writes any more; whether
// a line was understood, which what is the user's own words is not; and whether a
// checkpoint was among it.
func (l *Lines) Take(text []byte, whole bool) (used int, heard, saved bool) {
	for rest := text; len(rest) > 0; {
		line, after, ok := bytes.Cut(rest, []byte("\n"))
		if !ok && !whole {
			break // not complete yet
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
		if len(n.Metric) > 0 {
			l.Said = append(l.Said, Measure{n.Trial, l.Last.Step, n.Metric})
		}
		if n.Checkpoint != "" {
			l.Last.Checkpoint, l.SavedAt, saved = n.Checkpoint, l.Last.Step, true
		}
	}
	return used, heard, saved
}

// finite is a line in which Python wrote numbers that JSON does not have.
func finite(line []byte) []byte {
	for _, word := range [][]byte{[]byte("-Infinity"), []byte("Infinity"), []byte("NaN")} {
		line = bytes.ReplaceAll(line, word, []byte("null"))
	}
	return line
}
