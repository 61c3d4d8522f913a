//go:build linux

package share

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/muster-gpu/muster/local/shim"
)

// A server that begins and ends between two checks is in no list of the control daemon. Its log says
// of each that it was started, for whom, and with which status it exited, in lines such as
//
//	[2024-04-29 11:22:10.421 Control    73] Starting new server 95 for user 0
//	[2024-04-29 11:22:10.441 Control    73] Server encountered a fatal exception. Shutting down
//	[2024-04-29 11:22:10.446 Control    73] Server 95 exited with status 1
//
// (as of NVIDIA's driver 535). What else it says is not read, and the times are not: they are in whatever zone that
// daemon is in.

// written is what a control daemon wrote since it was read last.
type written struct {
	read   bool        // nothing of it was missed
	begun  []begun     // in that order
	exited map[int]int // the status by process number, of those that were started before; looked up only
}

// begun is a server that was started since the log was read last.
type begun struct {
	server
	exited bool // since then, with this status
	status int
}

// headSize is how much of a log is kept to know it again: its first line begins with the time to the millisecond.
const headSize = 128

// logged reads what a control daemon wrote since it was read last (known.Log); if that is not known,
// nothing: what was before is not news.
func (d *control) logged() (l written, err error) {
	l.exited = map[int]int{}
	l.read, err = d.news("control.log", math.MaxInt64, &d.known.Log, &d.known.Head, l.add)
	for i := range l.begun {
		if v := &l.begun[i]; !v.exited { // the process with the number of one that has exited is another
			v.Birth = shim.Birth(v.PID)
		}
	}
	return l, err
}

// news calls line with each line that was written to one of MPS' logs since it was read last, up to at, when its
// beginning was head; both are brought up to date. Of more bytes than most only the last are read. read reports that
// nothing was missed before: at nil means that it is not known what was read, so what is there is not news. The rest of
// a line that is being written is read next time.
func (d *control) news(name string, most int64, at **int64, head *[]byte, line func(text string)) (read bool,
	err error) {
	folder := filepath.Join(d.dir, "log")
	f, err := os.OpenFile(filepath.Join(folder, name), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(folder); err == nil && *at == nil {
			*at = new(int64) // all that will be written is news
		}
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close() }()
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return false, err
	}
	begins := make([]byte, min(end, headSize))
	if _, err := f.ReadAt(begins, 0); err != nil {
		return false, err
	}
	next := end
	if *at != nil {
		next, read = **at, true
		if end < next || !bytes.HasPrefix(begins, *head) { // it is another one
			next = 0
		}
		next = max(next, end-most)
		r := bufio.NewReader(io.NewSectionReader(f, next, end-next))
		for {
			text, err := r.ReadString('\n')
			if err != nil {
				break
			}
			next += int64(len(text))
			line(text)
		}
	}
	*at, *head = &next, begins
	return read, nil
}

// add notes what one line says. A number may come again: an exit is that of the last one that had it.
func (l *written) add(line string) {
	_, text, ok := strings.Cut(line, "] ")
	var pid, n int
	switch {
	case !ok:
	case scans(text, "Starting new server %d for user %d", &pid, &n):
		l.begun = append(l.begun, begun{server: server{PID: pid, UID: n}})
	case scans(text, "Server %d exited with status %d", &pid, &n):
		if v := l.last(pid); v != nil {
			v.exited, v.status = true, n
		} else {
			l.exited[pid] = n
		}
	}
}

// last is the last server with this number that was started since; nil: there is none.
func (l *written) last(pid int) *begun {
	for i := len(l.begun) - 1; i >= 0; i-- {
		if l.begun[i].PID == pid {
			return &l.begun[i]
		}
	}
	return nil
}

// gone reports whether the last that was written of the server with this number is that it exited.
func (l *written) gone(pid int) bool {
	if v := l.last(pid); v != nil {
		return v.exited
	}
	_, ok := l.exited[pid]
	return ok
}

func scans(text, format string, a, b *int) bool {
	n, _ := fmt.Sscanf(text, format, a, b)
	return n == 2
}
