//go:build linux

// Package account is the users of this machine: jobs run as them, and files are opened with their rights.
package account

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
)

// User is who submitted a job: the job runs as this user.
type User struct {
	Name   string `json:"name"`
	UID    int    `json:"uid"`
	GID    int    `json:"gid"`
	Groups []int  `json:"groups,omitempty"`
	Home   string `json:"home,omitempty"`
	// Trusted: what is asked is asked with the rights of an operator. It belongs to the request, not to the user.
	Trusted bool `json:"-"`
}

// UserOf looks up a user by number.
func UserOf(uid int) (User, error) {
	u, err := user.LookupId(strconv.Itoa(uid))
	if err != nil {
		return User{}, fmt.Errorf("user %d: %w", uid, err)
	}
	w := User{Name: u.Username, UID: uid, Home: u.HomeDir}
	if w.GID, err = strconv.Atoi(u.Gid); err != nil {
		return User{}, err
	}
	groups, err := u.GroupIds()
	if err != nil {
		return User{}, fmt.Errorf("groups of %s: %w", u.Username, err)
	}
	for _, g := range groups {
		n, err := strconv.Atoi(g)
		if err != nil {
			return User{}, err
		}
		w.Groups = append(w.Groups, n)
	}
	return w, nil
}

// UserNamed looks up a user of this machine. A name that nobody has is kept,
// with the number -1: such a user may read, but nothing can run as them.
func UserNamed(name string) User {
	u, err := user.Lookup(name)
	if err != nil {
		return User{Name: name, UID: -1, GID: -1}
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return User{Name: name, UID: -1, GID: -1}
	}
	w, err := UserOf(uid)
	if err != nil {
		return User{Name: name, UID: -1, GID: -1}
	}
	return w
}

// CanRun says why jobs of this user cannot run here, if they cannot: without
// root, a daemon runs its own user's jobs only.
func (u *User) CanRun() error {
	if u.UID < 0 {
		return fmt.Errorf("%s is no user of this machine: nothing can run as them", u.Name)
	}
	if me := os.Getuid(); me != 0 && me != u.UID {
		return fmt.Errorf("this daemon runs as user %d without root: it cannot run jobs of %s", me, u.Name)
	}
	return nil
}
