package sim

import (
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/learn"
	"github.com/muster-gpu/muster/perf"
	"github.com/muster-gpu/muster/trace"
)

// apartModel is a model in which a gang has three quarters of its speed on several nodes of a rack,
// and half on several racks.
type apartModel struct{ perf.Model }

func (apartModel) Rate(_ *cluster.Job, p perf.Placement) int64 {
	switch {
	case p.Nodes < 2:
		return perf.Million
	case p.Level == cluster.LevelRack:
		return perf.Million * 3 / 4
	}
	return perf.Million / 2
}

// A world drawn from a trace has what the policy knows: losses by distance, jobs of unknown length,
// nodes with the same GPU.
func TestLearnWorlds(t *testing.T) {
	spec := &cluster.Spec{
		Nodes: []cluster.Node{{Name: "a", Model: "A100", GPUs: 8, Rack: "x"},
			{Name: "b", Model: "V100", GPUs: 8, Rack: "x"}, {Name: "c", Model: "A100", GPUs: 8, Rack: "y"}}}
	var entries []trace.Entry
	for i := range 2 * learn.WorldJobs {
		e := trace.Entry{Run: time.Hour,
			Job: cluster.Job{ID: cluster.JobID(i), Submit: cluster.Time(i) * cluster.Time(10*time.Minute),
				Tasks: []cluster.TaskSet{{Count: 1 + i%2, Request: cluster.Request{GPUs: 4}}}}}
		if i%4 >= 2 {
			e.Job.Estimate = time.Hour
		}
		if i%8 >= 4 {
			e.Job.Skew = 200
		}
		entries = append(entries, e)
	}
	for _, c := range []struct {
		model perf.Model
		want  map[[2]float64]bool
	}{{nil, map[[2]float64]bool{{}: true, {0.3, 0.3}: true}},
		{apartModel{}, map[[2]float64]bool{{}: true, {0.25, 0.5}: true}}} {
		draw, err := LearnWorlds(spec, entries, c.model)
		if err != nil {
			t.Fatal(err)
		}
		w := draw(learn.NewRand(1), 0.9)
		known := 0
		have := map[[2]float64]bool{}
		for i := range w.Jobs {
			j := &w.Jobs[i]
			have[j.Loss] = true
			if !j.Unknown {
				known++
			}
			if j.Tasks == 1 && j.Loss != [2]float64{} {
				t.Errorf("a job of one task loses %v", j.Loss)
			}
		}
		if len(have) != len(c.want) {
			t.Errorf("losses %v, want %v", have, c.want)
		}
		for l := range c.want {
			if !have[l] {
				t.Errorf("losses %v, want %v", have, c.want)
			}
		}
		if known < learn.WorldJobs/3 || known > learn.WorldJobs*2/3 {
			t.Errorf("the length of %d of %d is known, want half", known, learn.WorldJobs)
		}
		if len(w.Rooms) < 2 || w.Rooms[0].Kind == w.Rooms[1].Kind {
			t.Errorf("nodes %+v", w.Rooms)
		}
	}
}
