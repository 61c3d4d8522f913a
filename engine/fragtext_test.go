package engine_test

import (
	"strings"
	"testing"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

// A job that waits while GPUs are free in pieces that are of no use to it is told so, in one line; one that
// waits for other reasons is not.
func TestFragmentsText(t *testing.T) {
	share := func(milli cluster.Milli) func(*cluster.Job) {
		return func(j *cluster.Job) { j.Tasks[0].Request.Share = milli }
	}
	for _, c := range []struct {
		what  string
		there []func(*cluster.Job) // on the two GPUs
		gpus  int
		asks  func(*cluster.Job)
		want  string
	}{
		{"whole GPUs beside shares", []func(*cluster.Job){
			share(780), share(780)}, 2, nil,
			"fragments: 0.44 GPUs are free where it may run, 0 of that in pieces that one of its tasks could use"},
		{"a share that is too large for both", []func(*cluster.Job){
			share(600), share(700)}, 1, share(500),
			"fragments: 0.7 GPUs are free where it may run, 0 of that in pieces that one of its tasks could use"},
		{"a gang for which there is room in part", []func(*cluster.Job){
			share(600), share(800)}, 1, func(j *cluster.Job) { share(300)(j); j.Tasks[0].Count = 2 },
			"fragments: 0.6 GPUs are free where it may run, 0.4 of that in pieces that one of its tasks could use"},
		{"nothing is free", []func(*cluster.Job){share(0), share(0)}, 1, nil, ""},
		{"all that is free is of use", []func(*cluster.Job){
			share(0)}, 1, func(j *cluster.Job) { j.Tasks[0].Count = 2 }, ""},
	} {
		h := newHand(t, "1x2xT4", "fifo", nil)
		var came, begun []engine.Event
		for i, f := range c.there {
			came, begun = append(came, submit(job(i, 1, 1000, f))), append(begun, ev(engine.Started, i))
		}
		h.at(0, came...)
		h.at(1, begun...)
		n := len(c.there)
		j := job(n, c.gpus, 10)
		if c.asks != nil {
			c.asks(&j)
		}
		h.want(2, "", submit(j))
		text := strings.Join(h.e.Why(cluster.JobID(n)).Blockers, "|")
		if c.want == "" && strings.Contains(text, "fragments:") || !strings.Contains(text, c.want) {
			t.Errorf("%s: %q, want %q", c.what, text, c.want)
		}
	}
}
