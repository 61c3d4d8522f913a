package trace

import (
	"bytes"
	"encoding/json"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/random"
)

func synth(t *testing.T, text string) *Workload {
	t.Helper()
	s, err := ParseSynth(text)
	if err != nil {
		t.Fatal(err)
	}
	wl, err := Synth(s)
	if err != nil {
		t.Fatal(err)
	}
	checkWorkload(t, wl)
	return wl
}

func TestSynthPresets(t *testing.T) {
	for _, name := range Presets() {
		s, err := SynthPreset(name)
		if err != nil {
			t.Fatal(err)
		}
		wl := synth(t, "preset="+name)
		sum := Inspect(wl)
		equal(t, name+" jobs", sum.Jobs, s.Jobs)
		near(t, name+" load", sum.Load(s.GPUs), s.Load, 1e-6)
		checkRoundTrip(t, wl)
		if again := synth(t, "preset="+name); !reflect.DeepEqual(wl, again) {
			t.Errorf("%s: the same spec gave another workload", name)
		}
		if other := synth(t, "seed=2,preset="+name); reflect.DeepEqual(wl.Jobs, other.Jobs) {
			t.Errorf("%s: another seed gave the same workload", name)
		}
	}
	if _, err := SynthPreset("philly-lik"); err == nil || !strings.Contains(err.Error(), `did you mean "philly-like"`) {
		t.Errorf("unknown preset: %v", err)
	}
}

func TestSynthDistributions(t *testing.T) {
	wl := synth(t, "jobs=20000,rate=60,cv=1,durations=exponential:30m,gangs=1:3/4:1,users=10,queues=2,estimates=0.5,error=0,"+
		"limits=1,deadlines=0.25,slack=2,elastic=1,failed=0.2,cancelled=0.1,tiers=critical:1/best-effort:3")
	s := Inspect(wl)
	near(t, "mean gap", s.Arrivals.MeanGap, 60, 1)
	near(t, "cv", s.Arrivals.CV, 1, 0.05)
	near(t, "mean run", s.Run.Mean, 1800, 40)
	near(t, "p95 of the exponential", s.Run.P95, 1800*math.Log(20), 150)
	near(t, "one-GPU share", s.Gangs[0].JobShare, 0.75, 0.02)
	near(t, "critical", s.Tiers[0].JobShare, 0.25, 0.02)
	near(t, "failed", s.Outcomes[1].JobShare, 0.2, 0.02)
	near(t, "deadlines", float64(s.Deadlines), 5000, 200)
	equal(t, "limits", s.Limits, 20000)
	exact, elastic := 0, 0
	for i := range wl.Jobs {
		e := &wl.Jobs[i]
		if e.Job.Estimate == e.Run {
			exact++
		}
		if e.Job.Elastic.Min == 1 && e.Job.Elastic.Max == 4 {
			elastic++
		}
		if e.Job.Limit < e.Run {
			t.Fatalf("job %d: limit %s under run %s", i, e.Job.Limit, e.Run)
		}
		if d := e.Job.Deadline; d > 0 && d < e.Job.Submit.Add(e.Run) {
			t.Fatalf("job %d: deadline before the earliest end", i)
		}
	}
	near(t, "exact estimates", float64(exact), 10000, 400)
	near(t, "elastic", float64(elastic), 5000, 300)
}

func TestSynthArrivals(t *testing.T) {
	bursty := Inspect(synth(t, "jobs=20000,rate=60,cv=3"))
	near(t, "cv of bursts", bursty.Arrivals.CV, 3, 0.4)
	s := Inspect(synth(t, "jobs=60000,rate=60,arrivals=diurnal"))
	day, night := s.Arrivals.ByHour[14]+s.Arrivals.ByHour[15], s.Arrivals.ByHour[2]+s.Arrivals.ByHour[3]
	near(t, "day to night", float64(day)/float64(night), 1.6/0.4, 0.5)
	week := s.Arrivals.ByDay
	near(t, "Sunday to Tuesday", float64(week[6])/float64(week[1]), 0.4, 0.06)
	near(t, "rate", 3600/s.Arrivals.MeanGap, 60, 2)
	// An epoch in the middle of an hour and of the week.
	s = Inspect(synth(t, "jobs=3000,load=0.5,gpus=8,arrivals=diurnal,epoch=1704499999"))
	near(t, "load", s.Load(8), 0.5, 1e-6)
}

// Changing what users state about jobs does not change the jobs.
func TestSynthStreams(t *testing.T) {
	a, b := synth(t, "jobs=500"), synth(t, "jobs=500,deadlines=0.5,failed=0.3,estimates=1")
	for i := range a.Jobs {
		x, y := &a.Jobs[i], &b.Jobs[i]
		if x.Run != y.Run || x.Job.Submit != y.Job.Submit || x.Job.User != y.Job.User || x.Job.GPUs() != y.Job.GPUs() {
			t.Fatalf("job %d changed", i)
		}
	}
}

func TestGammaAndDist(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, cv := range []float64{0.3, 1, 2.5} {
		var sum, square float64
		const n = 200000
		for range n {
			x := random.Gamma(r, cv)
			sum += x
			square += x * x
		}
		mean := sum / n
		near(t, "gamma mean", mean, 1, 0.03)
		near(t, "gamma cv", math.Sqrt(square/n-mean*mean)/mean, cv, 0.06*cv)
	}
	for text, median := range map[string]float64{
		"lognormal:20m:1.5": 1200, "exponential:10m": 600 * math.Ln2, "fixed:90s": 90,
		"pareto:1s:100s:1": 1 / (1 - 0.5*0.99), "quantiles:0=1s/0.5=1m40s/1=1h": 100, "0.5*fixed:1s+1.5*fixed:10s": 10,
	} {
		d, err := ParseDist(text)
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseDist(d.String())
		if err != nil || !reflect.DeepEqual(d, again) {
			t.Errorf("%s prints as %s, %v", text, d, err)
		}
		var v []float64
		for range 20001 {
			v = append(v, d.sample(r))
		}
		near(t, text, describe(v).P50, median, 0.12*median)
	}
}

func TestBadSynth(t *testing.T) {
	for text, want := range map[string]string{
		"jobs":                              `"jobs": write key=value`,
		"job=3":                             `unknown key "job": did you mean "jobs"?`,
		"jobs=3,jobs=4":                     "jobs is given twice",
		"jobs=many":                         `jobs: "many": must be a whole number`,
		"jobs=0":                            "jobs=0: must be 1 to",
		"load=0":                            "give rate (jobs per hour), or load and gpus",
		"cv=NaN":                            "cv=NaN: must be between",
		"daily=2":                           "daily=2: must be between 0 and 1",
		"failed=0.6,cancelled=0.6":          "failed+cancelled=1.2: must be between 0 and 1",
		"durations=lognormal:10m":           "write lognormal:20m:1.8",
		"durations=normal:10m:1":            `unknown distribution "normal": did you mean "lognormal"?`,
		"durations=pareto:1h:1m:1":          "pareto's most above its least",
		"durations=quantiles:0=1s":          "quantiles must rise",
		"gangs=1:0":                         `"1:0": the weight must be a number above 0`,
		"gangs=-1":                          "a gang of -1 GPUs",
		"kinds=trainig":                     `unknown kind "trainig": did you mean "training"?`,
		"shares=2000":                       `"2000": must be 1 to 1000 milli-GPU`,
		"preset=tiny":                       `unknown preset "tiny"`,
		"arrivals=poison":                   `did you mean "poisson"?`,
		"users=2,queues=3":                  "no more queues than users",
		"max=0":                             "max=0s: must be 1s to 100 years",
		"ram=-1":                            `ram: "-1": must be a whole number from 0`,
		"epoch=-5":                          "epoch=-5: must be Unix seconds",
		"jobs=16777216,rate=0.0001,gangs=1": "",
	} {
		_, err := ParseSynth(text)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: error %v, want %q", text, err, want)
		}
	}
	for text, want := range map[string]string{"jobs=100,rate=0.00001": "would last", "jobs=10,gangs=0": "use no GPUs"} {
		s, err := ParseSynth(text)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Synth(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", text, err, want)
		}
	}
	if len(SynthHelp()) != len(settings()) {
		t.Error("help is missing keys")
	}
}

func TestInspect(t *testing.T) {
	at := func(s float64, gpus int, run time.Duration, queue string) Entry {
		return Entry{Run: run, Flexible: true, Job: cluster.Job{Submit: sec(s), Queue: queue, Tier: std,
			Tasks: []cluster.TaskSet{{Count: gpus, Request: cluster.Request{GPUs: 1}}}}}
	}
	wl := &Workload{Name: "w", Format: "f", Epoch: 1704067200, Jobs: []Entry{
		at(0, 1, time.Hour, "a"), at(600, 4, time.Hour, "b"), at(3600, 8, 2*time.Hour, "b"),
		at(7200, 1, 10*time.Hour, "a")}}
	for i := range wl.Jobs {
		wl.Jobs[i].Job.ID = cluster.JobID(i)
	}
	s := Inspect(wl)
	near(t, "GPU-hours", s.GPUHours, 1+4+16+10, 1e-9)
	near(t, "span", s.Span, 7200, 0)
	near(t, "GPUs for load 1", s.FullLoad, 15.5, 1e-9)
	near(t, "load", s.Load(31), 0.5, 1e-9)
	near(t, "mean", s.Run.Mean, 3.5*3600, 0)
	near(t, "longest", s.Run.Max, 36000, 0)
	near(t, "mean gap", s.Arrivals.MeanGap, 2400, 0)
	equal(t, "hours", *s.Arrivals.ByHour, [24]int{2, 1, 1})
	equal(t, "days", *s.Arrivals.ByDay, [7]int{4})
	equal(t, "busiest", s.Arrivals.BusiestJobs, 2)
	equal(t, "queue", s.TopQueues[0].Name, "b")
	equal(t, "gangs", s.Gangs[0].Name+" "+s.Gangs[1].Name+" "+s.Gangs[2].Name, "1 3-4 5-8")
	near(t, "gang share", s.Gangs[2].GPUShare, 16.0/31, 1e-9)
	if got := strings.Join(s.Oddities, "; "); got != "1 jobs that run longer than the whole span of submissions" {
		t.Errorf("oddities: %s", got)
	}
	var text bytes.Buffer
	if err := s.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"w (f): 4 jobs, 2 queues", "2024-01-01T00:00:00Z to 2024-01-01T02:00:00Z (2h)",
		"31.0 GPU-hours",
		"load        1.0 on 16 GPUs", "longest 10h", "  00          2 ####", "  Mon         4 ####"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
	raw, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var back Summary
	if err := json.Unmarshal(raw, &back); err != nil || !reflect.DeepEqual(s, back) {
		t.Errorf("the summary does not survive JSON: %v\n%s", err, raw)
	}
}

// Every sample can be inspected, and the figures are numbers.
func TestInspectSamples(t *testing.T) {
	for _, name := range []string{"openb-pods.csv", "openb-nodes.csv", "pai.csv", "sacct.txt", "csv.csv",
		"muster.jsonl", "muri.csv"} {
		s := Inspect(openSample(t, name, Options{}))
		if _, err := json.Marshal(s); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var out strings.Builder
		if err := s.WriteText(&out); err != nil || strings.Contains(out.String(), "NaN") {
			t.Errorf("%s: %v\n%s", name, err, out.String())
		}
	}
}
