//go:build linux

package local

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/local/cgroup"
	"github.com/muster-gpu/muster/local/devices"
	"github.com/muster-gpu/muster/local/foresight"
	"github.com/muster-gpu/muster/local/gpu"
	"github.com/muster-gpu/muster/local/observe"
	"github.com/muster-gpu/muster/local/record"
	"github.com/muster-gpu/muster/place"
	"github.com/muster-gpu/muster/policy"
	"github.com/muster-gpu/muster/show"
	"github.com/muster-gpu/muster/store"
)

// played are GPUs that report what a test says.
type played struct {
	devices []gpu.Device
	values  []gpu.Sample

	exclusive map[string]bool
}

func (p *played) Devices() []gpu.Device                 { return p.devices }
func (p *played) Sample() []gpu.Sample                  { return p.values }
func (p *played) Close() error                          { return nil }
func (p *played) Whole(string, func(string) bool) error { return nil }
func (p *played) Make(string, cluster.Instance, func(string) bool) ([]gpu.Instance, error) {
	return nil, nil
}
func (p *played) Exclusive(uuid string, on bool) error {
	if p.exclusive == nil {
		p.exclusive = map[string]bool{}
	}
	p.exclusive[uuid] = on
	return nil
}
func (p *played) Health(context.Context, time.Duration) []string {
	return make([]string, len(p.devices))
}

func (p *played) set(i int, util float64, memory int64, watt float64) {
	p.values[i] = gpu.Sample{Utilisation: &util, MemoryUsed: &memory, Power: &watt}
}

var t0 = time.Unix(1_700_000_000, 0).Truncate(time.Hour)

// accounts is a machine of four GPUs of which only the accounts are looked at.
func accounts(t *testing.T) (*Machine, *played) {
	t.Helper()
	st, err := store.Open(filepath.Join(t.TempDir(), "m.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	src := &played{values: make([]gpu.Sample, 4)}
	for i := range 4 {
		src.devices = append(src.devices,
			gpu.Device{Index: i, UUID: "GPU-" + string(rune('a'+i)), Model: "H100-80GB", Memory: 80 * 1024})
	}
	now := t0.Add(2 * time.Hour)
	m := &Machine{store: st, jobs: map[cluster.JobID]*job{}, groups: &cgroup.Manager{},
		running: t.Context()}
	m.opt = Options{Dir: t.TempDir(), Devices: src, SampleEvery: 10 * time.Second,
		HourCost: 2, Log: slog.Default(),
		Now: func() time.Time {
			return now
		}, Rules: config.Rules{Spec: cluster.Spec{Nodes: []cluster.Node{{Name: "here", Model: "H100-80GB", GPUs: 4}}}}}
	m.gpus = devices.New(devices.Describe(src.devices), src)
	cfg := engine.Config{Spec: m.opt.Rules.Spec}
	if cfg.Policy, err = policy.New("fifo"); err != nil {
		t.Fatal(err)
	}
	if cfg.Placer, err = place.New("best-fit"); err != nil {
		t.Fatal(err)
	}
	if m.eng, err = engine.New(cfg); err != nil {
		t.Fatal(err)
	}
	m.keeper = m.newKeeper()
	return m, src
}

// hold lets a job run on GPUs since t0; with over it is done after an hour.
func hold(t *testing.T, m *Machine, id int, user string, over bool, gpus ...int) {
	t.Helper()
	spec := &cluster.Job{ID: cluster.JobID(id), User: user, Submit: cluster.Time(t0.UnixNano())}
	info := record.Info{Run: 1, State: show.StateRunning, User: User{Name: user}}
	start := cluster.Time(t0.UnixNano())
	info.Record = engine.JobRecord{
		Spec: spec, Facts: engine.JobFacts{State: engine.Running, FirstStart: start},
		Account: engine.JobAccount{Acc: start, Started: start},
	}
	a := engine.Alloc{Tasks: 1}
	for _, g := range gpus {
		a.GPUs |= 1 << g
		info.Devices = append(info.Devices, show.Device{Index: g, UUID: m.gpus.List[g].UUID})
	}
	info.Record.Allocs = []engine.Alloc{a}
	row := store.Job{ID: id, User: user, Active: true, State: info.State, Submitted: t0.UnixNano(),
		Submission: []byte(`{"name":"train","limit":"24h"}`)}
	if over {
		info.State, row.State, row.Active, row.Ended = show.StateCompleted, show.StateCompleted, false,
			t0.Add(time.Hour).UnixNano()
		info.Record.State, info.Record.Ran, info.Record.Ended = engine.Done, time.Hour, cluster.Time(row.Ended)
		info.Record.Attained = int64(len(gpus)) * 3_600_000_000
	}
	var err error
	if row.Data, err = json.Marshal(&info); err != nil {
		t.Fatal(err)
	}
	if !over {
		stored, err := record.Read(&row)
		if err != nil {
			t.Fatal(err)
		}
		m.jobs[spec.ID] = &job{Job: *stored}
	}
	if err := m.store.Write(t.Context(), func(tx *store.Tx) error { return tx.PutJob(&row) }); err != nil {
		t.Fatal(err)
	}
}

// sampleHour samples an hour of the machine, every ten seconds.
func sampleHour(m *Machine) *observe.Sampler {
	s := m.newSampler(t0)
	for at := 10 * time.Second; at <= time.Hour; at += 10 * time.Second {
		s.Sample(t0.Add(at))
	}
	s.Store()
	return s
}

func near(got, want float64) bool { return got > want*0.99-1e-9 && got < want*1.01+1e-9 }

// What jobs do is counted per job: utilisation, energy, idle time, GPUs that
// are never used, memory that is held without computing; the series is bounded.
func TestSampling(t *testing.T) {
	m, src := accounts(t)
	src.set(0, 90, 40_000, 600)
	src.set(1, 0, 10, 100)
	src.set(2, 0, 20_000, 100)
	src.set(3, 50, 9_000, 300)
	hold(t, m, 1, "ann", false, 0, 1)
	hold(t, m, 2, "bob", false, 2)
	sampleHour(m)
	s, err := m.Samples(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	v := s.Measured
	if v.Samples != 360 || !near(v.Seconds, 3600) || !near(*v.Utilisation, 45) || *v.Most != 90 || v.Unused != 1 ||
		!near(v.Idle, 3600) ||
		v.Holding != 0 || !near(*v.Energy, 700*3600) || *v.MemoryMost != 40_000 {
		t.Errorf("job 1: %+v (utilisation %v, energy %v)", v, *v.Utilisation, *v.Energy)
	}
	if len(s.Points) > observe.MostPoints || len(s.Points) < observe.MostPoints/3 || s.Every != 2 ||
		!near(*s.Points[3].Utilisation, 45) || !near(*s.Points[3].Power, 700) {
		t.Errorf("%d points, one of %d looks; the fourth is %+v", len(s.Points), s.Every, s.Points[3])
	}
	for i := 1; i < len(s.Points); i++ {
		if s.Points[i].At <= s.Points[i-1].At {
			t.Fatalf("point %d is not after the one before it", i)
		}
	}
	if s, err = m.Samples(t.Context(), 2); err != nil || !near(s.Measured.Holding, 3600) {
		t.Errorf("job 2 held memory for %v s: %v", s.Measured.Holding, err)
	}
	hours, err := m.store.Hours(t.Context(), 0)
	var total, held, busy float64
	for _, h := range hours {
		total, held, busy = total+h.Total, held+h.Held, busy+h.Busy
	}
	if err != nil || !near(total, 4*3600) || !near(held, 3*3600) || !near(busy, 0.9*3600) {
		t.Errorf("GPU-seconds: %v in all, %v held, %v busy: %v", total, held, busy, err)
	}
	if g := m.Nodes()[0].GPUs[3]; g.Utilisation == nil || *g.Utilisation != 50 {
		t.Error("the list of GPUs does not show what they do")
	}
}

// A job with two shares of a GPU, or two slices of it, is on that GPU once.
func TestSamplingParts(t *testing.T) {
	m, src := accounts(t)
	c := exec.Command("sleep", "1000")
	c.Env = []string{m.keeper.Mark(1, 1, 0)}
	// its mark counts for the user of the folder
	if err := errors.Join(os.MkdirAll(m.keeper.TaskDir(1, 1, 0), 0o700), c.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = c.Process.Kill(), c.Wait() })
	memory, util, power := int64(6000), 40.0, 300.0
	for _, d := range [][]show.Device{{{UUID: "GPU-a", Share: 250}, {UUID: "GPU-a", Share: 250}},
		{{UUID: "MIG-1", Parent: "GPU-a", Profile: "2g.20gb", Share: 250},
			{UUID: "MIG-2", Parent: "GPU-a", Profile: "2g.20gb", Share: 250}}} {
		clear(m.jobs)
		src.values[0] = gpu.Sample{PerProcess: true, Power: &power,
			Processes: []gpu.Process{{PID: c.Process.Pid, Memory: &memory, Utilisation: &util}}}
		hold(t, m, 1, "ann", false, 0)
		m.jobs[1].Info.Devices = d
		s := m.newSampler(t0)
		s.Sample(t0.Add(10 * time.Second))
		v, h := s.Meter(1), s.Hour(t0)
		p := v.Points[len(v.Points)-1]
		if v.GPU != 10 || v.Util != 400 || *v.Memory != 6000 || *p.Memory != 6000 || *p.Utilisation != 40 ||
			!near(h.Busy, 4) || !near(h.Measured, 5) || !near(*v.Energy, 1500) {
			t.Errorf("%s: %+v, point %+v (memory %d, utilisation %v), busy %v of %v", d[0].UUID, v, p, *p.Memory,
				*p.Utilisation, h.Busy, h.Measured)
		}
	}
}

// Usage is added up by user, priced, and the waste is named.
func TestUsage(t *testing.T) {
	m, src := accounts(t)
	src.set(0, 90, 40_000, 600)
	src.set(1, 0, 10, 100)
	src.set(2, 0, 20_000, 100)
	src.set(3, 10, 7_000, 200)
	hold(t, m, 1, "ann", false, 0, 1)
	hold(t, m, 2, "bob", false, 2)
	hold(t, m, 3, "bob", false, 3)
	sampleHour(m)
	hold(t, m, 1, "ann", true, 0, 1)
	hold(t, m, 2, "bob", true, 2)
	hold(t, m, 3, "bob", true, 3)
	clear(m.jobs)
	u, err := m.Usage(t.Context(), "user", t0)
	if err != nil {
		t.Fatal(err)
	}
	if len(u.Rows) != 2 || u.Rows[0].Key != "ann" || u.Rows[0].GPUHours != 2 || *u.Rows[0].Cost != 4 ||
		!near(*u.Rows[0].Utilisation, 45) ||
		!near(*u.Rows[0].KWh, 0.7) || u.Total.GPUHours != 4 || u.Total.Jobs != 3 || len(u.Notes) != 0 {
		t.Errorf("usage %+v, notes %q", u.Rows, u.Notes)
	}
	found := map[string]show.Waste{}
	for _, w := range u.Waste {
		found[w.Kind+" "+w.User] = w
	}
	for want, text := range map[string]string{"idle ann": "did nothing for 1.0 of 2.0",
		"unused-gpus ann": "never used 1 of its 2 GPUs: ask for 1",
		"memory-only bob": "without computing", "fits-less bob": "a MIG slice 1g.10gb would do",
		"long-limit bob": "24h"} {
		if w, ok := found[want]; !ok || !strings.Contains(w.Text, text) && want != "long-limit bob" || w.Cost == nil {
			t.Errorf("%s: %+v", want, w)
		}
	}
	if u, err = m.Usage(t.Context(), "colour", t0); err == nil || !strings.Contains(err.Error(), "colour") {
		t.Errorf("an unknown way to add up: %v", err)
	}
}

// A simulated machine reports what it cannot know as unknown.
func TestNotMeasured(t *testing.T) {
	m, _ := accounts(t)
	hold(t, m, 1, "ann", false, 0)
	sampleHour(m)
	u, err := m.Usage(t.Context(), "queue", t0)
	if err != nil || len(u.Rows) != 1 || u.Rows[0].Utilisation != nil || u.Rows[0].KWh != nil || len(u.Notes) != 1 {
		t.Errorf("usage %+v, notes %q: %v", u.Rows, u.Notes, err)
	}
	for _, w := range u.Waste {
		if w.Kind != "empty-hours" {
			t.Errorf("waste that was not measured: %+v", w)
		}
	}
}

// Expected starts are scored against what happened.
func TestScore(t *testing.T) {
	m, _ := accounts(t)
	for id, off := range []time.Duration{-5 * time.Minute, time.Minute, 10 * time.Minute} {
		hold(t, m, id+1, "ann", true, 0)
		start := t0.Add(30 * time.Minute)
		told, low, high := start.Add(-off), start.Add(-off-6*time.Minute), start.Add(-off+6*time.Minute)
		j := show.Job{ID: id + 1, State: show.StatePending, Expected: &told, Earliest: &low, Latest: &high}
		if err := m.RecordPrediction(t.Context(), &j); err != nil {
			t.Fatal(err)
		}
		nearer := start.Add(-off / 5) // predicted again
		j.Expected = &nearer
		at := m.opt.Now().Add(time.Second)
		m.opt.Now = func() time.Time { return at }
		if err := m.RecordPrediction(t.Context(), &j); err != nil {
			t.Fatal(err)
		}
		row, err := m.store.Job(t.Context(), id+1)
		if err != nil {
			t.Fatal(err)
		}
		row.Started = start.UnixNano()
		if err := m.store.Write(t.Context(), func(tx *store.Tx) error { return tx.PutJob(row) }); err != nil {
			t.Fatal(err)
		}
	}
	s, err := foresight.ScoreSince(t.Context(), m.store, t0)
	if err != nil || s.Predicted != 3 || s.Started != 3 || s.Early != 1 || time.Duration(s.Median) != 5*time.Minute ||
		time.Duration(s.Ninety) != 10*time.Minute ||
		s.Intervals != 3 || s.Within != 2 || s.Later != 3 || time.Duration(s.LaterMedian) != time.Minute ||
		time.Duration(s.LaterNinety) != 2*time.Minute {
		t.Errorf("score %+v: %v", s, err)
	}
	var off []int
	for _, o := range s.Off {
		off = append(off, o.Jobs)
	}
	if !slices.Equal(off, []int{0, 1, 1, 1, 0, 0}) {
		t.Errorf("how far the starts were off: %v", s.Off)
	}
}

// What is measured is shown at once, not only when it is stored, with how far
// the job is; the machine's load adds up hour by hour, day by day in a long
// report, and over the hours of the week.
func TestLoad(t *testing.T) {
	m, src := accounts(t)
	src.set(0, 80, 40_000, 600)
	hold(t, m, 1, "ann", false, 0)
	m.jobs[1].Info.Progress = &show.Progress{Step: 30, Steps: 100, SamplesPerSec: 12}
	s := m.newSampler(t0)
	m.sampler.Store(s)
	s.Sample(t0.Add(10 * time.Second))
	got, err := m.Samples(t.Context(), 1)
	if err != nil || len(got.Points) != 1 || *got.Points[0].Step != 30 || *got.Points[0].Rate != 12 || got.Cost == nil {
		t.Fatalf("samples of a running job: %+v: %v", got, err)
	}
	for at := 20 * time.Second; at <= 3*time.Hour; at += 10 * time.Second {
		s.Sample(t0.Add(at))
	}
	s.Store()
	if len(got.Points) != 1 {
		t.Error("what was handed out changes with what is measured")
	}
	for _, c := range []struct {
		back time.Duration
		most int // spans
	}{{time.Hour, 4}, {60 * 24 * time.Hour, 2}} {
		m.opt.Now = func() time.Time { return t0.Add(3 * time.Hour) }
		u, err := m.Usage(t.Context(), "user", t0.Add(-c.back))
		if err != nil {
			t.Fatal(err)
		}
		var sum, week show.WeekHour
		var busy float64
		for _, l := range u.Load {
			sum.Total, sum.Held = sum.Total+l.Total, sum.Held+l.Held
			busy += *l.Busy
		}
		for _, w := range u.Week {
			week.Total, week.Held = week.Total+w.Total, week.Held+w.Held
		}
		if len(u.Load) > c.most || len(u.Week) != 168 || u.Daily != (c.back > 14*24*time.Hour) ||
			!near(sum.Total, 3*float64(len(m.gpus.List))) || !near(sum.Held, 3) || !near(busy, 2.4) ||
			!near(week.Total, sum.Total) || !near(week.Held, sum.Held) {
			t.Errorf("%v back: %d spans, %+v, busy %v, the week %+v", c.back, len(u.Load), sum, busy, week)
		}
	}
}

// Who asks again and again is told something new now and then only.
func TestToldNews(t *testing.T) {
	m, _ := accounts(t)
	m.jobs[1] = &job{Job: record.Job{ID: 1}}
	now := m.opt.Now()
	for _, x := range []struct {
		in   time.Duration
		news bool
	}{{time.Hour, true}, {time.Hour, false}, {time.Hour + 30*time.Second, false}, {time.Hour + time.Minute, true},
		{time.Hour, true}, {2 * time.Second, true}, {time.Second, false}} {
		at := now.Add(x.in)
		if got := m.news(&show.Job{ID: 1, Expected: &at}); got != x.news {
			t.Errorf("a start in %s: news %v, want %v", x.in, got, x.news)
		}
	}
}
