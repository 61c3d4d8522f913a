package slurm

import (
	"os"
	"path/filepath"
	"testing"
)

// Users and groups that are not in /etc/passwd are looked up in the machine's name service.
func TestDirectoryUsers(t *testing.T) {
	dir := t.TempDir()
	getent := `#!/bin/sh
case "$2 $3" in
"passwd zoe-of-ldap"|"passwd 3999888777") echo zoe-of-ldap:x:3999888777:3999888778::/home/zoe:/bin/sh;;
"group 3999888778") echo physics:x:3999888778:;;
*) exit 2;;
esac
`
	if err := os.WriteFile(filepath.Join(dir, "getent"), []byte(getent), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	if id := idOf("zoe-of-ldap"); id != "3999888777" {
		t.Errorf("number %q", id)
	}
	if g, id := groupOf("zoe-of-ldap"); g != "physics" || id != "3999888778" {
		t.Errorf("group %q, %q", g, id)
	}
	if names := userNames([]string{"3999888777", "ann"}); names[0] != "zoe-of-ldap" || names[1] != "ann" {
		t.Errorf("names %v", names)
	}
	if id := idOf("nobody-knows-this-one"); id != "-1" {
		t.Errorf("number %q of a user who does not exist", id)
	}
	if g := groupName("root"); g != "root" {
		t.Errorf("group %q of root", g)
	}
}
