package trace

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// One line per format, as TestEveryFormatIsTested requires.

func FuzzMuster(f *testing.F) {
	fuzzFormat(f, "muster",
		`{"muster_trace":1,"name":""}`+"\n"+`{"job":{"tasks":[{"count":1}],"array":{"id":0}},"run":1}`)
}
func FuzzCSV(f *testing.F)      { fuzzFormat(f, "csv", "submit_s,run_s,gpus\n1,2,3\n") }
func FuzzMuri(f *testing.F)     { fuzzFormat(f, "muri") }
func FuzzChronus(f *testing.F)  { fuzzFormat(f, "chronus") }
func FuzzOpenb(f *testing.F)    { fuzzFormat(f, "openb") }
func FuzzGavel(f *testing.F)    { fuzzFormat(f, "gavel") }
func FuzzPollux(f *testing.F)   { fuzzFormat(f, "pollux") }
func FuzzRubick(f *testing.F)   { fuzzFormat(f, "rubick") }
func FuzzHelios(f *testing.F)   { fuzzFormat(f, "helios") }
func FuzzAcme(f *testing.F)     { fuzzFormat(f, "acme") }
func FuzzITP(f *testing.F)      { fuzzFormat(f, "itp") }
func FuzzTiresias(f *testing.F) { fuzzFormat(f, "tiresias") }
func FuzzPAI(f *testing.F)      { fuzzFormat(f, "pai") }
func FuzzSacct(f *testing.F)    { fuzzFormat(f, "sacct") }
func FuzzSacctJSON(f *testing.F) {
	fuzzFormat(f, "sacct-json", `{"jobs":[{"time":{"start":1},"state":{"current":"FAILED"}},{"state":1}]}`)
}
func FuzzSWF(f *testing.F) { fuzzFormat(f, "swf") }

// FuzzDetect reads arbitrary input without naming a format.
func FuzzDetect(f *testing.F) { fuzzFormat(f, "", "\x1f\x8b", "(\xb5/\xfd", "\ufefftimestamp") }

func FuzzParseSynth(f *testing.F) {
	for _, s := range []string{"", "preset=small-team",
		"jobs=9,rate=3,durations=0.5*fixed:1s+pareto:1s:1h:2,gangs=1:2/8",
		"kinds=service,tiers=critical:2/standard", "durations=quantiles:0=1s/1=2s", "arrivals=bursty,epoch=5,peak=23"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseSynth(text)
		if err != nil {
			return
		}
		s.Jobs, s.Users = min(s.Jobs, 50), min(s.Users, 1000)
		s.Queues = min(s.Queues, s.Users)
		wl, err := Synth(s)
		if err != nil {
			return
		}
		checkWorkload(t, wl)
		checkRoundTrip(t, wl)
	})
}

// TestEveryFormatIsTested checks that each format has a sample, which detection assigns to it, and
// a fuzz test.
func TestEveryFormatIsTested(t *testing.T) {
	var src string
	tests, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range tests {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		src += string(b)
	}
	files, err := os.ReadDir("testdata")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range Formats() {
		if !strings.Contains(src, `fuzzFormat(f, "`+f.Name+`"`) {
			t.Errorf("format %s has no fuzz test", f.Name)
		}
		found := false
		for _, file := range files {
			base, _, _ := strings.Cut(file.Name(), ".")
			if base != f.Name && !(strings.HasPrefix(base, f.Name+"-") && base != "sacct-json") {
				continue
			}
			found = true
			o := companions("")
			if wl := openSample(t, file.Name(), o); wl.Format != f.Name && f.Name != "muster" {
				t.Errorf("%s is taken for %s", file.Name(), wl.Format)
			}
		}
		if !found {
			t.Errorf("format %s has no sample in testdata", f.Name)
		}
	}
}
