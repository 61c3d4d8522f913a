package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// pprofText is what a profile of pprof's format says, as it lies in the file: names of
// functions and units stand in it as they are.
func pprofText(t *testing.T, path string) []byte {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	z, err := gzip.NewReader(file)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return text
}

// TestProfiles: a profile says of which kind it is, and that of memory who allocated it;
// one is there also where a run fails.
func TestProfiles(t *testing.T) {
	rate := runtime.MemProfileRate // half a MiB: a short run may not be met
	runtime.MemProfileRate = 4096
	defer func() { runtime.MemProfileRate = rate }()
	dir := t.TempDir()
	cpu, memory := filepath.Join(dir, "cpu"), filepath.Join(dir, "memory")
	ok(t, "sim", "--demo", "--policies", "las", "--cpuprofile", cpu, "--memprofile", memory)
	for _, want := range []struct{ path, text string }{{cpu, "nanoseconds"}, {memory, "alloc_space"},
		{memory, "inuse_space"}, {memory, "muster-gpu/muster/engine."}} {
		if !bytes.Contains(pprofText(t, want.path), []byte(want.text)) {
			t.Errorf("%s has no %q", want.path, want.text)
		}
	}
	cpu = filepath.Join(dir, "failed")
	if _, _, err := muster(t, context.Background(), "sim", "--demo", "--policies", "none-such", "--cpuprofile",
		cpu); err == nil {
		t.Error("an unknown policy is taken")
	}
	if !bytes.Contains(pprofText(t, cpu), []byte("nanoseconds")) {
		t.Error("a run that failed left no profile")
	}
	if _, _, err := muster(t, context.Background(), "sim", "--demo", "--limit", "20", "--cpuprofile", cpu,
		"--memprofile", cpu); err == nil || !strings.Contains(err.Error(), "two files") {
		t.Errorf("one file for both: %v", err)
	}
	for _, flag := range []string{"--cpuprofile", "--memprofile"} {
		_, _, err := muster(t, context.Background(), "sim", "--demo", "--limit", "20", flag,
			filepath.Join(dir, "no", "such", "folder"))
		if !errors.Is(err, os.ErrNotExist) || !bytes.Contains([]byte(err.Error()), []byte(flag)) {
			t.Errorf("%s to a folder that is not there: %v", flag, err)
		}
	}
}
