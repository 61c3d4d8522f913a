//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/muster-gpu/muster/store"
)

// remember writes into a state what a daemon with measured GPUs would have in
// two weeks: jobs 1 and 2 measured, the load of the machine, starts predicted.
func remember(t *testing.T, d *daemon) {
	t.Helper()
	s, err := store.Open(filepath.Join(d.dir, "state", "muster.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	now := time.Now()
	var points []map[string]any
	for i := range 120 {
		at := now.Add(time.Duration(i-150) * time.Minute).Unix()
		if i >= 60 { // it waited for twenty minutes
			at += 20 * 60
		}
		points = append(points,
			map[string]any{"at": at, "utilisation": 70 + 20*math.Sin(float64(i)/5), "memory": 30000 + 100*i,
				"power": 450 + i%40, "cpu": 1.5 + float64(i%7)/10, "ram": 2048 + i, "step": i * 10,
				"samples_per_s": 200 + i%20})
	}
	meter := map[string]any{"samples": 120, "seconds": 7200, "util": 70 * 7200, "gpu": 7200,
		"most": map[string]any{"a": 90}, "memory": 42000, "energy": 3.4e6, "every": 1, "points": points}
	first, err := json.Marshal(meter)
	if err != nil {
		t.Fatal(err)
	}
	const second = `{"samples": 100, "seconds": 36000, "util": 9000, "gpu": 36000, "most": {"a": 12}, "memory": 9000, "energy": 1.0e6, "idle": 30000, "holding": 18000, "every": 1, "points": []}`
	err = s.Write(t.Context(), func(tx *store.Tx) error {
		if err := tx.PutUsage(1, first); err != nil {
			return err
		}
		if err := tx.PutUsage(2, []byte(second)); err != nil {
			return err
		}
		for id, off := range []time.Duration{3 * time.Second, 4 * time.Minute} {
			p := store.Prediction{Job: id + 1, At: now.Add(-time.Minute).UnixNano(), Expected: now.Add(off).UnixNano(),
				Low: now.Add(-time.Hour).UnixNano(), High: now.Add(time.Hour).UnixNano()}
			if err := tx.PutPrediction(p); err != nil {
				return err
			}
		}
		if err := tx.PutEnd(
			store.Prediction{Job: 1, At: now.Add(-time.Minute).UnixNano(), Expected: now.UnixNano()}); err != nil {
			return err
		}
		for i := 1; i <= 13*24; i++ {
			at := now.Truncate(time.Hour).Add(-time.Duration(i) * time.Hour)
			held := 4 * 3600 * 0.9
			if h := at.Local().Hour(); h < 6 {
				held = 100
			} else if h < 9 {
				held /= 3
			}
			if err := tx.AddHour(
				store.Hour{At: at.Unix(), Total: 4 * 3600, Held: held, Busy: held * 0.6, Measured: held}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// measured is a board of a machine that has some weeks behind it.
func measured(t *testing.T) *board {
	t.Helper()
	d := prepareDaemon(t, "4xH100-80GB")
	d.args = []string{"--gpu-hour-cost", "2.5"}
	d.start()
	d.must("submit", "--gpus", "1", "--time", "5h", "--name", "train-vit", "--queue", "default", "--", "true")
	d.must("submit", "--gpus", "2", "--time", "10m", "--name", "notebook", "--", "sh", "-c", "exit 3")
	d.must("submit", "--gpus", "1", "--name", "still-here", "--", "sleep", "300")
	_, _ = d.try("wait", "1", "2") // it ends with the second one's exit code
	d.kill()
	remember(t, d)
	d.start()
	return signIn(t, d)
}

// The usage page shows who used what and what it cost, the load of the
// machine, what was wasted, the empty hours, and how good expected starts were.
func TestDashboardUsage(t *testing.T) {
	t.Parallel()
	b := measured(t)
	b.visit("/usage?since=7d")
	b.Await("who used it", has(".usage th", "root")+` || `+has(".usage tbody th", ""))
	b.want(b.text(".figures"), "at 2.5 an hour", "Utilisation", "kWh")
	b.Await("the load", `document.querySelector(".canvas canvas") && document.querySelector(".canvas").getAttribute("aria-label").includes("each step is an hour")`)
	b.want(b.text("main"), "Held and idle", "Memory only", "More time than used", "Empty hours",
		"it held GPU memory for 5.0 GPU-hours", "its time limit was 5h")
	b.Await("which hours stand empty", has(".found li", "Mon 00:00 to Mon 06:00"))
	b.want(b.text(".bars"), "within 10s", "within 5m")
	b.want(b.text("main"), "2", "jobs had an expected start", "intervals contained the actual start",
		"jobs with a predicted end")
	if got := b.JS(`document.querySelectorAll(".heat tbody td").length + " " + document.querySelectorAll(".heat .h5").length + " " + document.querySelector(".heat tbody tr td:nth-child(4)").textContent`); got != "168 105 1" {
		t.Errorf("the hours of the week: %s", got)
	}
	b.Shoot("usage")
	b.JS(`(e => { e.value = "job"; e.dispatchEvent(new Event("change", {bubbles: true})); return 1 })(document.getElementById("by"))`)
	b.Await("by the jobs' names", has(".usage tbody th", "notebook")+` && location.search.includes("by=job")`)
	b.JS(`(e => { e.value = "30d"; e.dispatchEvent(new Event("change", {bubbles: true})); return 1 })(document.getElementById("since"))`)
	b.Await("days, in a long report",
		`document.querySelector(".canvas").getAttribute("aria-label").includes("each step is a day")`)
	b.Do(chromedp.Click(chromedp.CSS(".found a.job")))
	b.Await("the job that wasted", `location.pathname.startsWith("/jobs/")`)
	b.Clean(b.base, "data:")
	t.Run("curves", b.curves)
}

// curves: a job's page shows what was measured of it as curves, how far it was, and what it used and cost.
func (b *board) curves(t *testing.T) {
	b.In(t)
	b.visit("/jobs/1")
	b.Await("curves", `document.querySelectorAll(".plots canvas").length === 7`)
	labels := b.JS(`[...document.querySelectorAll(".plots .canvas")].map(e => e.getAttribute("aria-label")).join("\n")`)
	b.want(labels, "GPU utilisation over time: 7", "GPU memory over time", "at most 41 GiB", "GPU power over time",
		"Progress over time: step 1,190", "Samples per second over time", "CPU cores in use")
	b.want(b.text("main"), "What it used", "Cost", "70.0 % on average, at most 90.0 %", "at most 41 GiB on one GPU",
		"0.94 kWh")
	b.JS(`document.querySelector(".plots .u-over").dispatchEvent(new MouseEvent("mousemove", {bubbles: true, clientX: 200 + document.querySelector(".plots .u-over").getBoundingClientRect().left, clientY: 50 + document.querySelector(".plots .u-over").getBoundingClientRect().top}))`)
	b.Await("what is under the mouse", has(".plots .here", " %"))
	b.Shoot("job-curves")
	b.Look(360, 800, "dark")
	b.Await("curves that fit a phone",
		`[...document.querySelectorAll(".plots canvas")].every(e => e.getBoundingClientRect().right <= 360) && document.documentElement.scrollWidth === 360`)
	b.Shoot("job-curves-phone")
	b.Clean(b.base, "data:")
}

// What a running job uses is drawn while it runs.
func TestDashboardCurvesLive(t *testing.T) {
	t.Parallel()
	d := prepareDaemon(t, "1xH100-80GB")
	d.args = []string{"--sample-every", "200ms"}
	d.start()
	b := signIn(t, d)
	b.must("submit", "--gpus", "1", "--time", "10m", "--", "sh", "-c",
		`i=0; while :; do i=$((i+1)); echo "{\"step\": $i, \"steps\": 9000, \"samples_per_s\": 5}" >> $MUSTER_PROGRESS; sleep 0.2; done`)
	b.visit("/jobs/1")
	const points = `document.querySelector(".plots .chart:first-child .canvas")?.getAttribute("aria-label") || ""`
	b.Await("progress as a curve", fmt.Sprintf(`(%s).includes("Progress over time: step")`, points))
	was := b.JS(points)
	b.Await("which goes on", fmt.Sprintf(`(%s) !== %q`, points, was))
	b.want(b.text("main"), "simulated GPUs have none")
	b.Clean(b.base, "data:")
}
