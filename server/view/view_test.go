package view

import (
	"testing"

	"github.com/muster-gpu/muster/api"
)

type stranger struct{ owns string }

func (s stranger) Me() api.Me            { return api.Me{User: "eve"} }
func (s stranger) Owns(user string) bool { return user == s.owns }

// A job's measurements and the place of its checkpoint are shown to those who see the job in full; for a row of
// a list that has neither, no owner is looked up.
func TestShownProgress(t *testing.T) {
	v := 0.5
	of := func() api.Job {
		return api.Job{User: "ann", Progress: &api.Progress{Step: 7, Checkpoint: "/ckpt/7"},
			Metrics: []api.Metrics{{Of: map[string]*float64{"loss": &v}}}}
	}
	j := of()
	if got := Shown(stranger{}, j); got.Metrics != nil || got.Progress == nil || got.Progress.Checkpoint != "" ||
		got.Progress.Step != 7 {
		t.Errorf("a stranger sees %+v, %+v", got.Progress, got.Metrics)
	}
	if j.Progress.Checkpoint == "" {
		t.Error("what was shown changed")
	}
	if got := Shown(stranger{"ann"}, j); len(got.Metrics) != 1 || got.Progress.Checkpoint != "/ckpt/7" {
		t.Errorf("its owner sees %+v, %+v", got.Progress, got.Metrics)
	}
	if j = of(); private(&api.Job{User: "ann", Progress: &api.Progress{Step: 7}}) ||
		!private(&api.Job{Metrics: j.Metrics}) || !private(&api.Job{Progress: j.Progress}) {
		t.Error("what is private is told otherwise")
	}
}
