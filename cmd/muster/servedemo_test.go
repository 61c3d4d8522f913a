//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/requests"
	"github.com/muster-gpu/muster/serving/scale"
	"github.com/muster-gpu/muster/serving/tally"
	"github.com/muster-gpu/muster/show"
	"github.com/muster-gpu/muster/sim"
)

var examples = filepath.Join("..", "..", "examples", "serving")

// TestServeDemo: the simulator, given the demo's load and what a request took in a recorded run of make serve-demo,
// predicts within a tenth what that came to: the part of the requests that were answered in time, and how many
// replicas there were.
func TestServeDemo(t *testing.T) {
	seen := readDemo(t, filepath.Join("testdata", "serve-demo.jsonl"))
	text, err := os.ReadFile(filepath.Join(examples, "demo.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	file, err := profiledFile(&api.Service{Text: string(text),
		Variants: []show.ServiceVariant{{Name: "matrix-4096", Measured: seen.Measured}}})
	if err != nil {
		t.Fatal(err)
	}
	services, err := config.ReadServices("demo.yaml", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "requests.yaml")
	if err := os.WriteFile(path, []byte(seen.Requests), 0o600); err != nil {
		t.Fatal(err)
	}
	load, err := config.LoadRequests(path, services)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := load.Stream()
	if err != nil {
		t.Fatal(err)
	}
	p, err := scale.New(services[0].Scaling)
	if err != nil {
		t.Fatal(err)
	}
	const before = 20 * time.Second // the recorded service answered when the load began
	s := &sim.Serving{Services: services, Scaling: []scale.Policy{p}, Period: 5 * time.Second,
		Stream: &later{stream, before}}
	spec := &cluster.Spec{Nodes: []cluster.Node{{Name: "n", Model: "H100-80GB", GPUs: 4, CPU: 64000, RAM: 1 << 20}}}
	out := sim.Run(context.Background(), spec, nil,
		sim.Setup{Policy: "multifactor", Placer: "best-fit", World: sim.Options{Serving: s}})
	if out.Err != nil {
		t.Fatal(out.Err)
	}
	got := &s.Served[0]
	replicas := (got.GPUHours*3600 - before.Seconds()) / (2 * time.Minute).Seconds()
	t.Logf("in time: %.3f, recorded %.3f; replicas: %.2f, recorded %.2f; at most %d, recorded %d; a request took %v ms",
		got.Attainment(), seen.Attainment(), replicas, seen.replicas, got.Peak, seen.most,
		1000*seen.Measured[0].Seconds)
	near := func(a, b float64) bool { return math.Abs(a-b) <= 0.1*b }
	if !near(got.Attainment(), seen.Attainment()) || !near(replicas, seen.replicas) || got.Peak != seen.most {
		t.Errorf("predicted: %.3f in time, %.2f replicas, %d at most; recorded: %.3f, %.2f and %d", got.Attainment(),
			replicas, got.Peak, seen.Attainment(), seen.replicas, seen.most)
	}
}

// TestServeDemoRecords: the demo still writes records of the form of the one with which the simulator is compared.
func TestServeDemoRecords(t *testing.T) {
	needsModels(t)
	if testing.Short() {
		t.Skip("runs the demo for 20 s")
	}
	dir := t.TempDir()
	load, record := filepath.Join(dir, "load.yaml"), filepath.Join(dir, "record")
	const text = "service: vision\nrate: 4\nfor: 5s\n"
	if err := os.WriteFile(load, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(filepath.Join("..", "..", "scripts", "serve-demo.sh"))
	c.Env = append(os.Environ(), "DEMO_PROGRAMS="+filepath.Dir(buildMuster(t)), "DEMO_GATEWAY="+l.Addr().String(),
		"DEMO_REQUESTS="+load, "DEMO_ROUNDS=1", "DEMO_RECORD="+record)
	var said bytes.Buffer
	c.Stdout, c.Stderr = &said, &said
	if err := c.Run(); err != nil {
		t.Fatalf("%v: %s", err, &said)
	}
	if d := readDemo(t, record); d.Arrived == 0 || d.replicas < 1 || d.Requests != text {
		t.Errorf("%+v: %s", d, &said)
	}
}

// later is a stream whose requests come later.
type later struct {
	requests.Stream
	by time.Duration
}

// Next overwrites r with the next request.
func (l *later) Next(r *requests.Request) error {
	err := l.Stream.Next(r)
	r.At = r.At.Add(l.by)
	return err
}

// demoRun is a recorded run of the demo: what it was, a line for each second with the replicas that there were, how
// long a request took, and what became of all.
type demoRun struct {
	Command  string
	Requests string
	Machine  string
	Measured []show.ServiceBatch
	tally.Tally
	replicas float64 // in the mean
	most     int
}

func readDemo(t *testing.T, path string) (d demoRun) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	seconds, total := 0, 0
	for in := bufio.NewScanner(f); in.Scan(); {
		var second struct{ Wanted, Answers, Replicas *int }
		if err := json.Unmarshal(in.Bytes(), &second); err != nil {
			t.Fatalf("%q: %v", in.Text(), err)
		}
		if second.Replicas != nil && second.Wanted != nil && second.Answers != nil {
			seconds++
			total += *second.Replicas
			d.most = max(d.most, *second.Replicas)
			continue
		}
		if err := json.Unmarshal(in.Bytes(), &d); err != nil {
			t.Fatalf("%q: %v", in.Text(), err)
		}
	}
	if seconds == 0 || d.Command == "" || d.Machine == "" || len(d.Measured) != 1 || d.Arrived == 0 {
		t.Fatalf("%d seconds: %+v", seconds, d)
	}
	d.replicas = float64(total) / float64(seconds)
	return d
}
