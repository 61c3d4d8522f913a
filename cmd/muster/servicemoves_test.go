package main

import (
	"strconv"
	"strings"
	"testing"

	"github.com/muster-gpu/muster/api"
)

// TestServiceMoves: a replica on a part of a GPU is moved for a job that needs the whole of one. Another one comes
// where it is moved to and answers before it leaves, also if the daemon dies meanwhile: no request is lost.
func TestServiceMoves(t *testing.T) {
	t.Parallel()
	running := func(j *api.Job) bool { return j.State == api.StateRunning }
	s := startSharing(t, 2)
	s.must("submit", "--gpus", "1", "--gpu-cores", "60%", "--no-requeue", "--", "sleep", "10000")
	s.must("submit", "--gpus", "1", "--gpu-cores", "30%", "--no-requeue", "--", "sleep", "10000")
	s.untilJob("2", "runs", running)
	s.applyChanged("one", "tier: standard\nreplicas: {min: 1, max: 1}\nscaling: static", "{batch: 1, latency: 5ms}",
		"{name: small,", "{name: small, share: 0.5,")
	s.answers("one", 1)
	before := s.show("one").Replicas[0]
	s.must("cancel", "1")
	s.must("submit", "--gpus", "1", "--name", "big", "--", "sleep", "10000")
	big := strconv.Itoa(before.Job + 1)
	end := s.load("one", 2)
	s.want(s.must("defrag", "big", "--apply"), "moved", "it goes on until another has come in its place")
	s.kill()
	s.start()
	s.untilJob(big, "runs", running)
	s.answers("one", 1)
	after := s.show("one").Replicas[0]
	was, is := strings.Join(before.Devices, " "), strings.Join(after.Devices, " ")
	if after.Job == before.Job || was == is {
		t.Errorf("job %d on %s, before job %d on %s", after.Job, is, before.Job, was)
	}
	answered, others := end()
	if answered == 0 || len(others) > 0 {
		t.Errorf("%d requests were answered, others: %v", answered, others)
	}
}
