//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/show"
)

// jobs lists all jobs, also those that are over.
func (d *daemon) jobs(args ...string) (list []api.Job) {
	d.t.Helper()
	if err := json.Unmarshal([]byte(d.must(append([]string{"queue", "--all", "--json"}, args...)...)),
		&list); err != nil {
		d.t.Fatal(err)
	}
	return show.Expand(list)
}

// inStates counts jobs by state.
func (d *daemon) inStates() map[string]int {
	n := map[string]int{}
	for _, j := range d.jobs() {
		n[j.State]++
	}
	return n
}

// started counts the jobs that ever started.
func (d *daemon) started() (n int) {
	for _, j := range d.jobs() {
		if j.Started != nil || j.FirstStart != nil {
			n++
		}
	}
	return n
}

// TestCancelMany: an array, part of one, and what filters choose is cancelled, held and released in
// one step: no element starts because another ends.
func TestCancelMany(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "2xH100-80GB")
	d.must("slurm", "install", filepath.Join(d.dir, "bin"))
	array := func(indices, name string) { // its first element's number is the array's
		d.must("submit", "-o", "/dev/null", "--gpus", "1", "--array", indices, "--name", name, "--", "sleep", "1000")
	}
	array("0-599", "first")
	d.eventually("two elements run", func() bool { return d.inStates()[api.StateRunning] == 2 })

	if out := d.must("hold", "--state", "pending"); !strings.Contains(out, "598 jobs: held") {
		t.Errorf("hold: %s", out)
	}
	d.must("release", "1_[10-19]", "1_20")
	if out := d.must("hold", "1"); !strings.Contains(out, "598 jobs: held") {
		t.Errorf("hold of the array: %s", out)
	}
	d.must("release", "--all")
	d.must("cancel", "1_[590-598]", "1_599")
	if n := d.inStates()[api.StateCancelled]; n != 10 {
		t.Errorf("%d elements are cancelled, not the ten that were named", n)
	}
	from := time.Now()
	if out := d.must("cancel", "1"); !strings.Contains(out, "590 jobs: cancelled") {
		t.Errorf("cancel: %s", out)
	}
	t.Logf("cancelled in %v", time.Since(from))
	d.eventually("all are over", func() bool { return d.inStates()[api.StateCancelled] == 600 })
	if n := d.started(); n != 2 {
		t.Errorf("%d elements started; two ran when the others were cancelled", n)
	}

	array("0-299", "second")
	d.eventually("two elements run", func() bool { return d.inStates()[api.StateRunning] == 2 })
	d.slurm("scancel", "--name", "second")
	d.eventually("all are over", func() bool { return d.inStates()[api.StateCancelled] == 900 })
	if n := d.started(); n != 4 {
		t.Errorf("%d elements started with scancel", n)
	}
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"cancel"}, "name jobs, or choose them"},
		{[]string{"cancel", "12_["}, "is not the number of a job"},
		{[]string{"cancel", "99999"}, "no such job"},
		{[]string{"cancel", "1_[5-9]"}, "no element [5-9] of array 1 waits or runs"},
		{[]string{"cancel", "--state", "bored"}, "none of pending"},
	} {
		if out, code := d.try(c.args...); code == 0 || !strings.Contains(out, c.says) {
			t.Errorf("%v: %d %s", c.args, code, out)
		}
	}
	if out := d.must("cancel", "--name", "nothing"); !strings.Contains(out, "no job is chosen") {
		t.Errorf("cancel of nothing: %s", out)
	}
	d.replays()
}

// Another's jobs are refused by name and by filter, whatever else is chosen.
func TestCancelManyOfOthers(t *testing.T) {
	t.Parallel()
	needsRoot(t)
	d := startDaemon(t, "1xH100-80GB")
	as := d.others()
	d.must("submit", "-o", "/dev/null", "--gpus", "1", "--", "sleep", "1000")
	d.must("submit", "-o", "/dev/null", "--gpus", "1", "--", "sleep", "1000")
	mine := d.job("1").User
	for _, args := range [][]string{{"cancel", "1", "2"}, {"cancel", "--user", mine}} {
		if out, err := as("nobody", args...); err == nil || !strings.Contains(out, fmt.Sprintf("job 1 is %s's", mine)) {
			t.Errorf("%v: %v %s", args, err, out)
		}
	}
	if out, err := as("nobody", "cancel", "--all"); err != nil || !strings.Contains(out, "no job is chosen") {
		t.Errorf("cancel --all: %v %s", err, out)
	}
	if n := d.inStates(); n[api.StateCancelled] != 0 {
		t.Errorf("another user cancelled jobs: %v", n)
	}
}
