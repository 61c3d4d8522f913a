//go:build linux

package account

import (
	"os"
	"path/filepath"
	"testing"
)

// A name that nobody has is kept, and nothing can run as it; a file is opened as its user only.
func TestUser(t *testing.T) {
	if u := UserNamed("no such user"); u.Name != "no such user" || u.UID != -1 || u.CanRun() == nil {
		t.Errorf("%+v can run", u)
	}
	me, err := UserOf(os.Getuid())
	if err != nil {
		t.Fatal(err)
	}
	if err := me.CanRun(); err != nil {
		t.Error(err)
	}
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := me.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if _, err := me.Open(filepath.Dir(path)); err == nil {
		t.Error("a folder is opened")
	}
	if os.Getuid() != 0 {
		return
	}
	other := User{Name: "other", UID: 54321, GID: 54321}
	if f, err := other.Open(path); err == nil {
		t.Errorf("%s is opened as somebody who may not read it", f.Name())
	}
}
