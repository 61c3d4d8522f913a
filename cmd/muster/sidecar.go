//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/muster-gpu/muster/local/shim"
)

// muster is one program for everything, and as large as that. What is started
// over and over, the owner of a task and Slurm's commands, comes as small
// programs, too; they lie beside muster, which does without them where they are
// missing or are another build's.
const (
	shimProgram  = "muster-shim"
	slurmProgram = "muster-slurm"
)

// slurmBuildVerb makes muster-slurm print its version and end.
const slurmBuildVerb = "--build"

// shimCommand is what starts a shim, and what there is to say about it. The
// daemon takes a copy into its state: a newer program may be put beside it while
// it runs, and what that writes for a daemon of its own is not for this one.
func shimCommand(ctx context.Context, exe, state string) (command []string, note string) {
	small := filepath.Join(filepath.Dir(exe), shimProgram)
	err := fits(ctx, exe, small, shim.BuildVerb, shim.Build())
	if err == nil {
		if own := filepath.Join(state, shimProgram); copyProgram(small, own) == nil &&
			fits(ctx, exe, own, shim.BuildVerb, shim.Build()) == nil {
			small = own
		}
		return []string{small, shim.Verb}, ""
	}
	why := err.Error()
	if errors.Is(err, fs.ErrNotExist) {
		why = "it is not beside muster"
	}
	return []string{exe, shim.Verb}, "tasks are started by muster itself, not by " + shimProgram + ": " + why +
		"; that takes some milliseconds more for each task (make build makes both)"
}

// askTime is how long a small program may take to say what it is; on a machine
// that is busy with other things a few milliseconds become many.
const askTime = 10 * time.Second

// fits reports why a small program cannot stand in for muster; nil: it can.
func fits(ctx context.Context, exe, small, verb, want string) error {
	ours, err := os.Stat(exe)
	if err != nil {
		return err
	}
	theirs, err := os.Stat(small)
	if err != nil {
		return err
	}
	if missing := ours.Mode().Perm() &^ theirs.Mode().Perm() & 0o111; missing != 0 || !theirs.Mode().IsRegular() {
		return fmt.Errorf("%s may not be executed by all who may execute muster", small)
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	out, err := exec.CommandContext(ctx, small, verb).Output()
	if err != nil {
		return fmt.Errorf("%s %s: %w", small, verb, err)
	}
	if strings.TrimSpace(string(out)) != want {
		return fmt.Errorf("%s is of another build", small)
	}
	return nil
}

// copyProgram replaces a program by a copy of another; processes that run it go on.
func copyProgram(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	fi, err := os.Stat(from)
	if err != nil {
		return err
	}
	tmp := to + ".new"
	err = os.WriteFile(tmp, text, 0o700)
	if err == nil {
		err = os.Chmod(tmp, fi.Mode().Perm()) // whatever the umask is
	}
	if err == nil {
		err = os.Rename(tmp, to)
	}
	if err != nil {
		_ = os.Remove(tmp)
	}
	return err
}
