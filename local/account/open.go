//go:build linux

package account

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/muster-gpu/muster/local/cgroup/spawn"
	"github.com/muster-gpu/muster/local/evidence"
)

// Open opens a regular file of the user for reading, with the user's rights: the
// path is theirs to choose, and may lead anywhere by the time it is followed.
func (u *User) Open(path string) (f *os.File, err error) {
	open := func() {
		var fd int
		if fd, err = unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0); err != nil {
			err = &fs.PathError{Op: "open", Path: path, Err: err}
			return
		}
		f = os.NewFile(uintptr(fd), path)
	}
	if os.Geteuid() != 0 || u.UID == 0 {
		open()
	} else {
		spawn.OnThread(func() {
			if err = u.assume(); err == nil {
				open()
			}
		})
	}
	if err != nil {
		return nil, err
	}
	fi, err := f.Stat()
	if err == nil && (!fi.Mode().IsRegular() || evidence.OwnerOf(fi) != u.UID) {
		err = fmt.Errorf("%s is not a regular file of %s", path, u.Name)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// assume has this thread, which must not do anything else afterwards, open files
// as the user does (credentials(7): the file system user is a thread's).
func (u *User) assume() error {
	groups := make([]uint32, 0, len(u.Groups)+1)
	for _, g := range u.Groups {
		groups = append(groups, uint32(g))
	}
	first := unsafe.Pointer(unsafe.SliceData(append(groups, 0)))
	// syscall.Setgroups changes all threads
	_, _, no := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(first), 0)
	if no != 0 {
		return fmt.Errorf("groups of %s: %w", u.Name, no)
	}
	_, errGroup := unix.SetfsgidRetGid(u.GID)
	_, errUser := unix.SetfsuidRetUid(u.UID)
	if err := errors.Join(errGroup, errUser); err != nil {
		return err
	}
	group, _ := unix.SetfsgidRetGid(-1) // changes nothing; the calls do not say whether they worked
	user, _ := unix.SetfsuidRetUid(-1)
	if user != u.UID || group != u.GID {
		return fmt.Errorf("files cannot be opened as %s", u.Name)
	}
	return nil
}
