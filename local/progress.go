//go:build linux

package local

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/local/shim"
)

// progress remembers how far each task's progress file was read.
type progress struct {
	at   map[int]int64 // by rank
	last api.Progress
	said []measure // metrics, in the order in which they came
	done bool      // a task said that the work is finished
	more bool      // there was more to read than was read
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

// mostProgress bounds what is read of a task at a time: the file is the user's.
const mostProgress = 1 << 20

// mostEnd bounds how often that much is read when a job has ended.
const mostEnd = 1 << 10

// read returns what the tasks reported since the last time, the latest values,
// and whether a checkpoint was among it; nil: nothing. When they have ended, a last
// line is complete without its end.
func (p *progress) read(tasks []*task, ended bool) (news *api.Progress, saved bool) {
	if p.at == nil {
		p.at = map[int]int64{}
	}
	heard := false
	p.more = false
	for _, t := range tasks {
		text := p.tail(t)
		whole := ended && len(text) < mostProgress
		p.more = p.more || len(text) == mostProgress
		for len(text) > 0 {
			line, rest, ok := bytes.Cut(text, []byte("\n"))
			if !ok && !whole {
				break // not complete yet
			}
			p.at[t.rank] += int64(len(text) - len(rest))
			text = rest
			var n note
			if json.Unmarshal(line, &n) != nil && json.Unmarshal(finite(line), &n) != nil {
				continue // the user's own words
			}
			heard, p.done = true, p.done || n.Finished
			for _, f := range []struct{ from, to *float64 }{{n.Step, &p.last.Step}, {n.Steps, &p.last.Steps},
				{n.Epoch, &p.last.Epoch}, {n.Samples, &p.last.SamplesPerSec}} {
				if f.from != nil {
					*f.to = *f.from
				}
			}
			if len(n.Metric) > 0 {
				p.said = append(p.said, measure{trial: n.Trial, step: p.last.Step, of: n.Metric})
			}
			if n.Checkpoint != "" {
				p.last.Checkpoint, saved = n.Checkpoint, true
			}
		}
	}
	if !heard {
		return nil, false
	}
	last := p.last
	return &last, saved
}

// tail reads what is new in a task's file.
func (p *progress) tail(t *task) []byte {
	fd, err := unix.Open(filepath.Join(t.dir, shim.ProgressFile), unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	f := os.NewFile(uintptr(fd), shim.ProgressFile)
	defer f.Close()
	fi, err := f.Stat()
	if err != nil || !fi.Mode().IsRegular() || fi.Size() <= p.at[t.rank] {
		return nil
	}
	text, err := io.ReadAll(io.NewSectionReader(f, p.at[t.rank], mostProgress))
	if err != nil {
		return nil
	}
	if len(text) == mostProgress && !bytes.Contains(text, []byte("\n")) {
		p.at[t.rank] += mostProgress // a line that long is none of ours
		p.more = true
		return nil
	}
	return text
}
