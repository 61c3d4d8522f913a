package policy

import (
	"slices"
	"strings"
	"testing"

	"github.com/muster-gpu/muster/engine/sched"
	"github.com/muster-gpu/muster/internal/shared"
)

// Every policy can be made with its defaults, and describes itself.
func TestList(t *testing.T) {
	seen := map[string]bool{}
	for _, info := range List() {
		p, err := New(info.Name)
		if err != nil {
			t.Errorf("%s: %v", info.Name, err)
			continue
		}
		if p.Name() != info.Name || seen[info.Name] {
			t.Errorf("%s is named %q, or listed twice", info.Name, p.Name())
		}
		seen[info.Name] = true
		if info.About == "" || info.Source == "" || info.Needs == "" {
			t.Errorf("%s does not say what it is, where it comes from, or what it needs", info.Name)
		}
		if len(info.Trials) == 0 {
			t.Errorf("%s does not say when muster tune tries it", info.Name)
		}
		for _, k := range info.Knobs { // a knob accepts its own default and rejects invalid values
			if k.Default != "" {
				if _, err := New(info.Name + ":" + k.Name + "=" + k.Default); err != nil {
					t.Errorf("%s: knob %s refuses its default: %v", info.Name, k.Name, err)
				}
			}
			if _, err := New(info.Name + ":" + k.Name + "=?"); err == nil {
				t.Errorf("%s: knob %s accepts ?", info.Name, k.Name)
			}
		}
	}
}

// Knobs stay with their policy, even if their values have a colon.
func TestSplit(t *testing.T) {
	for text, want := range map[string][]string{
		"fifo,las:base=1h,levels=8": {"fifo", "las:base=1h,levels=8"},
		"gavel:objective=cost,prices=H100-80GB:3/T4-16GB:0.4,fifo": {
			"gavel:objective=cost,prices=H100-80GB:3/T4-16GB:0.4", "fifo",
		},
		"gavel:objective=hierarchical,inside=research:fifo/prod:fair,las": {"gavel:objective=hierarchical,inside=research:fifo/prod:fair", "las"},
		"gavel:prices=H100-80GB:3,las:levels=2":                           {"gavel:prices=H100-80GB:3", "las:levels=2"},
	} {
		got := Split(text)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
		for _, p := range got {
			if _, err := New(p); err != nil && !strings.Contains(err.Error(), "prices") {
				t.Errorf("%s: %v", p, err)
			}
		}
	}
}

func TestNewErrors(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"fifi", `unknown policy "fifi": did you mean "fifo"?`},
		{"fifo:x=1", "policy fifo has no knobs"},
		{"las:bse=1h", `unknown knob "bse": did you mean "base"?`},
		{"las:base", "is not knob=value"},
		{"las:levels=0", "from 1 to 30"},
		{"las:thresholds=5/3", "increasing"},
		{"las:thresholds=nan", "increasing"},
		{"las:dimension=space", "unknown dimension"},
		{"tiresias-l:thresholds=", "increasing GPU-seconds"},
		{"tiresias:thresholds=8/8", "increasing GPU-seconds"},
		{"tiresias-l:promote=-1", "promote=\"-1\": want a number from 0"},
		{"tiresias-l:promote=inf", "from 0 to 1000000"},
		{"tiresias:base=1h", "unknown knob"},
		{"multifactor:age=-1", "from 0 to 4294967295"},
		{"multifactor:max_age=0s", "at least 1s"},
		{"edf:preempt=perhaps", "neither true nor false"},
		{"gavel:objective=speed", "unknown objective"},
		{"gavel:round=0s", "round=0s: at least 1s"},
		{"gavel:objective=cost", "need each other"},
		{"gavel:prices=T4-16GB:1", "need each other"},
		{"gavel:objective=cost,prices=T4-16GB", "is not MODEL:PRICE"},
		{"pollux:round=0s", "round=0s: at least 1s"},
		{"pollux:grow=1", "grow=\"1\": want 2 to 1000, or 0"},
		{"sia:round=0s", "round=0s: at least 1s"},
		{"gavel:heterogeneity=some", "neither true nor false"},
		{"e-las:index=rest", "unknown index"},
		{"e-las:beta=0", `beta="0": want a number from 0.001 to 1000000`},
		{"e-las:T0=0s", "at least 1ms"},
		{"e-las:learn=0s", "at least 1s"},
		{"tiresias-g:steps=0", "from 1 to 1000"},
		{"tiresias-g:learn=1ms", "at least 1s"},
		{"tiresias-g:samples=/nowhere", "samples:"},
		{"gittins:near=101", `near="101": want a whole number from 0 to 100`},
		{"gittins:prior=-1", `prior="-1": want a whole number from 0 to 100`},
		{"gittins:near=0,prior=0", "nothing is left to go by"},
		{"gittins:quantum=1.5", "from 0 to 1"},
		{"gittins:quantum=x", "quantum"},
		{"gittins:base=1ms", "base=1ms: at least 1s"},
		{"gittins:learn=0s", "learn=0s: at least 1s"},
		{"muri:order=x", "unknown order"},
		{"muri:group=5", "from 1 to 4"},
		{"muri:group=0", "from 1 to 4"},
		{"muri:keep=101", "from 0 to 100"},
		{"muri:round=0s", "at least 1s"},
		{"gandiva:overhead=0.0001", "at least 0.001"},
		{"gandiva:overhead=1.5", "overhead="},
		{"gandiva:overhead=NaN", "overhead="},
	} {
		if _, err := New(c.text); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.text, err, c.want)
		}
	}
	p, err := New("las:levels=8,base=30m")
	if err != nil || p.Name() != "las:base=30m,levels=8" {
		t.Errorf("a policy is labelled with its knobs in order: %v, %v", p, err)
	}
}

// Every policy that plans may move jobs, except miso, which places them on instances itself.
func TestAnywhere(t *testing.T) {
	for _, name := range Names() {
		p := shared.Must(New(name))
		if _, plans := p.(sched.Planner); plans && p.Traits().Anywhere == (name == "miso") {
			t.Errorf("%s: %v", name, p.Traits().Anywhere)
		}
	}
}
