//go:build linux

package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/muster-gpu/muster/local/cgroup"
)

// A command runs in a running job with its environment, folder, user and control group, and ends with it.
func TestExec(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "2xH100-80GB")
	dir := t.TempDir()
	d.must("submit", "--gpus", "1", "--name", "train", "-D", dir, "-e", "LESSON=one,two", "-o", "/dev/null", "--",
		"sleep", "1000")
	d.untilSays(`"state": "running"`, "show", "1")
	out := d.must("exec", "train", "--", "sh", "-c",
		"echo $LESSON $CUDA_VISIBLE_DEVICES $MUSTER_JOB_ID; pwd; cat /proc/self/cgroup; id -u")
	d.want(out, "one,two ", " 1\n", dir, fmt.Sprint(os.Getuid()))
	if len(cgroup.Open().Notes()) == 0 || os.Getuid() == 0 {
		d.want(out, "/muster/1.1.0.") // its group is named after job, run and task
	}
	if out, code := d.try("exec", "1", "sh", "-c", "exit 7"); code != 7 {
		t.Errorf("exit code %d, want 7\n%s", code, out)
	}
	if out, code := d.try("exec", "1", "no-such-program"); code != 127 || !strings.Contains(out, "command not found") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	d.must("submit", "--gpus", "2", "--", "true")
	for args, want := range map[string]string{"exec 2 true": "does not run at the moment",
		"exec 1 --task 3 true": "no task 3", "exec 9 true": "no such job", "exec 1": "see muster exec --help"} {
		words := strings.Fields(args)
		if len(words) > 2 && words[2] == "--task" { // flags come first
			words = []string{"exec", "--task", "3", "1", "true"}
		}
		if out, code := d.try(words...); code == exitOK || !strings.Contains(out, want) {
			t.Errorf("%s: exit code %d\n%s", args, code, out)
		}
	}
	done := make(chan string, 1)
	mark := dir + "/there"
	go func() {
		out, code := d.try("exec", "1", "sh", "-c", "touch "+mark+"; sleep 1000")
		done <- fmt.Sprint(code, out)
	}()
	d.eventually("the command to run", func() bool { _, err := os.Stat(mark); return err == nil })
	d.must("cancel", "1")
	if text := <-done; strings.HasPrefix(text, "0") {
		t.Errorf("the command outlived its job: %s", text)
	}
	d.want(d.must("audit", "--action", "exec"), "exec")
}
