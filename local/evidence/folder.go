//go:build linux

// Package evidence compares a state's database with what lies beside it: the
// mark of its last commit, the folders of jobs, and the tasks that hold their
// locks. A database that knows less than its surroundings has lost something.
package evidence

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// stateFile names, in the folder of a job, the state that the job is of.
const stateFile = ".state"

// ErrForeign is returned for the folder of a job of another state.
var ErrForeign = errors.New("the folder belongs to another state")

// Folder makes the folder of a job of the state with this id, or checks that the one that is there is it.
// The folder is the daemon's own, so that no user can replace what is in it.
func Folder(jobs, state string, job int) error {
	path := filepath.Join(jobs, strconv.Itoa(job))
	err := checkFolder(path, state)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(jobs, 0o711); err != nil {
		return err
	}
	fresh := filepath.Join(jobs, ".new-"+strconv.Itoa(job)) // a folder gets its name with the file in it, or never
	if err := os.RemoveAll(fresh); err != nil {
		return err
	}
	if err := os.Mkdir(fresh, 0o711); err != nil {
		return err
	}
	if err := signFolder(fresh, state); err != nil {
		return err
	}
	return os.Rename(fresh, path)
}

func signFolder(path, state string) error {
	return os.WriteFile(filepath.Join(path, stateFile), []byte(state+"\n"), 0o600)
}

func checkFolder(path, state string) error {
	fi, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if !fi.IsDir() || !ownedBy(fi, os.Getuid()) {
		return fmt.Errorf("%s: %w: it is no folder of the daemon's user", path, ErrForeign)
	}
	text, err := os.ReadFile(filepath.Join(path, stateFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if string(text) != state+"\n" {
		return fmt.Errorf("%s: %w; move it away", path, ErrForeign)
	}
	return nil
}

func ownedBy(fi fs.FileInfo, uids ...int) bool {
	for _, uid := range uids {
		if OwnerOf(fi) == uid {
			return true
		}
	}
	return false
}

// UserFolder makes a folder, in one of the daemon's, that is to be a user's: if there is one already,
// it must be the daemon's or the user's. Nobody finds it before it is the user's: it gets its name last.
func UserFolder(path string, uid, gid int) error {
	fi, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return newFolder(path, uid, gid)
	}
	if err != nil {
		return err
	}
	if !fi.IsDir() || !ownedBy(fi, uid, os.Getuid()) {
		return fmt.Errorf("%s: it is there already and is not a folder of user %d", path, uid)
	}
	return Own(path, uid, gid)
}

func newFolder(path string, uid, gid int) error {
	made := path + ".new"
	if err := os.Mkdir(made, 0o700); err != nil && !errors.Is(err, fs.ErrExist) { // of a daemon that died meanwhile
		return err
	}
	if err := Own(made, uid, gid); err != nil {
		return err
	}
	return os.Rename(made, path)
}

// Own gives a path to a user, as root can.
func Own(path string, uid, gid int) error {
	if os.Getuid() != 0 {
		return nil
	}
	return os.Lchown(path, uid, gid)
}

// Sign makes the folders that an earlier version left without the name of their state this state's.
func Sign(jobs, state string, highest int) error {
	for _, job := range numbers(jobs) {
		path := filepath.Join(jobs, strconv.Itoa(job))
		if job > highest {
			continue
		}
		if _, err := os.Lstat(filepath.Join(path, stateFile)); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := signFolder(path, state); err != nil {
			return err
		}
	}
	return nil
}

// numbers lists the entries of a folder that are numbers from 1 on.
func numbers(dir string) (list []int) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil && n > 0 && strconv.Itoa(n) == e.Name() {
			list = append(list, n)
		}
	}
	return list
}

// held reports whether a process holds the lock.
func held(path string) bool {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return errors.Is(unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// OwnerOf is the user whose file that is; -1: the file system does not say.
func OwnerOf(fi fs.FileInfo) int {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return -1
	}
	return int(st.Uid)
}

// Exists reports whether there is a file, a folder or a link.
func Exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
