//go:build linux

package shim

import (
	"os"
	"path/filepath"
	"testing"
)

// The last state that was written as a whole counts.
func TestState(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "0")
	path := StateFile(dir)
	phase := func(want string) {
		t.Helper()
		s, err := ReadState(dir)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if s != nil {
			got = s.Phase
		}
		if got != want {
			t.Errorf("phase %q, not %q", got, want)
		}
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	phase("")
	write("")
	phase("")
	write(`{"phase":"starting"`) // killed in the middle
	phase("")
	w := &stateFile{dir: dir} // a second attempt finds the remains of a first
	for _, p := range []string{Starting, Running, Ended} {
		if err := w.write(&State{Phase: p, Shim: 7}, p == Ended); err != nil {
			t.Fatal(err)
		}
		phase(p)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	whole := string(text)
	write(whole[:len(whole)-1])
	phase(Running)
	write(whole[:len(whole)-10] + "\x00\x00\n") // as after a power cut
	phase(Running)
	write("nonsense\n")
	if s, err := ReadState(dir); err == nil {
		t.Errorf("%+v of nonsense", s)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/passwd", path); err != nil {
		t.Fatal(err)
	}
	if s, err := ReadState(dir); err == nil {
		t.Errorf("%+v through a link", s)
	}
}

// A line that could not be written as a whole is overwritten by the next.
func TestStateAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "0")
	w := &stateFile{dir: dir}
	if err := w.write(&State{Phase: Running}, false); err != nil {
		t.Fatal(err)
	}
	if _, err := w.f.WriteAt([]byte(`{"phase":"en`), w.size); err != nil { // the disk is full
		t.Fatal(err)
	}
	if err := w.write(&State{Phase: Ended, Exit: 3}, true); err != nil {
		t.Fatal(err)
	}
	if s, err := ReadState(dir); err != nil || s.Phase != Ended || s.Exit != 3 {
		t.Errorf("%+v, %v", s, err)
	}
}
