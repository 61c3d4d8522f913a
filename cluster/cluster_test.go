package cluster

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestDurations(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"90s": 90 * time.Second, "1h30m": 90 * time.Minute, "2d4h": 52 * time.Hour, "1w": 168 * time.Hour,
		"1.5d": 36 * time.Hour, "0": 0, "0s": 0, "1w2d3h4m5s": 219*time.Hour + 4*time.Minute + 5*time.Second,
	} {
		if got, err := ParseDuration(text); err != nil || got != want {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
	for _, bad := range []string{"", "-5s", "5", "5x", "d", "nand", "200y", "99999w", "1e300d", "2d-1h", "infd"} {
		if got, err := ParseDuration(bad); err == nil {
			t.Errorf("%q was accepted as %v", bad, got)
		}
	}
	rapid.Check(t, func(r *rapid.T) {
		d := time.Duration(rapid.Int64Range(0, int64(MaxDuration/time.Second)).Draw(r, "s")) * time.Second
		if got, err := ParseDuration(FormatDuration(d)); err != nil || got != d {
			r.Fatalf("%v is printed as %q and read as %v, %v", d, FormatDuration(d), got, err)
		}
	})
}

func TestTimeSaturates(t *testing.T) {
	if got := Time(math.MaxInt64 - 5).Add(time.Hour); got != Never {
		t.Errorf("beyond the end of time: %d", got)
	}
	if Never.Add(-time.Hour) != Never || Never.String() != "never" {
		t.Error("never is not never any more")
	}
}

func TestGroupTasks(t *testing.T) {
	each := Request{GPUs: 1, CPU: 4000, RAM: 100}
	for _, c := range []struct {
		n, per int
		want   []TaskSet
	}{
		{3, 8, []TaskSet{{1, Request{GPUs: 3, CPU: 12000, RAM: 300}}}},
		{8, 8, []TaskSet{{1, Request{GPUs: 8, CPU: 32000, RAM: 800}}}},
		{20, 8, []TaskSet{{2, Request{GPUs: 8, CPU: 32000, RAM: 800}}, {1, Request{GPUs: 4, CPU: 16000, RAM: 400}}}},
		{16, 8, []TaskSet{{2, Request{GPUs: 8, CPU: 32000, RAM: 800}}}},
		{5, 0, []TaskSet{{1, Request{GPUs: 5, CPU: 20000, RAM: 500}}}},
	} {
		got := GroupTasks(c.n, c.per, each)
		if len(got) != len(c.want) {
			t.Errorf("%d on nodes of %d: %+v", c.n, c.per, got)
			continue
		}
		for i := range got {
			if got[i] != c.want[i] {
				t.Errorf("%d on nodes of %d: %+v, want %+v", c.n, c.per, got[i], c.want[i])
			}
		}
	}
}

// What one changes of a model, as where a driver reports other sizes, is not what others find.
func TestModelsAreApart(t *testing.T) {
	found, _ := FindModel("A100-80GB")
	found.Profiles[0].Memory = 1
	for _, m := range Models() {
		if len(m.Profiles) > 0 {
			m.Profiles[0].Memory = 2
		}
	}
	if again, _ := FindModel("A100-80GB"); again.Profiles[0].Memory != 9728 {
		t.Errorf("%+v", again.Profiles[0])
	}
}

// The MIG table compared with NVIDIA's MIG user guide: extents, names, legal starts.
func TestModels(t *testing.T) {
	for _, m := range Models() {
		if m.Memory <= 0 || m.Generation == "" {
			t.Errorf("%s: no memory or generation", m.Name)
		}
		for _, p := range m.Profiles {
			if p.Compute > m.Compute || p.Max < 1 || len(p.Starts) == 0 || p.Memory > m.Memory {
				t.Errorf("%s %s: %+v", m.Name, p.Name, p)
			}
			for _, s := range p.Starts {
				if s < 0 || s+p.Slots > m.MemSlots {
					t.Errorf("%s %s: start %d is outside of %d slices", m.Name, p.Name, s, m.MemSlots)
				}
			}
		}
	}
	a100, _ := FindModel("A100-80GB")
	p, ok := a100.Profile("3g.40gb")
	if !ok || p.Slots != 4 || p.Compute != 3 || p.Mask(4) != 0xf0 {
		t.Errorf("3g.40gb: %+v", p)
	}
	if q, ok := a100.Profile("1g"); !ok || q.Name != "1g.10gb" {
		t.Errorf("1g: %+v", q)
	}
	for in, want := range map[string]string{"V100": "V100-16GB", "h100": "H100-80GB", "A100_40GB": "A100-40GB",
		"b200-180gb": "B200-180GB"} {
		if m, ok := FindModel(in); !ok || m.Name != want {
			t.Errorf("%s: %s, want %s", in, m.Name, want)
		}
	}
	if _, ok := FindModel("RTX"); ok {
		t.Error("an unknown family was found")
	}
}

// NVIDIA's MIG user guide: the actual memory of MIG instances, in MiB, where it is known; their
// names state more.
func TestSliceMemory(t *testing.T) {
	for name, want := range map[string][]MiB{"A100-40GB": {4864, 9856, 9856, 19968, 19968, 40192},
		"A30-24GB": {5836, 11672, 23344}} {
		m, _ := FindModel(name)
		var have []MiB
		for i := range m.Profiles {
			if p := &m.Profiles[i]; !p.Media() {
				have = append(have, p.Memory)
			}
		}
		if !slices.Equal(have, want) {
			t.Errorf("%s: %v, want %v", name, have, want)
		}
	}
}

func TestNames(t *testing.T) {
	if got := Nearest("polices", []string{"place", "policies", "load"}); got != "policies" {
		t.Errorf("nearest: %q", got)
	}
	if got := Nearest("zzzzzzzz", []string{"place", "policies"}); got != "" {
		t.Errorf("nothing is near, yet %q", got)
	}
	if err := Unknown("tier", "critcal", tierNames); !strings.Contains(err.Error(), `did you mean "critical"?`) {
		t.Error(err)
	}
	type all struct {
		K Kind
		T Tier
		L Level
		D DependencyType
		S NodeState
	}
	in := all{Trial, BestEffort, LevelFabric, Singleton, Draining}
	b, err := json.Marshal(in)
	if err != nil || string(b) != `{"K":"trial","T":"best-effort","L":"fabric","D":"singleton","S":"draining"}` {
		t.Errorf("%s, %v", b, err)
	}
	var out all
	if err := json.Unmarshal(b, &out); err != nil || out != in {
		t.Errorf("%+v, %v", out, err)
	}
	if json.Unmarshal([]byte(`{"T":"urgent"}`), &out) == nil {
		t.Error("an unknown tier was read")
	}
}
