package slurm

import (
	"os/exec"
	"os/user"
	"strings"
)

// account is a user as known to the machine.
type account struct{ name, id, group string }

// accountOf finds a user by name or number. A program built without cgo reads /etc/passwd only, so users of a
// directory service are looked up with getent.
func accountOf(key string) (a account, ok bool) {
	find := user.Lookup
	if _, isNumber := number(key, 1<<32); isNumber {
		find = user.LookupId
	}
	if u, err := find(key); err == nil {
		return account{u.Username, u.Uid, u.Gid}, true
	}
	f, ok := getent("passwd", key)
	if !ok || len(f) < 4 {
		return a, false
	}
	return account{f[0], f[2], f[3]}, true
}

// groupNameOf is the name of a group, or its number if it has no name.
func groupNameOf(id string) string {
	if g, err := user.LookupGroupId(id); err == nil {
		return g.Name
	}
	if f, ok := getent("group", id); ok {
		return f[0]
	}
	return id
}

// getent asks the machine's name service for an entry.
func getent(database, key string) (fields []string, ok bool) {
	out, err := exec.Command("getent", "--", database, key).Output()
	if err != nil {
		return nil, false
	}
	return strings.Split(strings.TrimSpace(string(out)), ":"), true
}
