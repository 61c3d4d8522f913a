//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// TestGuestsYield: a best-effort job runs beside one whose steps take three times as long
// while it computes. It is held back, and goes on when the other has ended.
func TestGuestsYield(t *testing.T) {
	t.Parallel()
	d, _ := configured(t, "1xH100-80GB",
		"policy: 'antman:throttle=true'\nperformance: {pairs: {'host/guest': 0.6, 'guest/host': 0.9}}\n")
	beats := filepath.Join(t.TempDir(), "beats")
	write := func(suffix string) {
		if err := os.WriteFile(beats+suffix, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("")
	host := fmt.Sprintf(`n=0; last=0
until [ -e %[1]s.end ]; do
  now=$(wc -c < %[1]s); [ $now = $last ] || sleep 0.2; last=$now
  sleep 0.1; n=$((n+1)); echo "{\"step\": $n, \"steps\": 100000}" >> "$MUSTER_PROGRESS"
done`, beats)
	guest := fmt.Sprintf(
		`n=0; until [ -e %[1]s.end ] && [ $n -ge 20 ]; do printf . >> %[1]s; sleep 0.02; n=$((n+1)); done`, beats)
	d.must("submit", "-o", "/dev/null", "--gpus", "1", "--model", "host", "--", "sh", "-c", host)
	d.untilSays(`"end_by": "progress"`, "show", "1") // its speed alone is known
	d.must("submit", "-o", "/dev/null", "--gpus", "1", "--model", "guest", "--tier", "best-effort", "--", "sh", "-c",
		guest)
	d.untilSays("is held back so that job 1 beside it keeps 95 % of its speed", "history", "2")
	write(".end")
	d.must("wait", "1", "2")
	for _, id := range []string{"1", "2"} {
		d.want(d.must("show", id), `"state": "completed"`, `"preemptions": 0`)
	}
	d.replays()
}
