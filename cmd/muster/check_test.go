package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const agrees = `# What this shows: one job on one GPU, done after ten minutes.
cluster nodes=1 gpus=1
jobs
0m a gpus=1 run=10m
run
expect job=a end=10m
`

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := write("good.scn", agrees)
	if out := ok(t, "check", good); !strings.Contains(out, "ok   "+good+" (1 runs, 1 checks)") {
		t.Errorf("%s", out)
	}
	differs := write("differs.scn", strings.Replace(agrees, "end=10m", "end=11m", 1))
	out, _, err := muster(t, context.Background(), "check", dir)
	if !errors.Is(err, errDiffers) || !strings.Contains(out, "FAIL "+differs) ||
		!strings.Contains(out, "a: end is 10m, not 11m") {
		t.Errorf("%v\n%s", err, out)
	}
	if err := os.Remove(differs); err != nil {
		t.Fatal(err)
	}
	mistake := write("mistake.scn", strings.Replace(agrees, "gpus=1 run", "gpu=1 run", 1))
	if out, _, err = muster(t, context.Background(), "check", dir); err == nil || errors.Is(err, errDiffers) ||
		!strings.Contains(out, mistake+":4: ") || !strings.Contains(out, `"gpus"`) {
		t.Errorf("%v\n%s", err, out)
	}
	for _, args := range [][]string{{"check"}, {"check", filepath.Join(dir, "none.scn")}, {"check", t.TempDir()}} {
		if _, _, err := muster(t, context.Background(), args...); err == nil {
			t.Errorf("muster %v: no error", args)
		}
	}
	rewritten := write("good.scn", strings.Replace(agrees, "run\nexpect", "run\n----\n\nexpect", 1))
	ok(t, "check", "--rewrite", rewritten)
	if text, err := os.ReadFile(rewritten); err != nil ||
		!strings.Contains(string(text), "  a: 0s-10m on n1:0\n\nexpect") {
		t.Errorf("%v\n%s", err, text)
	}
}
