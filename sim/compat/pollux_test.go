package compat

import (
	"context"
	"encoding/csv"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/muster-gpu/muster/internal/shared"
)

func polluxApps(t *testing.T) PolluxApps {
	t.Helper()
	apps, err := ReadPolluxApps(shared.Path(t, "traces/pollux"))
	if err != nil {
		t.Fatal(err)
	}
	return apps
}

// G-pollux-simulator, example A: how a batch is split.
func TestPolluxSplit(t *testing.T) {
	apps := polluxApps(t)
	for _, c := range []struct {
		app                             string
		batch, gpus, atomic, accumulate int
	}{{"ncf", 32768, 1, 16384, 1}, {"yolov3", 64, 4, 8, 1}, {"imagenet", 6400, 48, 134, 0}, {"deepspeech2", 20, 1, 20, 0}, {"cifar10", 2048, 6, 342, 0}, {"bert", 384, 6, 10, 5}} {
		if atomic, more := apps[c.app].split(c.batch, c.gpus, c.gpus == 1 && c.batch > apps[c.app].first); atomic != c.atomic || more != c.accumulate {
			t.Errorf("%+v: %d, %d", c, atomic, more)
		}
	}
}

// Example C: step times between measured ones, and of six nodes.
func TestPolluxTiming(t *testing.T) {
	apps := polluxApps(t)
	for _, c := range []struct {
		app        string
		shape      []int
		local      int
		step, sync float64
	}{{"cifar10", []int{4, 2}, 342, 0.26877741, 0}, {"cifar10", []int{2, 4}, 342, 0.26877741, 0}, {"imagenet", []int{4, 4, 4, 4, 4, 4}, 134, 0.74533214, 0.05992654}} {
		step, sync, err := apps[c.app].timing(c.shape, c.local)
		if err != nil || math.Abs(step-c.step) > 1e-7 || c.sync > 0 && math.Abs(sync-c.sync) > 1e-7 {
			t.Errorf("%+v: %.8f %.8f %v", c, step, sync, err)
		}
	}
}

// Example B: one job of ncf, alone.
func TestPolluxJob(t *testing.T) {
	apps := polluxApps(t)
	path := t.TempDir() + "/workload.csv"
	if err := os.WriteFile(path, []byte("name,time,application,num_replicas,batch_size\nx,135,ncf,1,32768\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := RunPollux(context.Background(), apps, path, false)
	if err != nil || !slices.Equal(w.JCT(), []int{122}) {
		t.Errorf("%v %v, want 122 s", w.JCT(), err)
	}
}

// Every job of a workload ends in the second in which it did in the published
// simulator.
func TestPolluxTiresias(t *testing.T) {
	f, err := os.Open(shared.Path(t, "traces/pollux/expected/tiresias_per_job_jct_load1.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	apps := polluxApps(t)
	w, err := RunPollux(context.Background(), apps, shared.Path(t, "traces/pollux/workloads/workload-1.csv"), false)
	if err != nil {
		t.Fatal(err)
	}
	wrong, n := 0, 0
	for _, r := range rows[1:] {
		if r[0] != "workload-1" {
			continue
		}
		i := slices.Index(w.Names(), r[1])
		want, err := strconv.ParseFloat(r[2], 64)
		if n++; err != nil || i < 0 || float64(w.JCT()[i]) != want {
			if wrong++; wrong < 10 {
				t.Errorf("job %s: %d s, want %s", r[1], w.JCT()[max(i, 0)], r[2])
			}
		}
	}
	if n != 160 || wrong > 0 {
		t.Errorf("%d of %d jobs differ", wrong, n)
	}
}

// A table that lacks a column, or names an application that nobody measured, is told.
func TestPolluxBadInput(t *testing.T) {
	apps, dir := polluxApps(t), t.TempDir()
	for text, want := range map[string]string{
		"name,time,application,num_replicas\nx,1,ncf,1\n":              `no column "batch_size"`,
		"name,time,application,num_replicas,batch_size\nx,1,gpt,1,8\n": `line 2: unknown application "gpt"`,
		"name,time,application,num_replicas,batch_size\nx,y,ncf,1,8\n": `line 2: time is "y", not a number`,
	} {
		path := dir + "/w.csv"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := RunPollux(context.Background(), apps, path, false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
