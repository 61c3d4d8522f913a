//go:build linux

package main

import (
	"encoding/json"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/muster-gpu/muster/client"
	"github.com/muster-gpu/muster/internal/shared"
)

// patience is how long anything may take on a machine that is busy with other things.
const patience = 4 * time.Minute

// until asks until the answer is yes; false: it did not come to that.
func until(yes func() bool) bool {
	for begin := time.Now(); ; {
		asked := time.Now()
		if yes() {
			return true
		}
		if asked.Sub(begin) > patience {
			return false
		}
		time.Sleep(shared.Pause(time.Since(begin), time.Since(asked)))
	}
}

// eventually waits for something to be so.
func (d *daemon) eventually(what string, so func() bool) {
	d.t.Helper()
	if !until(so) {
		d.t.Fatalf("%s: not so\n%s", what, d.must("queue", "--all"))
	}
}

// api asks the daemon without a process for each question, as what waits asks often.
func (d *daemon) api() *client.Client {
	if d.asked != d.socket {
		d.asked, d.client = d.socket, client.Unix(d.socket)
	}
	return d.client
}

// shown is what muster show prints of a job; "": the daemon does not say.
func (d *daemon) shown(id string) string {
	n, err := strconv.Atoi(id)
	if err != nil {
		d.t.Fatal(err)
	}
	j, err := d.api().Job(d.t.Context(), n)
	if err != nil {
		return ""
	}
	j.Submission.Env = nil
	text, err := json.MarshalIndent(j, "", "  ")
	if err != nil {
		d.t.Fatal(err)
	}
	return string(text)
}

// untilSays waits until a command's output contains the text.
func (d *daemon) untilSays(text string, args ...string) (out string) {
	d.t.Helper()
	says := func() bool {
		if args[0] == "show" && len(args) == 2 {
			out = d.shown(args[1])
		} else {
			out, _ = d.try(args...)
		}
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
