//go:build linux

package shim

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Files that users name are opened without waiting for anybody: a shim that waits
// in open could not say that its task ended, nor a cancellation reach the task.
//
// A fifo as output is opened for both directions: what the task writes stays in
// the fifo until somebody reads. A fifo as input is opened beside the task, which
// reads from a pipe meanwhile and sees the end that the fifo's writers make.

// input is a task's standard input.
type input struct {
	theirs *os.File // the task's end
	path   string   // of the fifo from which ours is fed; empty: theirs is the file itself
	ours   *os.File
}

func openInput(path string) (in *input, err error) {
	in = &input{}
	if !isFifo(path) {
		in.theirs, err = openNow(path, unix.O_RDONLY, 0)
		return in, err
	}
	if err := unix.Faccessat(unix.AT_FDCWD, path, unix.R_OK, unix.AT_EACCESS); err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	in.path = path
	in.theirs, in.ours, err = os.Pipe()
	return in, err
}

// started closes the task's end on our side and begins to feed the task.
func (in *input) started() {
	_ = in.theirs.Close()
	if in.path == "" {
		return
	}
	go func() { // it may wait for a writer for as long as there is a shim
		defer in.ours.Close()
		f, err := os.OpenFile(in.path, os.O_RDONLY|unix.O_NOCTTY, 0)
		if err != nil {
			return
		}
		defer f.Close()
		_, _ = io.Copy(in.ours, f)
	}()
}

func isFifo(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.Mode()&fs.ModeNamedPipe != 0
}

// openOutput opens a file that takes output.
func openOutput(path string, truncate bool) (*os.File, error) {
	flags := unix.O_CREAT | unix.O_WRONLY | unix.O_APPEND
	if truncate {
		flags |= unix.O_TRUNC
	}
	return openNow(path, flags, 0o666)
}

func openNow(path string, flags int, mode uint32) (*os.File, error) {
	const now = unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC
	if isFifo(path) {
		flags = flags&^unix.O_ACCMODE | unix.O_RDWR
	}
	fd, err := retry(func() (int, error) { return unix.Open(path, flags|now, mode) })
	if errors.Is(err, unix.ENXIO) {
		return nil, fmt.Errorf("%s: no reader is at its other end", path)
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	if err := unix.SetNonblock(fd, false); err != nil { // a program expects that its output waits
		return nil, errors.Join(&fs.PathError{Op: "fcntl", Path: path, Err: err}, unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), path), nil
}

func retry(open func() (int, error)) (fd int, err error) {
	for {
		if fd, err = open(); !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// enterable says why a task cannot begin in a folder, if so: to the kernel it is
// the program that is missing then.
func enterable(dir string) error {
	fi, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("the working directory %s does not exist", dir)
	case err != nil:
		return fmt.Errorf("the working directory: %w", err)
	case !fi.IsDir():
		return fmt.Errorf("the working directory %s is not a directory", dir)
	}
	return nil
}

// Seal keeps the descriptors that this process has, but for the standard ones,
// from the programs that it executes: what started it may have left some open.
func Seal() {
	if unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return
	}
	entries, err := os.ReadDir("/proc/self/fd") // kernels before 5.11
	if err != nil {
		return
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
}
