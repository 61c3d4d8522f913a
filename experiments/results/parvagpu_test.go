package results

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-gpu/muster/internal/shared"
)

// TestParvaGPU: no more GPUs than published, and no request is late.
func TestParvaGPU(t *testing.T) {
	t.Parallel()
	dir := filepath.Dir(filepath.Dir(shared.Path(t, "traces/parvagpu-mig/SLO_SLO_latency.csv")))
	tab, err := ParvaGPU(context.Background(), dir)
	if err != nil {
		t.Fatal(err)
	}
	want := []float64{2, 3, 5, 7}
	if len(tab.Rows) != 3*len(want) {
		t.Fatalf("%d rows", len(tab.Rows))
	}
	for i, r := range tab.Rows {
		switch {
		case strings.HasPrefix(r.Figure, "GPUs") != (i%3 == 0):
			t.Errorf("row %d is %+v", i, r)
		case i%3 == 0 && (r.Published != want[i/3] || r.Ours > r.Published):
			t.Errorf("%s: %g GPUs; published %g, known to be %g", r.Case, r.Ours, r.Published, want[i/3])
		case i%3 > 0 && r.Ours != 0:
			t.Errorf("%s: %s: %g", r.Case, r.Figure, r.Ours)
		}
	}
}

// TestParvaShares: parts of GPUs need no more GPUs than published for instances, and with even
// arrivals no request is late.
func TestParvaShares(t *testing.T) {
	t.Parallel()
	dir := filepath.Dir(filepath.Dir(shared.Path(t, "traces/parvagpu-mig/SLO_SLO_latency.csv")))
	tab, err := ParvaShares(context.Background(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(tab.Rows) != 3*parvaSets {
		t.Fatalf("%d rows", len(tab.Rows))
	}
	for i, r := range tab.Rows {
		if i%3 == 0 && r.Ours != r.Published || i%3 == 1 && r.Ours != 0 {
			t.Errorf("%s: %s: %g, published %g", r.Case, r.Figure, r.Ours, r.Published)
		}
	}
	if bad := tab.Failed(); len(bad) > 0 {
		t.Errorf("%+v", bad)
	}
}

// TestParvaChanges: as few GPUs as published after every change, without a spare one, and no
// service is short of capacity on the way.
func TestParvaChanges(t *testing.T) {
	t.Parallel()
	dir := filepath.Dir(filepath.Dir(shared.Path(t, "traces/parvagpu-mig/SLO_SLO_latency.csv")))
	tab, err := ParvaChanges(context.Background(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(tab.Rows) != 12 {
		t.Fatalf("%d rows", len(tab.Rows))
	}
	for _, r := range tab.Rows {
		if r.Ours > r.Published || !strings.Contains(r.Case, "0 spare GPUs") || strings.Contains(r.Case, ": 0 of") {
			t.Errorf("%s: %s: %g", r.Case, r.Figure, r.Ours)
		}
	}
}

// TestParvaServers: a deployment on two servers has the GPUs of both.
func TestParvaServers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := "Num instance,Num GPU,Model,Placement,Instance size,Batch size,Num proc\n0,0,a,0,3,1,1\n0,0,a,4,3,1,1\n0,7,a,0,7,1,1\n1,0,a,0,7,1,1\n"
	if err := os.WriteFile(filepath.Join(dir, "deployment_SLO1_SLO1_ParvaGPU_deploy.csv"), []byte(text),
		0o600); err != nil {
		t.Fatal(err)
	}
	if n, err := parvaGPUs(dir, 1); n != 3 || err != nil {
		t.Errorf("%d GPUs, %v; want 3", n, err)
	}
}
