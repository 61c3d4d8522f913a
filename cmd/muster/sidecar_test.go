//go:build linux

package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/muster-gpu/muster/local/shim"
)

// The small programs are used where they are, and muster does without them
// where they are not.
func TestSmallShim(t *testing.T) {
	t.Parallel()
	owner := []string{"run", "--", "sh", "-c", "readlink /proc/$PPID/exe"}
	d := startDaemon(t, "1xH100-80GB")
	if out := strings.TrimSpace(d.must(owner...)); filepath.Base(out) != shimProgram {
		t.Errorf("the task is owned by %q, not by %s", out, shimProgram)
	}
	if strings.Contains(d.log.String(), shimProgram) {
		t.Errorf("the log speaks of it:\n%s", d.log.String())
	}
	d.kill()
	d = prepareDaemon(t, "1xH100-80GB")
	d.bin = installed(t, d.bin, filepath.Join(d.dir, "alone", "muster"))
	d.start()
	if out := strings.TrimSpace(d.must(owner...)); out != d.bin {
		t.Errorf("the task is owned by %q, not by muster", out)
	}
	d.want(d.log.String(), "tasks are started by muster itself", "is not beside muster", "make build")
}

// installed is a copy of a program in a place of its own.
func installed(t *testing.T, from, to string) string {
	t.Helper()
	// A process that another test starts meanwhile would have the file open for a moment: then it could not be started.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), copyProgram(from, to)); err != nil {
		t.Fatal(err)
	}
	return to
}

// A program that is put beside a daemon while it runs is not for that daemon.
func TestShimReplaced(t *testing.T) {
	t.Parallel()
	d := prepareDaemon(t, "1xH100-80GB")
	bin, small := filepath.Join(d.dir, "bin", "muster"), filepath.Join(d.dir, "bin", shimProgram)
	installed(t, filepath.Join(filepath.Dir(d.bin), shimProgram), small)
	d.bin = installed(t, d.bin, bin)
	d.start()
	if err := os.Rename(small, small+".old"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(small, []byte("#!/bin/sh\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	d.want(d.must("run", "--", "sh", "-c", "readlink /proc/$PPID/exe"), filepath.Join(d.dir, "state", shimProgram)+"\n")
	d.kill()
	d.start() // what is there now does not fit
	d.want(d.must("run", "--", "sh", "-c", "readlink /proc/$PPID/exe"), bin+"\n")
}

// A small program of another build, or one that not everybody may execute who
// may execute muster, is not used.
func TestSmallProgramDoesNotFit(t *testing.T) {
	dir, state := t.TempDir(), t.TempDir()
	exe, small := filepath.Join(dir, "muster"), filepath.Join(dir, shimProgram)
	write := func(path, text string, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil { // whatever the umask is
			t.Fatal(err)
		}
	}
	write(exe, "", 0o755)
	for _, c := range []struct{ name, text, want string }{
		{"another build", "#!/bin/sh\necho 0123456789abcdef\n", "is of another build"},
		{"broken", "#!/bin/sh\nexit 3\n", "exit status 3"},
		{"ours", "#!/bin/sh\n[ $1 = " + shim.BuildVerb + " ] && echo " + shim.Build() + "\n", ""},
	} {
		write(small, c.text, 0o755)
		command, note := shimCommand(t.Context(), exe, state)
		if used := command[0] == filepath.Join(state, shimProgram); used != (c.want == "") ||
			!strings.Contains(note, c.want) || len(command) != 2 || command[1] != shim.Verb {
			t.Errorf("%s: %v, %q; want %q", c.name, command, note, c.want)
		}
	}
	if command, _ := shimCommand(t.Context(), exe, filepath.Join(state, "missing")); command[0] != small {
		t.Errorf("%v where no copy can be made", command)
	}
	write(small, "#!/bin/sh\necho "+shim.Build()+"\n", 0o700)
	if command, note := shimCommand(t.Context(), exe, state); command[0] != exe ||
		!strings.Contains(note, "may not be executed") {
		t.Errorf("%v, %q for a program that others may not execute", command, note)
	}
}

// Slurm's commands are links to the small program; links to muster itself, as
// there were before, are replaced, and what is not ours is left alone.
func TestSlurmInstall(t *testing.T) {
	bin, dir := buildMuster(t), t.TempDir()
	install := func(program string, args ...string) (string, error) {
		out, err := exec.Command(program, append([]string{"slurm", "install"}, args...)...).CombinedOutput()
		return string(out), err
	}
	leads := func(want string) {
		t.Helper()
		if to, err := os.Readlink(filepath.Join(dir, "squeue")); err != nil || to != want {
			t.Errorf("squeue leads to %q, %v; not to %q", to, err, want)
		}
	}
	alone := installed(t, bin, filepath.Join(t.TempDir(), "muster"))
	if out, err := install(alone, dir); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	leads(alone)
	if out, err := install(bin, dir); err == nil || !strings.Contains(out, "--force") {
		t.Errorf("links of another installation: %v\n%s", err, out)
	}
	small := installed(t, filepath.Join(filepath.Dir(bin), slurmProgram),
		filepath.Join(filepath.Dir(alone), slurmProgram))
	if out, err := install(alone, dir); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	leads(small)
	out, err := exec.Command(filepath.Join(dir, "squeue"), "--version").CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "slurm 22.05") {
		t.Errorf("squeue --version: %v, %s", err, out)
	}
	if out, err := exec.Command(small, "qsub").CombinedOutput(); err == nil ||
		!strings.Contains(string(out), "sbatch") {
		t.Errorf("muster-slurm qsub: %v, %s", err, out)
	}
	if out, err := exec.Command(small, "sinfo", "--version").CombinedOutput(); err != nil ||
		!strings.HasPrefix(string(out), "slurm") {
		t.Errorf("muster-slurm sinfo --version: %v, %s", err, out)
	}
}
