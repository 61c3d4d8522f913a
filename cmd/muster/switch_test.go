//go:build linux

package main

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/muster-gpu/muster/api"
)

// slow is a job of twenty steps a second that takes four seconds to save and four
// to start.
const slow = `cd "$MUSTER_CHECKPOINT_DIR"
n=$(cat step 2>/dev/null || echo 0)
trap 'sleep 4; echo $n > new; mv new step; exit 0' USR1
[ $n = 0 ] || sleep 4
while :; do
  sleep 0.05; n=$((n+1)); echo "{\"step\": $n, \"steps\": 100000}" >> "$MUSTER_PROGRESS"
done`

// TestSwitchCost: what a stop and the start after it took is measured, shown, and
// charged to who used it.
func TestSwitchCost(t *testing.T) {
	d, _ := configured(t, "4xH100-80GB", "policy: fifo\n")
	d.must("submit", "-o", "/dev/null", "--gpus", "2", "--", "sh", "-c", slow)
	job := func() (j api.Job) {
		if err := json.Unmarshal([]byte(d.must("show", "1")), &j); err != nil {
			t.Fatal(err)
		}
		return j
	}
	until := func(what string, ok func(*api.Job) bool) api.Job {
		for range 600 {
			if j := job(); ok(&j) {
				return j
			}
			time.Sleep(100 * time.Millisecond)
		}
		t.Fatalf("it was never %s: %+v", what, job())
		return api.Job{}
	}
	until("at a known speed", func(j *api.Job) bool { return j.EndBy == api.EndByProgress })
	d.must("requeue", "1")
	j := until("where it was", func(j *api.Job) bool { return j.SwitchCost > 0 })
	if c := time.Duration(j.SwitchCost); c < 5*time.Second { // eight, to a second or two: reports are read once a second
		t.Errorf("a switch took %v; saving and starting alone are eight seconds", c)
	}
	var u api.Usage
	if err := json.Unmarshal([]byte(d.must("usage", "--json")), &u); err != nil {
		t.Fatal(err)
	}
	if want := 2 * time.Duration(j.SwitchCost).Hours(); u.Total.SwitchHours < want*0.99 {
		t.Errorf("%v GPU-hours of switches are charged; want %v", u.Total.SwitchHours, want)
	}
}
