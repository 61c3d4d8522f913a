//go:build linux

package shim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Whether what is written must survive a power cut. That a task was running need
// not: it is not any more.
const (
	fleeting = false
	durable  = true
)

// stateFile is the file in which a shim keeps its task's state. It grows by a
// line for each state: the last line that is complete counts. Its first block
// has room for all of them, so that what is said first finds room for the rest.
type stateFile struct {
	dir  string // of the task
	f    *os.File
	run  *os.File // folder of the run, in which the file lies
	size int64    // of the lines that are complete
}

// write adds a state; a line that could not be written is overwritten by the next.
func (w *stateFile) write(s *State, sync bool) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := w.open(); err != nil {
		return err
	}
	text = append(text, '\n')
	if _, err := w.f.WriteAt(text, w.size); err != nil {
		return err
	}
	if sync {
		if err := errors.Join(w.f.Sync(), w.run.Sync()); err != nil {
			return err
		}
	}
	w.size += int64(len(text))
	return nil
}

// open opens the file, once: later this process may not have the rights to.
func (w *stateFile) open() (err error) {
	if w.f != nil {
		return nil
	}
	if w.run == nil {
		if w.run, err = os.Open(filepath.Dir(w.dir)); err != nil {
			return err
		}
	}
	f, err := os.OpenFile(StateFile(w.dir), os.O_CREATE|os.O_WRONLY|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
	if err == nil {
		w.f = f
	}
	return err
}

// ReadState reads what the shim of the task with this folder wrote; nil: nothing yet.
func ReadState(dir string) (*State, error) { return readState(StateFile(dir)) }

// readState reads with care: the file may be a user's, and anything.
func readState(path string) (*State, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
		return nil, errors.Join(err, fmt.Errorf("%s is not a regular file", path))
	}
	text, err := io.ReadAll(io.LimitReader(f, 1<<16))
	if err != nil {
		return nil, err
	}
	lines := bytes.Split(text, []byte{'\n'})
	for i := len(lines) - 2; i >= 0; i-- { // behind the last newline stands what is being written
		var s State
		if err = json.Unmarshal(lines[i], &s); err == nil {
			return &s, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return nil, nil
}
