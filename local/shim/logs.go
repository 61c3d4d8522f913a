//go:build linux

package shim

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// logs carries a task's output to its files. The task writes into a pipe: a
// full disk costs output, never the task.
type logs struct {
	out, err *os.File // the task's ends
	files    []*logFile
	wait     sync.WaitGroup
	pipes    []*os.File // our ends
	now      func() time.Time
}

// logFile is a file that grows, and is rotated when it is too large.
type logFile struct {
	path    string
	f       *os.File
	size    int64
	most    int64
	keep    int
	room    int64 // to leave on its disk
	dropped int64
}

func openLogs(t *Task, now func() time.Time) (*logs, error) {
	l := &logs{now: now}
	var err error
	if l.out, err = l.open(t, t.Output); err != nil {
		return nil, fmt.Errorf("standard output: %w", err)
	}
	l.err = l.out
	if t.Error != "" && t.Error != t.Output {
		if l.err, err = l.open(t, t.Error); err != nil {
			return nil, fmt.Errorf("standard error: %w", err)
		}
	}
	return l, nil
}

func (l *logs) open(t *Task, path string) (*os.File, error) {
	if !filepath.IsAbs(path) {
		path = filepath.Join(t.Dir, path)
	}
	f, err := openOutput(path, t.Truncate)
	if err != nil {
		return nil, err
	}
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !fi.Mode().IsRegular() { // /dev/null, a pipe of the user's: nothing to rotate
		return f, nil
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	lf := &logFile{path: path, f: f, size: fi.Size(), most: t.LogMax, keep: max(1, t.LogKeep), room: t.LogRoom}
	l.files, l.pipes = append(l.files, lf), append(l.pipes, r)
	l.wait.Add(1)
	go func() {
		defer l.wait.Done()
		lf.copy(r)
	}()
	return w, nil
}

// started closes the task's ends on our side.
func (l *logs) started() {
	_ = l.out.Close()
	if l.err != l.out {
		_ = l.err.Close()
	}
}

// finish waits until all that was written has arrived and returns how many
// bytes could not be kept.
func (l *logs) finish() (dropped int64) {
	for _, r := range l.pipes { // strays are dead; what holds the pipe still is none of ours
		_ = r.SetReadDeadline(l.now().Add(lastWords))
	}
	l.wait.Wait()
	for _, f := range l.files {
		dropped += f.dropped
		_ = f.f.Close()
	}
	return dropped
}

// lastWords is how long the last output may take.
const lastWords = 2 * time.Second

func (f *logFile) copy(r io.Reader) {
	buf := make([]byte, 64<<10)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			f.write(buf[:n])
		}
		if err != nil {
			return
		}
	}
}

func (f *logFile) write(b []byte) {
	if f.most > 0 && f.size+int64(len(b)) > f.most && f.size > 0 {
		f.rotate()
	}
	if f.full(len(b)) {
		f.dropped += int64(len(b))
		return
	}
	n, err := f.f.Write(b)
	f.size += int64(n)
	if err != nil {
		f.dropped += int64(len(b) - n)
	}
}

// full reports that so much more would take the last of the disk's room, which
// others need more than this log does.
func (f *logFile) full(more int) bool {
	var fs unix.Statfs_t
	if f.room == 0 || unix.Fstatfs(int(f.f.Fd()), &fs) != nil {
		return false
	}
	free, all := int64(fs.Bavail)*fs.Bsize, int64(fs.Blocks)*fs.Bsize
	return free-int64(more) < min(f.room, all/10)
}

// rotate renames path to path.1, that to path.2, and so on.
func (f *logFile) rotate() {
	for i := f.keep; i > 1; i-- {
		_ = os.Rename(fmt.Sprintf("%s.%d", f.path, i-1), fmt.Sprintf("%s.%d", f.path, i))
	}
	if err := os.Rename(f.path, f.path+".1"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return
	}
	n, err := openOutput(f.path, false)
	if err != nil {
		return // go on with the one that is open
	}
	if fi, err := n.Stat(); err != nil || !fi.Mode().IsRegular() { // put there meanwhile
		_ = n.Close()
		return
	}
	_ = f.f.Close()
	f.f, f.size = n, 0
}
