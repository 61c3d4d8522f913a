package requests

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// write puts a file of requests into a temporary folder.
func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "r.csv")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestInspect: what a file holds, counted by hand: ten requests at once after two minutes in each of which one came.
func TestInspect(t *testing.T) {
	text := "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n0,a,100,7,1,x\n60,b,300,9,1,x\n" +
		"61,b,5,0,1,x\n" + strings.Repeat("120.5,a,200,8,1,x\n", 10)
	s, err := Inspect(write(t, text), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if s.Format != "burstgpt" || s.Requests != 12 || s.Skipped != 1 || s.Span != 120.5 || s.Rate != 11/120.5 ||
		s.Minute != 10./60 || s.Second != 10 || s.CV < 2.1 || s.CV > 2.2 {
		t.Errorf("%+v", s)
	}
	if want := (Lengths{2400. / 12, 200, 200, 300, 300}); *s.Prompt != want {
		t.Errorf("prompts: %+v, want %+v", *s.Prompt, want)
	}
	if want := []Named{{"a", 11}, {"b", 1}}; fmt.Sprint(s.Services) != fmt.Sprint(want) {
		t.Errorf("names: %v, want %v", s.Services, want)
	}
	var out bytes.Buffer
	if err := s.WriteText(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"(requests, burstgpt): 12\n", "left out    1 ", "over 2m0.5s: 0.09129 a second",
		"0.1667 in the busiest minute, 10 in the busiest second", "answers     8 tokens", "\"b\"  "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

// TestInspectNames: of many names the most frequent are listed, and how many more there are.
func TestInspectNames(t *testing.T) {
	text := strings.Builder{}
	text.WriteString("arrival_s,service\n")
	for i := range 50 {
		for range 1 + i%2 {
			fmt.Fprintf(&text, "%d,s%02d\n", i, i)
		}
	}
	s, err := Inspect(write(t, text.String()), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Services) != mostNamed || s.Others != 50-mostNamed || s.Services[0] != (Named{"s01", 2}) ||
		s.Prompt != nil {
		t.Errorf("%+v", s)
	}
}

// TestInspectLittle: no request, one, and several at once have no rate; a damaged row is an error that names it.
func TestInspectLittle(t *testing.T) {
	for rows, want := range map[string]int64{"": 0, "5\n": 1, "5\n5\n5\n": 3} {
		s, err := Inspect(write(t, "arrival_s\n"+rows), Options{})
		var out bytes.Buffer
		if err != nil || s.Requests != want || s.Rate != 0 || s.CV != 0 || s.WriteText(&out) != nil {
			t.Errorf("%q: %+v, %v", rows, s, err)
		}
	}
	_, err := Inspect(write(t, "arrival_s\n1\nx\n"), Options{})
	if err == nil || !strings.Contains(err.Error(), "r.csv:3: ") {
		t.Errorf("a damaged row: %v", err)
	}
}

// TestDetect: each format by its first line; anything else is none.
func TestDetect(t *testing.T) {
	for text, want := range map[string]string{
		"\ufeffTIMESTAMP,ContextTokens,GeneratedTokens\r\n":               "azure",
		"Timestamp,Model,Request tokens,Response tokens\n":                "burstgpt",
		`{"timestamp": 27482, "input_length": 6955, "output_length": 52}`: "mooncake",
		"\n\narrival_s":                           "csv",
		"submit_s,run_s,gpus\n":                   "",
		`{"muster_trace":1,"name":"team"}` + "\n": "",
		"": "",
	} {
		if got, err := Detect(write(t, text)); err != nil || got != want {
			t.Errorf("%q: %q, %v; want %q", text, got, err, want)
		}
	}
	if _, err := Detect(write(t, "\x1f\x8b\x00\x00")); err == nil {
		t.Error("a damaged archive is read")
	}
}

// TestInspectAzure describes the recorded hour.
func TestInspectAzure(t *testing.T) {
	s, err := Inspect("../../shared/traces/azure-llm/AzureLLMInferenceTrace_conv.csv", Options{})
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("the recorded traces are not beside the repository")
	}
	if err != nil || s.Requests != 19366 || s.Second != 16 || s.Prompt.P50 != 1020 || s.Output.P99 != 601 {
		t.Errorf("%+v, %v", s, err)
	}
}
