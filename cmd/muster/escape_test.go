//go:build linux

package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/client"
	"github.com/muster-gpu/muster/internal/plain"
)

// hostile is what a terminal would act on, in every way that there is.
const hostile = "x\x1b]0;owned\x07\x1b[31m\n999 root running\t\u202egnp\u009b2J\r"

// What a job's user can say reaches other people's terminals without anything that a terminal would act on; in
// JSON it stays what it is. Names and comments that hold such characters are refused.
func TestEscape(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "1xH100-80GB")
	cl := client.Unix(d.socket)
	for _, s := range []api.Submission{{Name: "a\x1b[0m"}, {Name: "a\nb"}, {Name: "a\x00b"}, {Name: "a\u202eb"},
		{Comment: "a\x1b]0;b\x07"}, {Comment: "a\x00"}} {
		s.Command, s.Dir = []string{"true"}, "/"
		if _, err := cl.Submit(t.Context(), &s, ""); err == nil || !strings.Contains(err.Error(), "may not be in a") {
			t.Errorf("name %q, comment %q: %v", s.Name, s.Comment, err)
		}
	}
	s := &api.Submission{Command: []string{filepath.Join(d.dir, hostile), hostile}, Dir: "/",
		Output: filepath.Join(d.dir, "out"+hostile), Comment: "two\nlines", GPUs: 1}
	if _, err := cl.Submit(t.Context(), s, ""); err != nil {
		t.Fatal(err)
	}
	d.try("wait", "1") // it cannot be started, which is told with its name
	s.Command, s.Hold = []string{"sleep", hostile}, true
	if _, err := cl.Submit(t.Context(), s, ""); err != nil {
		t.Fatal(err)
	}
	d.must("drain", d.node(), "--reason", hostile)
	for _, args := range []string{"queue -a", "why 1", "why 2", "history 1", "show 1", "show 2", "queue -a --json",
		"nodes", "nodes --json", "queues", "usage",
		"slurm squeue", "slurm squeue -o %i|%j|%o|%k|%R", "slurm squeue --json", "slurm scontrol show job",
		"slurm scontrol show node", "slurm sinfo -R", "slurm sacct -P -o jobid,jobname,submitline,comment,state",
		"slurm sacct"} {
		out, _ := d.try(strings.Fields(args)...)
		for _, line := range strings.Split(out, "\n") {
			if r, ok := plain.Acts(strings.ReplaceAll(line, "\t", "")); ok {
				t.Errorf("muster %s prints %+q: %+q", args, r, line)
			}
			if strings.HasPrefix(strings.TrimSpace(line), "999") {
				t.Errorf("muster %s prints a row that a user made up: %q", args, line)
			}
		}
	}
	if r, ok := plain.Acts(strings.ReplaceAll(d.log.String(), "\n", "")); ok {
		t.Errorf("the daemon logs %+q", r)
	}
	var j api.Job
	if err := json.Unmarshal([]byte(d.must("show", "2")), &j); err != nil || len(j.Submission.Command) != 2 ||
		j.Submission.Command[1] != hostile {
		t.Errorf("JSON says that the command is %q (%v)", j.Submission.Command, err)
	}
}

// node is the name of the daemon's node.
func (d *daemon) node() string {
	d.t.Helper()
	nodes, err := client.Unix(d.socket).Nodes(d.t.Context())
	if err != nil || len(nodes) == 0 {
		d.t.Fatal(err)
	}
	return nodes[0].Name
}
