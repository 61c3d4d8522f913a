//go:build linux

package main

import (
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// patience is how long anything may take on a machine that is busy with other things.
const patience = 4 * time.Minute

// until asks until the answer is yes; false: it did not come to that. It asks for a fifth of the
// time at most: most answers cost a process, and other tests run meanwhile.
func until(yes func() bool) bool {
	for end := time.Now().Add(patience); ; {
		begin := time.Now()
		if yes() {
			return true
		}
		if begin.After(end) {
			return false
		}
		time.Sleep(max(5*time.Millisecond, min(4*time.Since(begin), 250*time.Millisecond)))
	}
}

// eventually waits for something to be so.
func (d *daemon) eventually(what string, so func() bool) {
	d.t.Helper()
	if !until(so) {
		d.t.Fatalf("%s: not so\n%s", what, d.must("queue", "--all"))
	}
}

// untilSays waits until a command's output contains the text.
func (d *daemon) untilSays(text string, args ...string) (out string) {
	d.t.Helper()
	says := func() bool {
		out, _ = d.try(args...)
		return strings.Contains(out, text)
	}
	if !until(says) {
		d.t.Fatalf("%q does not come in\n%s", text, out)
	}
	return out
}

// patient is a command that is ended when it has taken too long.
func patient(program string, args ...string) *exec.Cmd {
	seconds := strconv.Itoa(int(patience / time.Second))
	return exec.Command("timeout", append([]string{seconds, program}, args...)...)
}
