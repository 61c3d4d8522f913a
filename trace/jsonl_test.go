package trace

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-gpu/muster/cluster"
)

// genEntry draws a job with any of its fields set.
func genEntry(t *rapid.T, id, jobs int) Entry {
	dur := rapid.Int64Range(0, int64(cluster.MaxDuration))
	text := rapid.SampledFrom([]string{"", "a", "résumé", `q"<>&,` + "\n", "\u2028", "\ufffd"})
	words := func(label string) []string {
		if n := rapid.IntRange(0, 2).Draw(t, label); n > 0 {
			return rapid.SliceOfN(text, n, n).Draw(t, label)
		}
		return nil
	}
	d := func(label string) time.Duration { return time.Duration(dur.Draw(t, label)) }
	e := Entry{Run: d("run"), End: cluster.Time(d("end")), Outcome: Outcome(rapid.IntRange(0, 2).Draw(t, "outcome"))}
	e.Job = cluster.Job{ID: cluster.JobID(id), Name: text.Draw(t, "name"), User: text.Draw(t, "user"),
		Queue:    text.Draw(t, "queue"),
		Kind:     cluster.Kind(rapid.IntRange(0, 4).Draw(t, "kind")),
		Tier:     cluster.Tier(rapid.IntRange(0, 2).Draw(t, "tier")),
		Priority: rapid.Int64().Draw(t, "priority"), GPUTypes: words("types"), Partitions: words("partitions"),
		Limit: d("limit"), Estimate: d("estimate"), Deadline: cluster.Time(d("deadline")),
		Begin: cluster.Time(d("begin")),
		Topology: cluster.Topology{Level: cluster.Level(rapid.IntRange(0, 4).Draw(t, "level")),
			Required: rapid.Bool().Draw(t, "required")},
		Checkpoint: cluster.Checkpoint{Interval: d("interval"), Cost: d("cost"), Restart: d("restart"),
			None: rapid.Bool().Draw(t, "none")},
		Hold: rapid.Bool().Draw(t, "hold"), NoRequeue: rapid.Bool().Draw(t, "norequeue"),
		Model: text.Draw(t, "model"),
		Traffic: cluster.Traffic{Pattern: cluster.Pattern(rapid.IntRange(0, 6).Draw(t, "pattern")),
			Bytes: rapid.Int64Range(0, 1<<40).Draw(t, "bytes"), Overlap: rapid.Int64Range(0, 1000).Draw(t, "overlap")},
		Skew: rapid.Int64Range(0, 5000).Draw(t, "skew"), Reservation: text.Draw(t, "reservation")}
	for range rapid.IntRange(1, 3).Draw(t, "sets") {
		e.Job.Tasks = append(e.Job.Tasks,
			cluster.TaskSet{Count: rapid.IntRange(1, 1000).Draw(t, "count"), Request: cluster.Request{
				GPUs: rapid.IntRange(0, 64).Draw(t, "gpus"), Share: rapid.Int64Range(0, 1000).Draw(t, "share"),
				Memory:  rapid.Int64Range(0, 1<<30).Draw(t, "memory"),
				Profile: text.Draw(t, "profile"), CPU: rapid.Int64Range(0, 1<<30).Draw(t, "cpu"),
				RAM: rapid.Int64Range(0, 1<<30).Draw(t, "ram")}})
	}
	if len(e.Job.Tasks) == 1 && e.Job.Tasks[0].Request.GPUs == 1 {
		e.Flexible = rapid.Bool().Draw(t, "flexible")
	}
	if rapid.Bool().Draw(t, "elastic") {
		e.Job.Elastic = cluster.Elastic{Min: 1, Max: rapid.IntRange(1, 100).Draw(t, "max")}
	}
	other := cluster.JobID(rapid.IntRange(0, jobs-1).Draw(t, "other"))
	if rapid.Bool().Draw(t, "after") {
		e.Job.After = []cluster.Dependency{
			{Type: cluster.DependencyType(rapid.IntRange(0, 2).Draw(t, "dep")), Job: other}}
	}
	if rapid.Bool().Draw(t, "array") {
		e.Job.Array = &cluster.Array{ID: other, Index: rapid.IntRange(0, 9).Draw(t, "index"),
			Cap: rapid.IntRange(0, 9).Draw(t, "cap")}
	}
	if rapid.Bool().Draw(t, "work") {
		e.Work = &Work{Steps: rapid.Float64Range(0, 1e15).Draw(t, "steps"),
			Batch: rapid.Int64Range(0, 1<<40).Draw(t, "batch"), Step: d("step")}
		for range rapid.IntRange(0, 3).Draw(t, "stages") {
			e.Work.Stages = append(e.Work.Stages, d("stage"))
		}
	}
	return e
}

func genWorkload(t *rapid.T) *Workload {
	n := rapid.IntRange(1, 5).Draw(t, "jobs")
	wl := &Workload{Name: rapid.SampledFrom([]string{"x", "ö"}).Draw(t, "name"),
		Format: rapid.SampledFrom([]string{"muster", "philly"}).Draw(t, "format"),
		Epoch:  rapid.Int64Range(0, 3e9).Draw(t, "epoch")}
	at := time.Duration(0)
	for i := range n {
		e := genEntry(t, i, n)
		at += time.Duration(rapid.Int64Range(0, int64(cluster.MaxDuration)/5).Draw(t, "gap"))
		e.Job.Submit = cluster.Time(at)
		wl.Jobs = append(wl.Jobs, e)
	}
	if rapid.Bool().Draw(t, "extras") {
		wl.Nodes = []cluster.Node{{Name: "n1", Model: "T4-16GB", GPUs: 4, State: cluster.Draining, Bad: 3}}
		wl.Notes = []string{"a note"}
		wl.Bad, wl.BadAll = []RowError{{File: "f", Line: 3, Reason: "r"}}, 7
		wl.Models = []string{"T4-16GB"}
	}
	return wl
}

func TestJSONLRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		wl := genWorkload(t)
		var buf bytes.Buffer
		if err := WriteJSONL(&buf, wl); err != nil {
			t.Fatal(err)
		}
		back, err := Read("x", &buf, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(wl, back) {
			t.Fatalf("came back differently:\n%+v\n%+v", wl, back)
		}
	})
}

func TestCreate(t *testing.T) {
	wl := openSample(t, "itp.csv", Options{})
	dir := t.TempDir()
	for _, name := range []string{"a.jsonl", "b.jsonl.gz", "c.jsonl.zst", "d"} {
		path := filepath.Join(dir, name)
		if err := Create(path, wl); err != nil {
			t.Fatal(err)
		}
		back, err := Open(path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(wl, back) {
			t.Errorf("%s came back differently", name)
		}
	}
	path := filepath.Join(dir, "e.csv.gz")
	if err := Create(path, wl); err != nil {
		t.Fatal(err)
	}
	back, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "format", back.Format, "csv")
	equal(t, "name", back.Name, "e")
	checkRows(t, back, rows(wl)...)
	if err := Create(filepath.Join(dir, "none", "f"), wl); err == nil {
		t.Error("a file in a missing directory was created")
	}
	// A failed rename (onto a directory) leaves no file behind.
	if err := Create(dir, wl); err == nil {
		t.Error("a directory was overwritten")
	}
	left, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "files", len(left), 5)
	parent, err := os.ReadDir(filepath.Dir(dir))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range parent {
		if strings.HasPrefix(f.Name(), ".muster-") {
			t.Errorf("left behind: %s", f.Name())
		}
	}
}

func TestLimit(t *testing.T) {
	wl := openSample(t, "tiresias.csv", Options{Limit: 2})
	equal(t, "jobs", len(wl.Jobs), 2)
	equal(t, "second", wl.Jobs[1].Job.Name, "c")
	checkNotes(t, wl, "only the first 2 of 3 jobs")
	_, err := Open(filepath.Join("testdata", "muster.jsonl"), Options{Limit: 2})
	if err != nil {
		t.Errorf("the first two jobs depend on no other job: %v", err)
	}
}

func TestParseStamp(t *testing.T) {
	for text, want := range map[string]int64{
		"1970-01-01 00:00:00": 0, "2017-10-09 07:01:55": 1507532515e9, "2020-02-29T12:00:00Z": 1582977600e9,
		"2023-05-01 10:00:00+08:00": 1682906400e9, "2023-05-01T10:00:00.25-0130": 1682940600e9 + 25e7,
		"2023-05-01 10:00:00 UTC": 1682935200e9,
	} {
		if got, ok := parseStamp([]byte(text)); !ok || int64(got) != want {
			t.Errorf("%s: %d %v, want %d", text, got, ok, want)
		}
	}
	for _, text := range []string{"", "2017-10-09", "2017-13-09 07:01:55", "2017-10-09 24:01:55", "2017-02-29 00:00:00",
		"1970-01-01 00:00:00+01:00", "2017-10-09 07:01:55x", "2017-10-09 07:01:55+1", "2070-01-01 00:00:00",
		"2017/10/09 07:01:55"} {
		if got, ok := parseStamp([]byte(text)); ok {
			t.Errorf("%q is accepted as %d", text, got)
		}
	}
}

func TestParseAmount(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// The integer path and the float path agree.
		whole := rapid.IntRange(0, 1e6).Draw(t, "whole")
		frac := rapid.StringMatching(`(\.[0-9]{1,6})?`).Draw(t, "frac")
		text := []byte(strconv.Itoa(whole) + frac)
		for _, unit := range []time.Duration{time.Millisecond, time.Second, time.Minute} {
			a, ok1 := parseAmount(text, unit)
			b, ok2 := slowAmount(text, unit)
			if d := a - b; !ok1 || !ok2 || d < -8 || d > 8 { // a float of 6e16 ns is right to 8
				t.Fatalf("%s %s: %d %v, %d %v", text, unit, a, ok1, b, ok2)
			}
		}
	})
	for _, text := range []string{"", ".", "-1", "1e400", "NaN", "Inf", "1.2.3", "0x10", "99999999999999", "1_0",
		" 1"} {
		if d, ok := parseAmount([]byte(text), time.Minute); ok {
			t.Errorf("%q is accepted as %s", text, d)
		}
	}
}
