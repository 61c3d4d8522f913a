//go:build linux

package run

import (
	"bytes"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/muster-gpu/muster/local/evidence"
	"github.com/muster-gpu/muster/local/shim"
	"github.com/muster-gpu/muster/progress"
	"github.com/muster-gpu/muster/show"
)

// reports remembers how far each task's progress file was read, and what it said.
type reports struct {
	progress.Lines
	at   map[int]int64 // by rank
	more bool          // there was more to read than was read
}

// mostProgress bounds what is read of a task at a time: the file is the user's.
const mostProgress = 1 << 20

// mostEnd bounds how often that much is read when a job has ended.
const mostEnd = 1 << 10

// read returns what the tasks reported since the last time, the latest values,
// and whether a checkpoint was among it; nil: nothing. When they have ended, a last
// line is complete without its end.
func (p *reports) read(tasks []*Task, ended bool) (news *show.Progress, saved bool) {
	if p.at == nil {
		p.at = map[int]int64{}
	}
	heard := false
	p.more = false
	for _, t := range tasks {
		text := p.tail(t)
		p.more = p.more || len(text) == mostProgress
		used, some, kept := p.Take(text, ended && len(text) < mostProgress)
		p.at[t.Rank] += int64(used)
		heard, saved = heard || some, saved || kept
	}
	if !heard {
		return nil, false
	}
	last := p.Last
	return &last, saved
}

// tail reads what is new in a task's file.
func (p *reports) tail(t *Task) []byte {
	const how = unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	fd, err := unix.Open(filepath.Join(t.Dir, shim.ProgressFile), how, 0)
	if err != nil {
		return nil
	}
	f := os.NewFile(uintptr(fd), shim.ProgressFile)
	defer f.Close()
	fi, err := f.Stat()
	if err != nil || !fi.Mode().IsRegular() || evidence.OwnerOf(fi) != t.UID || fi.Size() <= p.at[t.Rank] {
		return nil
	}
	text, err := io.ReadAll(io.NewSectionReader(f, p.at[t.Rank], mostProgress))
	if err != nil {
		return nil
	}
	if len(text) == mostProgress && !bytes.Contains(text, []byte("\n")) {
		p.at[t.Rank] += mostProgress // a line that long is none of ours
		p.more = true
		return nil
	}
	return text
}

// readProgress reads what the job reports; when it has ended, its last line too.
func (r *Run) readProgress(ended bool) {
	if p, saved := r.news.read(r.Tasks, ended); p != nil {
		r.kept = r.kept || saved && !r.requestedAt.IsZero()
		said := r.news.Said
		r.news.Said = nil
		r.owner.Reported(p, saved, said)
	}
}
