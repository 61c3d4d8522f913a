//go:build linux

package main

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/perf"
)

// Jobs are told how often saving loses least, by the configuration and by what the daemon
// counted: standard ones never less often than was promised, those that say how often
// they save neither, best-effort ones more often once one was killed.
func TestCheckpointsTold(t *testing.T) {
	t.Parallel()
	const rules = "policy: fifo\ncheckpoints: {node_mtbf: 1d, max: 10m}\n"
	d, write := configured(t, "4xH100-80GB", rules)
	told := func(args ...string) string {
		t.Helper()
		lines := strings.Fields(
			d.must(append(append([]string{"run", "--gpus", "1"}, args...), "--", "sh", "-c",
				"echo ${MUSTER_CHECKPOINT_EVERY-nothing}")...))
		return lines[len(lines)-1] // before it it may be said that the job waits
	}
	daly := int(perf.Daly(30*time.Second, 24*time.Hour).Seconds())
	if got := told(); got != "600" {
		t.Errorf("a standard job is told %s, want 600", got)
	}
	if got := told("--tier", "best-effort"); got != strconv.Itoa(daly) {
		t.Errorf("a best-effort job is told %s, want %d", got, daly)
	}
	quick := strconv.Itoa(int(perf.Daly(2*time.Second, 24*time.Hour).Seconds()))
	for i, c := range []struct{ want, fields string }{
		{"120", "checkpoint_interval: 2m"}, {"600", "checkpoint_interval: 1h"},
		{"3600", "checkpoint_interval: 1h\ntier: best-effort"},
		{"nothing", "no_checkpoint: true\nenv: [MUSTER_CHECKPOINT_EVERY=7]"}, {quick, "checkpoint_cost: 2s"},
	} {
		out := filepath.Join(d.dir, fmt.Sprintf("told%d", i))
		d.must("submit", d.write(fmt.Sprintf("job%d.yaml", i),
			fmt.Sprintf("command: [sh, -c, 'echo ${MUSTER_CHECKPOINT_EVERY-nothing}']\ngpus: 1\noutput: %s\n%s\n", out,
				c.fields)))
		d.eventually(c.fields, func() bool { return d.read(filepath.Base(out)) != "" })
		if got := strings.TrimSpace(d.read(filepath.Base(out))); got != c.want {
			t.Errorf("%q is told %s, want %s", c.fields, got, c.want)
		}
	}
	d.want(d.must("config", "check", filepath.Join(d.dir, "muster.yaml")), "checkpoints", "node_mtbf 1d", "max 10m")

	said := filepath.Join(d.dir, "said")
	d.must("submit", "-o", "/dev/null", "--gpus", "4", "--tier", "best-effort", "--", "sh", "-c",
		`echo "$MUSTER_CHECKPOINT_EVERY" >> `+said+`; sleep 1000`)
	d.eventually("the best-effort job", func() bool { return d.read("said") != "" })
	d.must("run", "--gpus", "4", "--", "true") // which kills it
	d.eventually("it starts again", func() bool { return strings.Count(d.read("said"), "\n") == 2 })
	list := strings.Fields(d.read("said"))                         // one loss in a minute counts as one in a day
	want := int(perf.Daly(30*time.Second, 12*time.Hour).Seconds()) // beside the machine's failures, which come as often
	if got, err := strconv.Atoi(list[1]); err != nil || list[0] != strconv.Itoa(daly) || got < want-1 || got > want+1 {
		t.Errorf("before and after it was killed once, in a minute, it is told %v, want %d and %d", list, daly, want)
	}
	write("policy: fifo\ncheckpoints: {min: 2h, max: 1h}\n")
	if out, code := d.try("config", "reload"); code != exitFailed ||
		!strings.Contains(out, "muster.yaml:2: checkpoints: at least 2h apart and at most 1h old") {
		t.Errorf("exit code %d: %s", code, out)
	}
	write("policy: fifo\n")
	d.want(d.must("config", "reload"), "checkpoints")
	if got := told(); got != "nothing" {
		t.Errorf("without the key a job is told %s", got)
	}
}
