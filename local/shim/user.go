//go:build linux

package shim

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// User is whom a task runs as, under a shim of root.
type User struct {
	UID    int   `json:"uid"`
	GID    int   `json:"gid"`
	Groups []int `json:"groups,omitempty"`
}

// become gives this process the rights of the user. Its real and saved user stay
// root: nobody else may signal or trace it, and it can start the task as the user.
func (u *User) become() error {
	if u == nil || u.UID == 0 {
		return nil
	}
	if err := syscall.Setgroups(u.Groups); err != nil {
		return fmt.Errorf("groups of user %d: %w", u.UID, err)
	}
	if err := syscall.Setresgid(-1, u.GID, -1); err != nil {
		return fmt.Errorf("group %d: %w", u.GID, err)
	}
	if err := syscall.Setresuid(-1, u.UID, -1); err != nil { // clears the effective capabilities
		return fmt.Errorf("user %d: %w", u.UID, err)
	}
	return nil
}

// asRoot calls f with the rights that this process began with.
func (u *User) asRoot(f func() error) error {
	if u == nil || u.UID == 0 {
		return f()
	}
	if err := syscall.Setresuid(-1, 0, -1); err != nil {
		return &launchError{err}
	}
	err := f()
	if failed := syscall.Setresuid(-1, u.UID, -1); failed != nil {
		panic(failed) // to go on as root would give the user its rights
	}
	return err
}

// credential makes a new process the user's entirely.
func (u *User) credential() *syscall.Credential {
	if u == nil {
		return nil
	}
	c := &syscall.Credential{Uid: uint32(u.UID), Gid: uint32(u.GID)}
	for _, g := range u.Groups {
		c.Groups = append(c.Groups, uint32(g))
	}
	return c
}

// launchError is trouble of the machine: the task may well start another time.
type launchError struct{ error }

func (e *launchError) Unwrap() error { return e.error }

func trouble(err error) error { return &launchError{err} }

// blame distinguishes trouble of the machine from mistakes of the job.
func blame(err error) error {
	for _, e := range []error{unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.EAGAIN} {
		if errors.Is(err, e) {
			return trouble(err)
		}
	}
	return err
}
