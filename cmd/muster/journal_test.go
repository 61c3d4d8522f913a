//go:build linux

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A live daemon's journal is replayed hash by hash: since its first start,
// and since a restart in the middle of things, from the snapshot then.
func TestJournalExport(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "2xH100-80GB")
	d.env = []string{"API_KEY=hunter2"}
	d.must("run", "--gpus", "1", "--", "true")
	d.must("submit", "--gpus", "2", "--name", "long", "--", "sleep", "1000")
	for range 3 {
		d.must("submit", "--gpus", "1", "--", "true")
	}
	d.must("why", "3") // looking changes nothing
	d.untilSays("running", "queue")
	d.kill()
	d.start()
	d.must("submit", "--gpus", "2", "--tier", "critical", "--", "true")
	d.must("update", "4", "--gpus", "2")
	d.must("cancel", "2")
	d.must("wait", "3", "4", "5", "6")
	for segment, job := range map[string]string{"0": "6", "1": "1"} {
		file := filepath.Join(d.dir, segment+".journal")
		d.must("journal", "export", "-o", file, "--segment", segment)
		d.want(d.must("replay", file), "every decision the same")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "hunter2") {
			t.Error("the journal holds what a job runs, or its environment")
		}
		lines := strings.Count(string(text), "\n")
		if lines < 8 {
			t.Errorf("segment %s has %d lines only", segment, lines)
		}
		d.want(d.must("explain", file, "--job", job), "job "+job)
		changed := strings.Replace(string(text), `"gpus":2`, `"gpus":1`, 1)
		if err := os.WriteFile(file, []byte(changed), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, code := d.try("replay", file); code == exitOK {
			t.Errorf("a changed journal is accepted: %s", out)
		}
	}
	if out, code := d.try("journal", "export", "--segment", "9"); code != exitFailed ||
		!strings.Contains(out, "there are 1 to 2") {
		t.Errorf("segment 9: exit code %d\n%s", code, out)
	}
}
