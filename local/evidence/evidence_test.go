//go:build linux

package evidence

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/muster-gpu/muster/store"
)

// The folder of a job is made once, with the name of its state in it; what else lies in its place is refused
// and stays as it is.
func TestFolder(t *testing.T) {
	jobs := filepath.Join(t.TempDir(), "jobs")
	for range 2 {
		if err := Folder(jobs, "a", 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := Folder(jobs, "b", 1); !errors.Is(err, ErrForeign) {
		t.Errorf("another state's folder: %v", err)
	}
	elsewhere := t.TempDir()
	for job, make := range map[int]func(path string) error{
		2: func(p string) error { return os.Mkdir(p, 0o755) },
		3: func(p string) error { return os.Symlink(elsewhere, p) },
		4: func(p string) error { return os.WriteFile(p, nil, 0o600) },
		5: func(p string) error { return os.Symlink(filepath.Join(elsewhere, "nothing"), p) },
	} {
		path := filepath.Join(jobs, map[int]string{2: "2", 3: "3", 4: "4", 5: "5"}[job])
		if err := make(path); err != nil {
			t.Fatal(err)
		}
		if err := Folder(jobs, "a", job); !errors.Is(err, ErrForeign) {
			t.Errorf("%d: %v", job, err)
		}
	}
	if err := Sign(jobs, "a", 2); err != nil {
		t.Fatal(err)
	}
	if err := Folder(jobs, "a", 2); err != nil {
		t.Errorf("a folder of before folders were signed: %v", err)
	}
	if left, err := os.ReadDir(elsewhere); err != nil || len(left) != 0 {
		t.Errorf("a link was followed: %v, %v", left, err)
	}
}

// A folder of a user's that is somebody else's, or no folder, is refused.
func TestUserFolder(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x")
	for range 2 {
		if err := UserFolder(path, os.Getuid(), os.Getgid()); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(dir, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := UserFolder(filepath.Join(dir, "link"), os.Getuid(), os.Getgid()); err == nil {
		t.Error("a link is taken for a folder")
	}
	if os.Getuid() != 0 {
		t.Skip("only root can make a folder another user's")
	}
	if err := os.Chown(path, 4321, 4321); err != nil {
		t.Fatal(err)
	}
	if err := UserFolder(path, 1234, 1234); err == nil {
		t.Error("another user's folder is taken")
	}
}

// Who finds a folder that is to be a user's finds it the user's: a log is asked for while its job is being started.
func TestUserFolderAtOnce(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can make a folder another user's")
	}
	dir := t.TempDir()
	for n := range 300 {
		path, made := filepath.Join(dir, strconv.Itoa(n)), make(chan error, 1)
		go func() { made <- UserFolder(path, 4321, 4321) }()
		for there := false; !there; {
			select {
			case err := <-made:
				if there = true; err != nil {
					t.Fatal(err)
				}
			default:
			}
			fi, err := os.Lstat(path)
			if err != nil {
				continue
			}
			there = true
			if uid := fi.Sys().(*syscall.Stat_t).Uid; uid != 4321 {
				t.Fatalf("folder %d was found as user %d's", n, uid)
			}
		}
	}
}

// A new state lacks nothing; a mark that is damaged or of a later commit, and folders beyond the last job, are
// told apart.
func TestFind(t *testing.T) {
	dir := t.TempDir()
	find := func(want string) {
		t.Helper()
		l, err := Find(t.Context(), dir, true)
		switch {
		case err != nil:
			t.Fatal(err)
		case want == "" && l != nil:
			t.Errorf("lost: %v", l)
		case want != "" && (l == nil || !strings.Contains(l.Error(), want)):
			t.Errorf("lost: %v, without %q", l, want)
		}
	}
	find("")
	s, err := store.Open(Database(dir))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Write(t.Context(), func(tx *store.Tx) error {
		return tx.PutJob(&store.Job{ID: 1, User: "ann", Submission: []byte("{}"), Data: []byte(`{"run":1}`)})
	}); err != nil {
		t.Fatal(err)
	}
	id := s.ID()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := Folder(filepath.Join(dir, "jobs"), id, 1); err != nil {
		t.Fatal(err)
	}
	find("")
	mark, err := os.ReadFile(store.MarkPath(Database(dir)))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(store.MarkPath(Database(dir)), append([]byte("x"), mark...), 0o600); err != nil {
		t.Fatal(err)
	}
	find("") // a mark that cannot be read says nothing
	if err := os.WriteFile(store.MarkPath(Database(dir)), mark, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Folder(filepath.Join(dir, "jobs"), id, 7); err != nil {
		t.Fatal(err)
	}
	find("folders of jobs that it does not know: 7")
	if err := os.Remove(filepath.Join(dir, "jobs", "7", stateFile)); err != nil {
		t.Fatal(err)
	}
	find("folders of jobs that it does not know: 7")
	if err := os.Rename(Database(dir), filepath.Join(dir, "other")); err != nil {
		t.Fatal(err)
	}
	find("job 1 was accepted")
}
