package compat

import (
	"context"
	"os"
	"testing"

	"github.com/muster-gpu/muster/internal/shared"
)

// On cluster 10 as many jobs meet their deadlines as in the published simulator.
func TestSlots(t *testing.T) {
	t.Parallel()
	w, err := RunSlots(context.Background(), shared.Path(t, "traces/elasticflow-itp/deadline/cluster10.csv"), 32)
	if err != nil {
		t.Fatal(err)
	}
	if met, n := w.Met(); met != 124 || n != 260 {
		t.Errorf("%d of %d meet their deadlines, want 124 of 260", met, n)
	}
}

// ElasticFlow's simulator, example C: the cost of a start shows only if another event happens
// before the end.
func TestSlotsHandExample(t *testing.T) {
	t.Parallel()
	path := t.TempDir() + "/trace.csv"
	text := "job_id,submission_time,num_iteration,model_name,deadline,batch_size,num_gpu,duration\na,0,1,bert,110,128,8,100\nb,60,1,bert,220,128,8,100\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := RunSlots(context.Background(), path, 1)
	if err != nil || w.jobs[0].end != 110 || w.jobs[1].end != 220 {
		t.Errorf("ends %d and %d, %v; want 110 and 220", w.jobs[0].end, w.jobs[1].end, err)
	}
}
