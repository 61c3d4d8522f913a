//go:build linux

package local

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
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

// mayRun says why jobs of this user cannot run here, if they cannot: without
// root, a daemon runs its own user's jobs only.
func mayRun(u *User) error {
	if u.UID < 0 {
		return fmt.Errorf("%s is no user of this machine: nothing can run as them", u.Name)
	}
	if me := os.Getuid(); me != 0 && me != u.UID {
		return fmt.Errorf("this daemon runs as user %d without root: it cannot run jobs of %s", me, u.Name)
	}
	return nil
}

// inDir makes a path absolute.
func inDir(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}
