package trace

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// The samples in testdata were written by hand for these tests.

func sec(n float64) cluster.Time { return cluster.Time(asDuration(n)) }

// row is what a test expects of a job.
type row struct {
	name, queue, user, model string
	submit                   cluster.Time
	run                      time.Duration
	gpus                     int
	kind                     cluster.Kind
	tier                     cluster.Tier
	outcome                  Outcome
	deadline                 cluster.Time
	limit                    time.Duration
}

func rows(wl *Workload) []row {
	var out []row
	for i := range wl.Jobs {
		e := &wl.Jobs[i]
		j := &e.Job
		out = append(out, row{j.Name, j.Queue, j.User, j.Model, j.Submit, e.Run, j.GPUs(), j.Kind, j.Tier, e.Outcome,
			j.Deadline, j.Limit})
	}
	return out
}

func checkRows(t *testing.T, wl *Workload, want ...row) {
	t.Helper()
	got := rows(wl)
	if len(got) != len(want) {
		t.Fatalf("%d jobs, want %d: %+v", len(got), len(want), got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("job %d:\n got %+v\nwant %+v", i, got[i], want[i])
		}
	}
	checkRoundTrip(t, wl)
}

func checkNotes(t *testing.T, wl *Workload, want ...string) {
	t.Helper()
	for _, w := range want {
		if !slices.ContainsFunc(wl.Notes, func(n string) bool { return strings.Contains(n, w) }) {
			t.Errorf("no note with %q in %q", w, wl.Notes)
		}
	}
}

const std = cluster.Standard

func TestTiresiasSample(t *testing.T) {
	wl := openSample(t, "tiresias.csv", Options{})
	checkRows(t, wl,
		row{name: "a", model: "toynet", run: 40 * time.Second, gpus: 2, tier: std},
		row{name: "c", model: "toynet", submit: sec(10), run: 300 * time.Second, gpus: 8, tier: std},
		row{name: "b", model: "tinynet", submit: sec(15), run: 20500 * time.Millisecond, gpus: 1, tier: std})
	equal(t, "steps", wl.Jobs[1].Work.Steps, 900)
	checkNotes(t, wl, "1 rows are earlier")
	checkRows(t, openSample(t, "tiresias-testbed.csv", Options{}),
		row{name: "7", model: "toynet", submit: sec(3), run: 60 * time.Second, gpus: 4, tier: std})
}

func TestMuriSample(t *testing.T) {
	wl := openSample(t, "muri.csv", Options{})
	checkRows(t, wl,
		row{name: "1", model: "tinynet", run: 8 * time.Second, gpus: 1, tier: cluster.BestEffort},
		row{name: "0", model: "toynet", submit: sec(1.5), run: time.Minute, gpus: 2, tier: std})
	w := wl.Jobs[1].Work
	equal(t, "step", w.Step, 300*time.Millisecond)
	equal(t, "stage 1", w.Stages[1], 50500*time.Microsecond)
	equal(t, "batch", w.Batch, 32)
}

func TestChronusSample(t *testing.T) {
	wl := openSample(t, "chronus.csv", Options{})
	checkRows(t, wl,
		row{name: "1", queue: "blue", model: "toynet", submit: sec(1200), run: 90 * time.Minute, gpus: 4, tier: std,
			deadline: sec(1200 + 7200)},
		row{name: "2", queue: "red", model: "tinynet", submit: sec(1500), run: 7 * time.Minute,
			tier: cluster.BestEffort},
		row{name: "0", queue: "red", model: "toynet", submit: sec(1800), run: 10 * time.Minute, gpus: 1, tier: std,
			deadline: sec(1800 + 840)})
	checkNotes(t, wl, "1 jobs have several deadlines", "1 jobs ask for no GPU")
}

func TestOpenbSample(t *testing.T) {
	wl := openSample(t, "openb-pods.csv", Options{Nodes: "testdata/openb-nodes.csv"})
	checkRows(t, wl,
		row{name: "p1", submit: sec(50), run: 590 * time.Second, gpus: 4, tier: std},
		row{name: "p0", submit: sec(100), gpus: 1, kind: cluster.Service, tier: std},
		row{name: "p2", submit: sec(200), run: time.Minute, tier: cluster.BestEffort, outcome: Failed},
		row{name: "p3", submit: sec(300), run: 30 * time.Second, gpus: 1, tier: cluster.BestEffort})
	equal(t, "end of the service", wl.Jobs[1].End, sec(900))
	equal(t, "share", wl.Jobs[1].Job.Tasks[0], cluster.TaskSet{Count: 1,
		Request: cluster.Request{GPUs: 1, Share: 250, CPU: 4000, RAM: 8192}})
	equal(t, "types", strings.Join(wl.Jobs[0].Job.GPUTypes, " "), "T4-16GB V100-32GB")
	equal(t, "flexible", wl.Jobs[0].Flexible, false)
	equal(t, "nodes", len(wl.Nodes), 3)
	equal(t, "node", wl.Nodes[1], cluster.Node{Name: "m1", Model: "G2", GPUs: 8, CPU: 96000, RAM: 524288})
	checkNotes(t, wl, "1 pods were never scheduled")
	short := openSample(t, "openb-short.csv", Options{})
	checkRows(t, short, row{name: "p0", gpus: 1, kind: cluster.Service, tier: std},
		row{name: "p1", gpus: 2, kind: cluster.Service, tier: std})
	checkNotes(t, short, "no times")
}

func TestITPSample(t *testing.T) {
	checkRows(t, openSample(t, "itp.csv", Options{}),
		row{name: "bb", submit: sec(20), run: time.Hour, gpus: 1, tier: std},
		row{name: "aa", submit: sec(500), run: time.Minute, gpus: 4, tier: std})
	want := row{name: "aa", model: "toynet", submit: sec(500), run: time.Minute, gpus: 4, tier: std, deadline: sec(620)}
	wl := openSample(t, "itp-deadline.csv", Options{})
	checkRows(t, wl, want)
	equal(t, "steps", wl.Jobs[0].Work.Steps, 1000)
	equal(t, "batch", wl.Jobs[0].Work.Batch, 64)
	checkRows(t, openSample(t, "itp-ddl.csv", Options{}), want)
}

func TestGavelSample(t *testing.T) {
	toy := "ToyNet (batch size 8)"
	wl := openSample(t, "gavel-list.csv", Options{Rate: 2})
	checkRows(t, wl,
		row{name: "0", model: toy, run: 1200500 * time.Millisecond, gpus: 1, tier: std},
		row{name: "1", model: toy, submit: sec(1.5 * 1800), run: 600 * time.Second, gpus: 4, tier: std})
	checkNotes(t, wl, "2 jobs per hour")
	o := companions("")
	wl = openSample(t, "gavel-msr.trace", o)
	checkRows(t, wl,
		row{name: "job 2", model: toy, run: 500 * time.Second, gpus: 2, tier: std},
		row{name: "job 1", model: toy, submit: sec(10), run: 1000 * time.Second, gpus: 1, tier: std},
		row{name: "job 3", model: "Loner", submit: sec(20.5), run: 200 * time.Second, gpus: 4, tier: std})
	checkNotes(t, wl, "1 jobs have no throughput at their number of GPUs")
	checkRows(t, openSample(t, "gavel-physical.trace", o),
		row{name: "job 1", model: toy, submit: sec(30), run: 500 * time.Second, gpus: 2, tier: std})
}

func TestPolluxSample(t *testing.T) {
	// toy has two epochs that end at 100 and 200 steps of batch 16; variance 3,
	// squared norm 1, so a step of batch 16*s gains 4/(3/s+1).
	// 1 GPU, batch 16: gain 1, 0.75 s a step: 150 s.
	// 4 GPUs, batch 64 = 4*16: gain 4/1.75, 0.875 s: 200/(4/1.75)*0.875 = 76.56 s.
	// 6 GPUs, batch 48 = 6*8: gain 4/2, 0.75 s: 75 s.
	checkRows(t, openSample(t, "pollux.csv", companions("")),
		row{name: "toy-1", model: "toy", submit: sec(10), run: 77 * time.Second, gpus: 4, tier: std},
		row{name: "toy-0", model: "toy", submit: sec(30), run: 150 * time.Second, gpus: 1, tier: std},
		row{name: "toy-2", model: "toy", submit: sec(40), run: 75 * time.Second, gpus: 6, tier: std})
}

func TestRubickSample(t *testing.T) {
	wl := openSample(t, "rubick.csv", Options{})
	checkRows(t, wl,
		row{name: "toy-0", model: "toy", run: 90250 * time.Millisecond, gpus: 2, tier: std},
		row{name: "toy-1", model: "toy", submit: sec(60), run: 30 * time.Second, gpus: 8, tier: cluster.BestEffort})
	equal(t, "cpu per GPU", wl.Jobs[0].Job.Tasks[0].Request.CPU, 8000)
}

func TestHeliosSample(t *testing.T) {
	wl := openSample(t, "helios.csv", Options{})
	checkRows(t, wl,
		row{name: "12", user: "bob", queue: "vcB", run: 10 * time.Second, tier: std, outcome: Failed},
		row{name: "11", user: "ann", queue: "vcA", submit: sec(3600), run: time.Hour, gpus: 8, tier: std},
		row{name: "14", user: "bob", queue: "vcB", submit: sec(5400), gpus: 16, tier: std, outcome: Cancelled})
	equal(t, "epoch", wl.Epoch, time.Date(2021, 5, 3, 8, 0, 0, 0, time.UTC).Unix())
	equal(t, "cpu per GPU", wl.Jobs[1].Job.Tasks[0].Request.CPU, 8000)
	checkNotes(t, wl, "1 jobs that had not ended", "1 jobs have no run time", "1 jobs ask for no GPU")
}

func TestAcmeSample(t *testing.T) {
	wl := openSample(t, "acme-seren.csv", Options{})
	checkRows(t, wl,
		row{name: "s2", user: "uB", queue: "Other", run: time.Minute, tier: std, outcome: Failed},
		row{name: "s1", user: "uA", queue: "Pretrain", submit: sec(1800), run: time.Hour, gpus: 8, tier: std})
	equal(t, "epoch", wl.Epoch, time.Date(2023, 5, 1, 1, 30, 0, 0, time.UTC).Unix())
	wl = openSample(t, "acme-kalos.csv", Options{})
	checkRows(t, wl, row{name: "k1", user: "uA", queue: "Evaluation", run: time.Minute, gpus: 16, kind: cluster.Batch,
		tier: std})
	equal(t, "ram per GPU", wl.Jobs[0].Job.Tasks[0].Request.RAM, 800*1024*2/16)
	checkNotes(t, wl, "1 jobs that had not ended")
}

func TestPAISample(t *testing.T) {
	wl := openSample(t, "pai.csv", Options{})
	checkRows(t, wl,
		row{name: "jb", submit: sec(500), run: time.Minute, gpus: 2, tier: std, outcome: Failed},
		row{name: "jd", submit: sec(800), run: 100 * time.Second, gpus: 6, tier: std},
		row{name: "ja", submit: sec(990), run: 611500 * time.Millisecond, gpus: 2, tier: std})
	ja := wl.Jobs[2].Job
	equal(t, "ja's workers", ja.Tasks[0],
		cluster.TaskSet{Count: 2, Request: cluster.Request{GPUs: 1, Share: 500, CPU: 6000, RAM: 30003}})
	equal(t, "ja's servers", ja.Tasks[1], cluster.TaskSet{Count: 1, Request: cluster.Request{CPU: 4000, RAM: 8192}})
	equal(t, "ja's type", strings.Join(ja.GPUTypes, " "), "T4-16GB")
	equal(t, "jd: 150 % of a GPU", wl.Jobs[1].Job.Tasks[0],
		cluster.TaskSet{Count: 3, Request: cluster.Request{GPUs: 2, Share: 750}})
	checkNotes(t, wl, "1 jobs that had not ended", "submission times are not in this table")
}

func TestSWFSample(t *testing.T) {
	wl := openSample(t, "swf.swf", Options{})
	checkRows(t, wl,
		row{name: "2", user: "u4", queue: "q1", submit: sec(50), run: time.Hour, gpus: 4, tier: std, outcome: Failed,
			limit: 2 * time.Hour},
		row{name: "1", user: "u3", queue: "q2", submit: sec(100), run: time.Minute, gpus: 8, tier: std,
			limit: 2 * time.Minute},
		row{name: "4", submit: sec(300), run: 30 * time.Second, gpus: 16, tier: std, outcome: Cancelled})
	equal(t, "epoch", wl.Epoch, 1600000000)
	checkNotes(t, wl, "1 jobs without a run time", "1 partial executions", "1 jobs name a preceding job")
}

func TestSacctSample(t *testing.T) {
	wl := openSample(t, "sacct.txt", Options{})
	checkRows(t, wl,
		row{name: "sweep", user: "bob", queue: "nlp", run: time.Minute, gpus: 1, tier: std, outcome: Cancelled},
		row{name: "train", user: "ann", queue: "vision", submit: sec(1800), run: time.Hour, gpus: 2, tier: std,
			limit: 24 * time.Hour},
		row{name: "slice", user: "eve", queue: "mig", submit: sec(5400), run: 30 * time.Minute, tier: std,
			outcome: Failed, limit: 30 * time.Minute},
		row{name: "cpu", user: "eve", queue: "bio", submit: sec(5700), run: time.Minute, tier: std, outcome: Failed,
			limit: 30 * time.Minute})
	equal(t, "types", strings.Join(wl.Jobs[1].Job.GPUTypes, " "), "A100-40GB A100-80GB")
	equal(t, "per GPU", wl.Jobs[1].Job.Tasks[0].Request, cluster.Request{GPUs: 1, CPU: 8000, RAM: 64 * 1024})
	equal(t, "eligible later", wl.Jobs[0].Job.Begin, sec(3600))
	equal(t, "slice", wl.Jobs[2].Job.Tasks[0].Request.Profile, "1g.10gb")
	equal(t, "mem", wl.Jobs[3].Job.Tasks[0].Request, cluster.Request{CPU: 8000, RAM: 1536})
	checkNotes(t, wl, "2 job steps", "1 jobs that never started", "1 jobs that had not ended")
	kept := openSample(t, "sacct.txt", Options{Partitions: true})
	equal(t, "partition", strings.Join(kept.Jobs[0].Job.Partitions, " "), "gpu")
}

// sacct --parsable ends every line, the header's too, with a separator.
func TestSacctTrailingSeparator(t *testing.T) {
	wl, err := readText(t, "x",
		"JobID|Submit|Start|Elapsed|State|ReqTRES|\n9|2024-01-01T00:00:00|2024-01-01T00:00:00|1-00:00:01|COMPLETED|gres/gpu=3|\n", Options{})
	if err != nil {
		t.Fatal(err)
	}
	checkRows(t, wl, row{name: "9", run: 86401 * time.Second, gpus: 3, tier: std})
}

func TestSacctJSONSample(t *testing.T) {
	wl := openSample(t, "sacct-json.json", Options{})
	checkRows(t, wl,
		row{name: "8_2", user: "bob", queue: "nlp", run: time.Minute, gpus: 1, tier: std, outcome: Failed,
			limit: time.Hour},
		row{name: "train", user: "ann", queue: "vision", submit: sec(4400), run: time.Hour, gpus: 8, tier: std,
			limit: 24 * time.Hour})
	equal(t, "types", strings.Join(wl.Jobs[1].Job.GPUTypes, " "), "H100-80GB H100-94GB H100-96GB")
	equal(t, "per GPU", wl.Jobs[1].Job.Tasks[0].Request, cluster.Request{GPUs: 1, CPU: 2000, RAM: 16384})
	equal(t, "epoch", wl.Epoch, 1706770000)
	checkNotes(t, wl, "1 jobs that never started")
}

func TestCSVSample(t *testing.T) {
	wl := openSample(t, "csv.csv", Options{})
	checkRows(t, wl,
		row{name: "a, b", user: "ann", queue: "vision", run: 60500 * time.Millisecond, gpus: 4, tier: cluster.Critical,
			outcome: Failed},
		row{name: "x", user: "eve", queue: "bio", submit: sec(10), run: 5 * time.Second, kind: cluster.Batch,
			tier: cluster.BestEffort, outcome: Cancelled},
		row{user: "bob", queue: "nlp", submit: sec(30), gpus: 1, kind: cluster.Service, tier: std})
	equal(t, "end", wl.Jobs[2].End, sec(630))
	var buf strings.Builder
	if err := WriteCSV(&buf, wl); err != nil {
		t.Fatal(err)
	}
	back, err := readText(t, "csv.csv", buf.String(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	checkRows(t, back, rows(wl)...)
}

func TestMusterSample(t *testing.T) {
	wl := openSample(t, "muster.jsonl", Options{})
	checkRows(t, wl,
		row{name: "first", run: time.Second, gpus: 2, tier: cluster.Critical, outcome: Failed},
		row{name: "late", submit: sec(60), run: 5 * time.Second, gpus: 2, tier: std},
		row{submit: sec(90), run: time.Second, tier: std})
	equal(t, "reference", wl.Jobs[2].Job.After[0].Job, 0)
	equal(t, "nodes", len(wl.Nodes), 1)
}
