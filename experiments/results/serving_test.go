package results

import (
	"context"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/muster-gpu/muster/internal/shared"
)

// TestServing: on the recorded requests no policy that learns, as muster does, has more in time, unless both keep the
// goal; with the rates in its forecast muster has as many.
func TestServing(t *testing.T) {
	t.Parallel()
	traces := filepath.Dir(filepath.Dir(shared.Path(t, "traces/azure-llm/AzureLLMInferenceTrace_conv.csv")))
	for _, speed := range shared.Soak([]float64{8}, []float64{1, 4, 8}) {
		l, err := conversations(speed)(traces)
		if err != nil {
			t.Fatal(err)
		}
		s, err := l.section(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		inTime, hours, kept := map[string]float64{}, map[string]float64{}, map[string]bool{}
		for _, c := range s.Cells {
			name := strings.ReplaceAll(c[0], "`", "")
			inTime[name], _ = strconv.ParseFloat(strings.TrimSuffix(c[1], " %"), 64)
			hours[name], _ = strconv.ParseFloat(c[3], 64)
			kept[name] = c[6] != ""
		}
		for _, other := range []string{"hpa", "mark", "infaas", "lyra"} {
			if inTime[other] > inTime["muster"] && !kept["muster"] {
				t.Errorf("%s: %s has %g %% in time on %g GPU-hours, muster %g %% on %g", s.Title, other, inTime[other],
					hours[other], inTime["muster"], hours["muster"])
			}
		}
		if inTime["muster, foreseen"] < inTime["muster"]-0.05 {
			t.Errorf("%s: foreseen %g %%, else %g %%", s.Title, inTime["muster, foreseen"], inTime["muster"])
		}
	}
}

// TestSharing: parts of GPUs carry more than turns on whole ones on ParvaGPU's sets.
func TestSharing(t *testing.T) {
	t.Parallel()
	traces := filepath.Dir(filepath.Dir(shared.Path(t, "traces/parvagpu-mig/SLO_SLO_latency.csv")))
	var tab Table
	if err := tab.sharing(traces, shared.Soak(1, parvaSets)); err != nil {
		t.Fatal(err)
	}
	if len(tab.Rows) != 2 || len(tab.Failed()) > 0 {
		t.Errorf("%+v", tab.Rows)
	}
	for _, c := range tab.Sections[0].Cells {
		if !strings.HasPrefix(c[6], "+") || !strings.HasPrefix(c[7], "+") {
			t.Errorf("%v", c)
		}
	}
}

// TestTogether: where services share GPUs, no other policy has more in time than muster, and each takes more GPU-hours.
func TestTogether(t *testing.T) {
	t.Parallel()
	traces := filepath.Dir(filepath.Dir(shared.Path(t, "traces/parvagpu-mig/SLO_SLO_latency.csv")))
	services, err := parvaTogether(traces, 1, shared.Soak(12, 58))
	if err != nil {
		t.Fatal(err)
	}
	best, err := services.play(context.Background(), "muster", false)
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range []string{"mark", "infaas", "gpulet", "inss", "nexus"} {
		got, err := services.play(context.Background(), other, false)
		if err != nil {
			t.Fatal(err)
		}
		if got.inTime > best.inTime || got.gpuHours <= best.gpuHours {
			t.Errorf("%s: %.2f %% in time on %.2f GPU-hours, muster %.2f %% on %.2f", other, 100*got.inTime,
				got.gpuHours, 100*best.inTime, best.gpuHours)
		}
	}
}
