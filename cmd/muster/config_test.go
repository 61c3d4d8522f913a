//go:build linux

package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// The daemon schedules by its configuration; a wrong one is named by file and
// line, and nothing starts.
func TestConfig(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "4xH100-80GB")
	d.kill()
	file := filepath.Join(d.dir, "muster.yaml")
	write := func(text string) { d.write("muster.yaml", text) }
	write("policy: fifo\nqueues:\n  - {name: research, guarantee: 3}\n  - {name: closed, guarantee: 1}\nmembers:\n  closed: {users: [nobody-at-all]}\nstop:\n  standard: {how: kill, grace: 1s}\n")
	d.want(d.must("config", "check", file), "fine; 2 queues")
	write("kind: MusterConfiguration\npolicy: fifo\n") // of another program
	d.want(d.must("config", "check", file), "fine, for muster kube", "gpu_resources", "nvidia.com/gpu")
	write("kind: MusterConfiguration\nplase: best-fit\n")
	if out, code := d.try("config", "check", file); code == exitOK ||
		!strings.Contains(out, `muster.yaml:2: unknown key "plase"`) {
		t.Errorf("exit code %d\n%s", code, out)
	}
	write("policy: fifo\nqueues:\n  - {name: research, guarantee: 3}\n  - {name: closed, guarantee: 1}\nmembers:\n  closed: {users: [nobody-at-all]}\nstop:\n  standard: {how: kill, grace: 1s}\n")
	d.args = []string{"--config", file}
	d.policy = "las"
	d.start()
	d.want(d.must("queues"), "research", "3")
	d.want(d.log.String(), "policy=las") // the flag goes before the file
	d.must("run", "--queue", "research", "--", "true")
	if out, code := d.try("submit", "--queue", "closed", "--", "true"); code != exitFailed ||
		!strings.Contains(out, "not a member of closed") {
		t.Errorf("a queue of others: exit code %d\n%s", code, out)
	}
	for text, want := range map[string]string{
		"policy: fifo\npolcy: las\n":                    "muster.yaml:2: ",
		"policy: fifoo\n":                               "fifo",
		"stop: {standard: {how: ask}}\n":                "checkpoint",
		"queues: [{name: a}]\nmembers: {b: {}}\n":       "members",
		"stop: {standard: {how: kill, grase: 1s}}\n":    "grace",
		"queues: [{name: a, guarantee: 5, limit: 2}]\n": "",
	} {
		write(text)
		out, code := d.try("config", "check", file)
		if want != "" && (code != exitFailed || !strings.Contains(out, want)) {
			t.Errorf("%q: exit code %d\n%s", text, code, out)
		}
		if out, code := d.try("serve", "--config", file, "--gpus", "sim:4xH100-80GB", "--state",
			filepath.Join(d.dir, "x"), "--socket", d.socket+"x"); code == exitOK {
			t.Errorf("serve takes %q: %s", text, out)
		}
	}
}
