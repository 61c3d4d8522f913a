//go:build linux

package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/muster-gpu/muster/api"
)

// Waiting jobs are changed and start when they fit; running ones are not; the
// changes outlive the daemon; the queue is listed as it was asked for.
func TestUpdateAndQueue(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "2xH100-80GB")
	d.must("submit", "--gpus", "2", "--name", "holder", "--", "sleep", "1000")
	d.must("submit", "--gpus", "2", "--name", "big", "--time", "1h", "--", "true")
	d.must("submit", "--gpus", "1", "--name", "small", "--", "true")
	out := d.must("queue", "-o", "job,name,gpus,limit,state", "--sort", "-gpus,-job")
	want := "JOB  NAME    GPUS  LIMIT  STATE\n2    big     2     1h     pending\n"
	if !strings.HasPrefix(out, want) || strings.Contains(out, "\x1b") {
		t.Errorf("the queue:\n%s\nwant:\n%s...", out, want)
	}
	d.want(d.must("queue", "--state", "starting,running", "--no-header", "-o", "name,where"), "holder", "GPU 0,1")
	if out, code := d.try("queue", "-o", "job,gpu"); code != exitUsage || !strings.Contains(out, "gpus") {
		t.Errorf("an unknown column: exit code %d\n%s", code, out)
	}
	d.want(d.must("update", "2", "--gpus", "1", "--time", "30m", "--name", "less", "--priority", "7"), "job 2: pending")
	d.kill()
	d.start()
	var list []api.Job
	if err := json.Unmarshal([]byte(d.must("queue", "--name", "less", "--json")), &list); err != nil || len(list) != 1 {
		t.Fatalf("%v %v", list, err)
	}
	if s := list[0].Submission; s.GPUs != 1 || s.Limit.String() != "30m" || s.Priority != 7 {
		t.Errorf("after the update: %+v", s)
	}
	for args, want := range map[string]string{
		"update 1 --gpus 1":  "only a waiting job can be changed",
		"update 3 --gpus 3":  "3 GPUs",
		"update 99 --gpus 1": "no such job",
		"update 3":           "nothing to change",
	} {
		if out, code := d.try(strings.Fields(args)...); code == exitOK || !strings.Contains(out, want) {
			t.Errorf("%s: exit code %d\n%s", args, code, out)
		}
	}
	d.want(d.must("__complete", "update", ""), "2\tless (", "3\tsmall")
	d.must("cancel", "1")
	d.must("wait", "2", "3")
	d.want(d.must("history", "2"), "pending", "starting", "completed") // so short a job need not be seen running
	d.want(d.must("history", "-o", "job,name,state"), "1    holder  cancelled", "2    less    completed")
}

// The column GPUS says what a job asks for, and of a part of a GPU what it became.
func TestGPUCount(t *testing.T) {
	slice := api.Device{Profile: "2g.20gb", Share: 285}
	for _, c := range []struct {
		state   string
		s       api.Submission
		devices []api.Device
		want    string
	}{
		{"pending", api.Submission{GPUs: 2, Tasks: 2}, nil, "4"},
		{"pending", api.Submission{GPUs: 1, Share: 250}, nil, "0.25"},
		{"pending", api.Submission{Memory: 8 << 10}, nil, "8GiB"},
		{"pending", api.Submission{Memory: 512, Tasks: 2}, nil, "2x512MiB"},
		// what it held last says nothing
		{"pending", api.Submission{Memory: 512}, []api.Device{{Share: 100}}, "512MiB"},
		{"pending", api.Submission{GPUs: 1, Tasks: 3, Profile: "1g.10gb"}, nil, "3x1g.10gb"},
		{"pending", api.Submission{}, nil, "0"},
		{"running", api.Submission{Memory: 8 << 10}, []api.Device{{Share: 100}}, "0.1"},
		{"running", api.Submission{GPUs: 1, Share: 250}, []api.Device{slice}, "2g.20gb"},
		{"running", api.Submission{GPUs: 1, Share: 600}, []api.Device{{}}, "1"},
		{"running", api.Submission{GPUs: 1}, []api.Device{slice}, "2g.20gb"}, // under miso
		{"running", api.Submission{GPUs: 1, Tasks: 3}, []api.Device{slice, slice, {Share: 500}}, "0.5+2x2g.20gb"},
		// as on a cluster, where not all is known
		{"running", api.Submission{GPUs: 2, Tasks: 2}, []api.Device{{}}, "4"},
	} {
		if got := gpuCount(&api.Job{State: c.state, Submission: c.s, Devices: c.devices}); got != c.want {
			t.Errorf("%s %+v on %v: %s, want %s", c.state, c.s, c.devices, got, c.want)
		}
	}
}

// A drained node takes no jobs and says why, also after a restart; what runs
// there goes on.
func TestDrain(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "2xH100-80GB")
	d.must("submit", "--gpus", "1", "--", "sleep", "1000")
	d.want(d.must("drain", "--reason", "new fans"), "draining", "new fans")
	d.must("submit", "--gpus", "1", "--name", "later", "--", "true")
	d.kill()
	d.start()
	d.want(d.must("nodes"), "draining", "new fans")
	d.untilSays("running", "queue") // its start was on its way when the daemon died
	d.want(d.must("queue"), "pending")
	if out, code := d.try("drain", "elsewhere"); code != exitFailed || !strings.Contains(out, "no such node") {
		t.Errorf("another node: exit code %d\n%s", code, out)
	}
	if out := d.must("undrain"); strings.Contains(out, "fans") || !strings.Contains(out, ": up") {
		t.Errorf("undrain: %s", out)
	}
	d.must("wait", "2")
	d.must("cancel", "1")
}
