package results

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/muster-gpu/muster/experiments/compat"
	"github.com/muster-gpu/muster/internal/shared"
	"github.com/muster-gpu/muster/trace"
)

// TestMuri compares the replays of three traces with the published figures, to the last printed digit; the slow rows of
// one trace only, without Themis in rounds, which takes as long as five others. MUSTER_SOAK adds Themis, the longest
// trace, and the slow rows of a second; `make results` plays all.
func TestMuri(t *testing.T) {
	t.Parallel()
	dir := filepath.Dir(filepath.Dir(shared.Path(t, "traces/muri/expected_fig9_fig10.csv")))
	slow := shared.Soak([]string{"trace3"}, []string{"trace3", "trace3_pr"})
	tab, err := muriOn(context.Background(), dir, func(trace string, p *muriPolicy) bool {
		if !p.slow {
			return trace != "trace4" || shared.Soak(false, true)
		}
		return slices.Contains(slow, trace) && (p.reason != muriShares || shared.Soak(false, true))
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := shared.Soak(36+24, 48+27*len(slow)); len(tab.Rows) != want || len(tab.Failed()) > 0 {
		t.Errorf("%d rows, want %d; beyond the tolerance are %v", len(tab.Rows), want, tab.Failed())
	}
	for _, r := range tab.Rows {
		if r.Reason == muriMixed && math.Abs(r.Ours-89025.229503) > 1e-6 {
			t.Errorf("%s, %s: %f, want 89025.229503 (Muri's simulator, 10)", r.Case, r.Figure, r.Ours)
		}
		if r.Reason == muriTies && math.Abs(r.Off()) > 0.03 {
			t.Errorf("%s, %s: off by %+.3f %%", r.Case, r.Figure, 100*r.Off())
		}
		if r.Reason == muriShares && math.Abs(r.Off()) > 0.08 {
			t.Errorf("%s, %s: off by %+.3f %%", r.Case, r.Figure, 100*r.Off())
		}
		if r.Reason != "" {
			continue
		}
		text := strconv.FormatFloat(r.Published, 'f', -1, 64)
		_, decimals, _ := strings.Cut(text, ".")
		if d := r.Ours - r.Published; d > half(len(decimals)) || d < -half(len(decimals)) {
			t.Errorf("%s, %s: %s, ours %f", r.Case, r.Figure, text, r.Ours)
		}
	}
}

// half is half a unit of the last decimal (plus the error of doubles).
func half(decimals int) float64 {
	u := 0.5000001
	for range decimals {
		u /= 10
	}
	return u + 5e-9
}

// The number of cluster events equals that of the published simulator, too; of the long trace under MUSTER_SOAK.
func TestMuriEvents(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		trace, pol string
		world      compat.Profile
		want       int
	}{
		{"trace3", "srtf", compat.Muri(), 1984}, {"trace4", "srtf", compat.Muri(), 5169},
		{"trace4", "srsf", compat.Muri(), 5169},
		{"trace3", "tiresias-l:thresholds=3250/7200", compat.MuriLevels(), 3358},
		{"trace4", "tiresias-l:thresholds=3250/7200", compat.MuriLevels(), 7918},
		{"trace3", "muri:order=s,keep=0", compat.MuriGroups(false, true), 1984},
	} {
		if shared.Soak(c.trace == "trace4", false) {
			continue
		}
		wl := shared.Must(trace.Open(shared.Path(t, fmt.Sprintf("traces/muri/%s.csv", c.trace)), trace.Options{}))
		f, err := compat.Run(context.Background(), c.world, wl.Jobs, 64, c.pol)
		if err != nil || f.Stirs != c.want {
			t.Errorf("%s under %s: %d events, %v; want %d", c.trace, c.pol, f.Stirs, err, c.want)
		}
	}
}

// TestMuriAllAtOnce: with all jobs at time 0, as in the paper's trace1' and trace4', many jobs
// reach the limit of a level at one instant, and the last bit of the sum of their run times decides
// which are demoted when. The expected figures were computed separately, from the simulator's rules
// alone.
func TestMuriAllAtOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		trace              string
		jct, makespan, p99 float64
		events             int
	}{
		{"trace1", 6921682.793319, 21990477.824095, 21765400.784095, 3246},
		{"trace3", 2213110.127711, 6761641.419945, 6739568.998770, 2383},
		{"trace4", 2674022.635595, 12584603.563650, 11219877.952119, 4771},
	} {
		if shared.Soak(c.trace != "trace3", false) {
			continue
		}
		wl := shared.Must(trace.Open(shared.Path(t, fmt.Sprintf("traces/muri/%s.csv", c.trace)), trace.Options{}))
		for i := range wl.Jobs {
			wl.Jobs[i].Job.Submit = 0
		}
		f, err := compat.Run(context.Background(), compat.MuriLevels(), wl.Jobs, 64, "tiresias-l:thresholds=3250/7200")
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range [][2]float64{{f.JCT, c.jct}, {f.Makespan, c.makespan}, {f.P99, c.p99},
			{float64(f.Stirs), float64(c.events)}} {
			if math.Abs(v[0]-v[1]) > half(6) {
				t.Errorf("%s: %f, want %f", c.trace, v[0], v[1])
			}
		}
	}
}
