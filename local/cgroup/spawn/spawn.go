//go:build linux

// Package spawn starts processes inside a control group without moving the
// process that starts them: a shim stays outside its task's group.
package spawn

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Place is a control group, named by its folders.
type Place struct {
	Unified string   `json:"unified,omitempty"` // in version 2; empty: none
	Old     []string `json:"old,omitempty"`     // in hierarchies of version 1
}

// Empty reports whether there is no group.
func (p *Place) Empty() bool { return p == nil || p.Unified == "" && len(p.Old) == 0 }

// Start calls start, which starts one process with the attributes. The process
// is in the group from its first instruction on.
//
// Version 2 clones into the group. Version 1 moves single threads: a thread of
// its own enters the group, starts the process, which inherits the group, and ends.
func (p *Place) Start(attr *syscall.SysProcAttr, start func() error) (err error) {
	if p.Empty() {
		return start()
	}
	OnThread(func() {
		for _, dir := range p.Old {
			if err = write(dir, "tasks", "0"); err != nil {
				return
			}
		}
		err = p.startUnified(attr, start)
	})
	return err
}

func (p *Place) startUnified(attr *syscall.SysProcAttr, start func() error) error {
	if p.Unified == "" {
		return start()
	}
	fd, err := unix.Open(p.Unified, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: p.Unified, Err: err}
	}
	defer unix.Close(fd)
	attr.UseCgroupFD, attr.CgroupFD = true, fd
	if err = start(); !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.E2BIG) {
		return err
	}
	attr.UseCgroupFD = false // kernels before 5.7 cannot clone into a group
	return p.visit(start)
}

// visit moves this whole process into the group of version 2 while it starts another.
func (p *Place) visit(start func() error) error {
	back, err := unifiedOf(p.Unified)
	if err != nil {
		return err
	}
	if err := write(p.Unified, "cgroup.procs", "0"); err != nil {
		return err
	}
	err = start()
	return errors.Join(err, write(back, "cgroup.procs", "0"))
}

// unifiedOf is the folder of this process' group, given that of another group of the hierarchy.
func unifiedOf(other string) (string, error) {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	var fs unix.Statfs_t
	root := other
	for dir := filepath.Dir(other); ; dir = filepath.Dir(dir) { // up to the mount point
		if unix.Statfs(dir, &fs) != nil || fs.Type != unix.CGROUP2_SUPER_MAGIC {
			break
		}
		root = dir
	}
	return filepath.Join(root, unifiedPath(string(text))), nil
}

// unifiedPath reads the line of version 2 in a /proc/PID/cgroup.
func unifiedPath(text string) string {
	for line := range strings.Lines(text) {
		if path, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); ok {
			return path
		}
	}
	return "/"
}

// OnThread calls f on a thread that ends afterwards, whatever f made of it.
func OnThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends with its goroutine
		if unix.Gettid() != os.Getpid() {
			f()
			return
		}
		OnThread(f) // this is the main thread, which never ends
		runtime.UnlockOSThread()
	}()
	<-done
}

func write(dir, file, value string) error {
	fd, err := unix.Open(filepath.Join(dir, file), unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: filepath.Join(dir, file), Err: err}
	}
	_, err = unix.Write(fd, []byte(value))
	if err = errors.Join(err, unix.Close(fd)); err != nil {
		return &os.PathError{Op: "write", Path: filepath.Join(dir, file), Err: err}
	}
	return nil
}
