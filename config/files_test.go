package config

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/muster-gpu/muster/learn"
	"github.com/muster-gpu/muster/place"
	"github.com/muster-gpu/muster/policy"
)

// A file that is not regular, or too large, is refused at once: a pipe without a writer does not block.
func TestReadFile(t *testing.T) {
	dir := t.TempDir()
	pipe, large, link := filepath.Join(dir, "pipe"), filepath.Join(dir, "large"), filepath.Join(dir, "link")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Skip(err)
	}
	if err := os.WriteFile(large, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(large, mostBytes+1); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(pipe, link); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, want string }{
		{pipe, "only a regular file"}, {link, "only a regular file"}, {"/dev/zero", "only a regular file"},
		{large, "larger than 16 MiB"}, {dir, "is a directory"}, {filepath.Join(dir, "none"), "no such file"},
	} {
		for _, text := range []string{"sched2:weights=" + c.name, "tiresias-g:samples=" + c.name,
			"sched2:check=1m;weights=" + c.name} {
			if _, err := policy.New(text); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want ... %s", text, err, c.want)
			}
			if _, err := Hold(text, "best-fit"); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("hold %s: %v, want ... %s", text, err, c.want)
			}
		}
		if _, err := place.New("meta-rl:weights=" + c.name); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("meta-rl: %v, want ... %s", err, c.want)
		}
	}
}

// Held contents are read, whatever happens to the file, until they are released; the latest hold counts.
func TestHold(t *testing.T) {
	file := filepath.Join(t.TempDir(), "samples")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	read := func(want string) {
		t.Helper()
		if have, err := ReadFile(file); err != nil || string(have) != want {
			t.Errorf("%q, %v, want %q", have, err, want)
		}
	}
	hold := func() *Files {
		f, err := Hold("tiresias-g:samples="+file, "meta-rl:digest=x")
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	write("1")
	a := hold()
	write("2")
	read("1")
	b := hold()
	read("2")
	b.Release()
	read("1")
	a.Release()
	write("3")
	read("3")
	(*Files)(nil).Release()
}

// Knobs that name files are the ones whose files are read in advance.
func TestFileKnobs(t *testing.T) {
	for _, p := range policy.List() {
		for _, k := range p.Knobs {
			named := len(policy.Files(p.Name+":"+k.Name+"=x")) == 1
			if strings.HasPrefix(k.About, "file ") != named {
				t.Errorf("%s: knob %s: named as a file: %t", p.Name, k.Name, named)
			}
		}
	}
}

// Pinned rules also name the shipped weights, and rules with other weights are refused.
func TestPinShipped(t *testing.T) {
	digest := func(system string) string {
		a, err := learn.Read(system, learn.Shipped(system))
		if err != nil {
			t.Fatal(err)
		}
		return a.Digest()
	}
	h := Rules{Policy: "sched2:check=2m", Placer: "meta-rl"}
	h.Pin()
	if want := "sched2:check=2m,digest=" + digest("sched2"); h.Policy != want {
		t.Errorf("%s, want %s", h.Policy, want)
	}
	if want := "meta-rl:digest=" + digest("meta-rl"); h.Placer != want {
		t.Errorf("%s, want %s", h.Placer, want)
	}
	again := h
	if again.Pin(); again.Policy != h.Policy || again.Placer != h.Placer {
		t.Errorf("pinned twice: %+v", again)
	}
	if _, err := h.Config(); err != nil {
		t.Error(err)
	}
	for _, other := range []Rules{{Policy: "sched2:digest=00000000", Placer: "meta-rl"},
		{Policy: "fifo", Placer: "meta-rl:digest=00000000"}} {
		if _, err := other.Config(); err == nil ||
			!strings.Contains(err.Error(), "the weights that come with Muster: their digest is") {
			t.Errorf("%+v: %v", other, err)
		}
		was := other
		if other.Pin(); other.Policy != was.Policy || was.Policy == "fifo" && other.Placer != was.Placer {
			t.Errorf("pinned over: %+v", other)
		}
	}
	plain := Rules{Policy: "las:levels=4", Placer: "pack"}
	if plain.Pin(); plain.Policy != "las:levels=4" || plain.Placer != "pack" {
		t.Errorf("%+v", plain)
	}
}
