package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestInspectRequests: a file of requests is recognised, described, and refused where jobs are needed.
func TestInspectRequests(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.csv")
	text := "arrival_s,service,prompt_tokens,output_tokens\n0,chat,10,20\n1,chat,30,40\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{path}, {path, "--format", "csv"}} {
		out := ok(t, append([]string{"trace", "inspect"}, args...)...)
		if !strings.Contains(out, "(requests, csv): 2\n") || !strings.Contains(out, "prompts     20 tokens in the mean") {
			t.Errorf("%v: %s", args, out)
		}
	}
	var got struct {
		Requests int     `json:"requests"`
		Span     float64 `json:"span_s"`
	}
	out := ok(t, "trace", "inspect", path, "--json", "--limit", "1")
	if err := json.Unmarshal([]byte(out), &got); err != nil || got.Requests != 1 || got.Span != 0 {
		t.Errorf("%s: %v", out, err)
	}
	if out := ok(t, "trace", "formats"); !strings.Contains(out, "mooncake") {
		t.Errorf("formats: %s", out)
	}
	for want, args := range map[string][]string{
		"--skip-bad: is for workloads of jobs":             {"trace", "inspect", path, "--skip-bad"},
		`r.csv:1: there is no "timestamp"`:                 {"trace", "inspect", path, "--format", "mooncake"},
		`no column "timestamp" in the header`:              {"trace", "inspect", path, "--format", "philly"},
		"holds requests (csv), no jobs; muster sim":        {"sim", "--trace", path, "--cluster", "1x1"},
		"limit 0 or more":                                  {"trace", "inspect", path, "--limit", "-1"},
		"r.csv: holds requests (csv), no jobs; muster sim": {"trace", "convert", path, path + ".jsonl"},
	} {
		_, errw, err := muster(t, context.Background(), args...)
		if err == nil || !strings.Contains(errw+err.Error(), want) {
			t.Errorf("%v: %v %s, want %s", args, err, errw, want)
		}
	}
}
