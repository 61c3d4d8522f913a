//go:build linux

package main

import "testing"

// What an hour of a GPU model counts for is said in the daemon's configuration, too, and
// counts at a reload: a job falls from the first level of las by it, long before it has had
// the GPU time of that level.
func TestWeightLive(t *testing.T) {
	t.Parallel()
	text := "policy: \"las:base=10m\"\nstop: {standard: {how: kill}}\n"
	d, write := configured(t, "1xT4-16GB", text)
	d.must("submit", "--gpus", "1", "--name", "first", "--", "sleep", "1000")
	d.untilSays("running", "show", "1")
	d.must("submit", "--gpus", "1", "--name", "second", "--", "sleep", "1000")
	d.untilSays(`"state": "pending"`, "show", "2")

	write(text + "models: [{name: T4, weight: 1000}]\n")
	d.want(d.must("config", "reload"), "models.T4-16GB: (none) -> weight 1000")
	d.untilSays(`"state": "running"`, "show", "2") // the first has had its ten minutes within a second
	d.want(d.must("show", "1"), `"preemptions": 1`)

	write(text + "models: [{name: T4, weight: 5000}]\n")
	out, code := d.try("config", "reload")
	if code != exitFailed {
		t.Errorf("a weight that cannot be: exit code %d", code)
	}
	d.want(out, "muster.yaml:3", `model "T4": weight 5000; between 0.001 and 1000 are possible`)
	write(text)
	d.want(d.must("config", "reload"), "models.T4-16GB: weight 1000 -> (none)")
	d.must("cancel", "1", "2")
	d.untilSays("cancelled", "show", "2")
	d.replays()
}
