package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/muster-gpu/muster/report"
	"github.com/muster-gpu/muster/tune"
)

// How far the replay of the policy in force is from what happened is said, with a warning where that is far.
func TestWriteFit(t *testing.T) {
	for _, c := range []struct {
		fit  tune.Fit
		want string
	}{
		{tune.Fit{Jobs: 5, Recorded: 97.2, Replayed: 90, Off: 90/97.2 - 1},
			"mean JCT of the 5 jobs that came and ended under fifo: recorded 1m37s, in its replay 1m30s, 7 % shorter\n"},
		{tune.Fit{Jobs: 5, Recorded: 97.2, Replayed: 200, Off: 200/97.2 - 1}, "106 % longer"},
		{tune.Fit{Jobs: 5, Recorded: 97.2, Replayed: 60, Off: 60/97.2 - 1},
			"warning: the recommendation rests on a model that does not fit what happened: mean JCT of the 5 jobs that came and ended under fifo: recorded"},
	} {
		var b bytes.Buffer
		if writeFit(&b, &c.fit, "fifo"); !strings.Contains(b.String(), c.want) {
			t.Errorf("%+v: %s", c.fit, b.String())
		}
	}
	f := &tuneFlags{past: tune.NewHistory()}
	f.past.Header.Policy, f.past.Header.Placer = "fifo", "best-fit"
	f.current, f.placers = "las", "best-fit"
	if f.fitOf(&report.Run{}) != nil {
		t.Error("it was weighed against another policy than the history ran under")
	}
}
