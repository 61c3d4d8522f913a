//go:build linux

package local

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/muster-gpu/muster/local/shim"
)

// A server that begins and ends between two looks is in no list of the control daemon. Its log says
// of each that it was started, for whom, and with which status it exited, in lines such as
//
//	[2024-04-29 11:22:10.421 Control    73] Starting new server 95 for user 0
//	[2024-04-29 11:22:10.441 Control    73] Server encountered a fatal exception. Shutting down
//	[2024-04-29 11:22:10.446 Control    73] Server 95 exited with status 1
//
// (as of NVIDIA's driver 535). What else it says is not read, and the times are not: they are in whatever zone that
// daemon is in.

// mpsLog is what a control daemon wrote since it was read last.
type mpsLog struct {
	started []mpsServer
	exited  map[int]int // the status by process number; looked up only
}

// logged reads what a control daemon wrote since it was read last (known.Log); if that is not known,
// nothing: what was before is not news.
func (d *mpsDaemon) logged() (l mpsLog, err error) {
	folder := filepath.Join(d.dir, "log")
	f, err := os.Open(filepath.Join(folder, "control.log"))
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(folder); err == nil && d.known.Log == nil {
			d.known.Log = new(int64) // all that it will write is news
		}
		return l, nil
	}
	if err != nil {
		return l, err
	}
	defer func() { _ = f.Close() }()
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return l, err
	}
	if d.known.Log == nil {
		d.known.Log = &end
		return l, nil
	}
	at := *d.known.Log
	if end < at { // it is another one
		at = 0
	}
	l.exited = map[int]int{}
	r := bufio.NewReader(io.NewSectionReader(f, at, end-at))
	for {
		line, err := r.ReadString('\n')
		if err != nil { // the rest of a line that is being written is read next time
			break
		}
		at += int64(len(line))
		l.add(line)
	}
	d.known.Log = &at
	return l, nil
}

// add notes what one line says.
func (l *mpsLog) add(line string) {
	_, text, ok := strings.Cut(line, "] ")
	var pid, n int
	switch {
	case !ok:
	case scans(text, "Starting new server %d for user %d", &pid, &n):
		l.started = append(l.started, mpsServer{PID: pid, UID: n, Birth: shim.Birth(pid)})
		delete(l.exited, pid) // another one has the number now
	case scans(text, "Server %d exited with status %d", &pid, &n):
		l.exited[pid] = n
	}
}

func scans(text, format string, a, b *int) bool {
	n, _ := fmt.Sscanf(text, format, a, b)
	return n == 2
}
