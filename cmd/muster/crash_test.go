//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/client"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/internal/shared"
	"github.com/muster-gpu/muster/journal"
	"github.com/muster-gpu/muster/local"
	"github.com/muster-gpu/muster/store"
)

// crashJob is what jobs do in a storm: each takes a lock on each of its devices
// for as long as any process of it lives, and notes its beginning and its end.
const crashJob = `cd $1; fd=4
note() { # a signal for the group may hit date, too
  at=; while [ -z "$at" ]; do at=$(date +%s%N); done
  echo "$1 $MUSTER_TASK_ID $2 $at" >> log
}
trap 'note stop -; exit 0' USR1 TERM
IFS=,; for g in $MUSTER_GPUS; do
  eval "exec $fd<>gpu.$g"; flock -n $fd || echo "HELD $MUSTER_TASK_ID $g 0" >> log
  fd=$((fd+1))
done
note start "$MUSTER_GPUS"
n=$2; while [ $n -gt 0 ]; do sleep 0.03; n=$((n-1)); done
trap '' USR1 TERM
note end -; exit $3
`

// storm is a state whose daemon dies again and again while it is worked with.
type storm struct {
	t           *testing.T
	r           *rand.Rand
	dir, socket string
	bin, script string
	cl          *client.Client
	cmd         *exec.Cmd
	log         bytes.Buffer
	hits        map[string]int // deaths by place
	asks        chan struct{}  // a token for each crash that jobs may be submitted for

	booked, held float64 // GPU-seconds: by the daemon; between the notes of the jobs

	mu   sync.Mutex
	told map[int]*promise // jobs that were accepted
}

// promise is a job that was accepted.
type promise struct {
	gpus, tasks, code int
	disturbed         bool // a person stopped it, or its size changed: it may have to run again
	cancelled         bool
	elastic           bool
}

// TestCrash: the daemon dies at random instants and at named places, while jobs
// are submitted, started, suspended, requeued, resized, preempted and
// cancelled, and the policy changes; nothing of docs/design/reliability.md is broken.
func TestCrash(t *testing.T) {
	t.Parallel()
	points, seed := shared.Soaking(t, 20), uint64(time.Now().UnixNano())
	if s := os.Getenv("MUSTER_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal("MUSTER_SEED: ", err)
		}
	}
	hits, jobs, runs, booked, held := map[string]int{}, 0, 0, 0.0, 0.0
	for points > 0 {
		t.Logf("MUSTER_SEED=%d", seed)
		begin := time.Now()
		s := newStorm(t, seed, hits)
		n := min(points, 10)
		s.rage(n)
		j, r := s.check()
		if most := 4 * time.Since(begin).Seconds(); s.booked > most {
			t.Errorf("%.1f GPU-seconds are booked, there were %.1f", s.booked, most)
		}
		booked, held = booked+s.booked, held+s.held
		jobs, runs, points, seed = jobs+j, runs+r, points-n, seed+1
		if t.Failed() {
			t.Fatalf("MUSTER_SEED=%d\n%s", seed-1, s.log.String())
		}
	}
	t.Logf("%d jobs, %d runs of tasks; %.1f GPU-seconds booked, %.1f between the jobs' notes; deaths by place: %v",
		jobs, runs, booked, held, hits)
}

func newStorm(t *testing.T, seed uint64, hits map[string]int) *storm {
	s := &storm{t: t, r: rand.New(rand.NewPCG(seed, 1)), bin: buildMuster(t), hits: hits, told: map[int]*promise{},
		asks: make(chan struct{}, 1000)}
	s.dir, s.socket = daemonHome(t, s.kill)
	s.script = filepath.Join(s.dir, "job.sh")
	s.cl = client.Unix(s.socket)
	if err := os.WriteFile(s.script, []byte(crashJob), 0o700); err != nil {
		t.Fatal(err)
	}
	return s
}

// start starts a daemon that dies at a place, if one is named. It may die
// before it answers.
func (s *storm) start(crash string) {
	s.cmd = exec.Command(s.bin, "serve", "--gpus", "sim:4xH100-80GB", "--state", filepath.Join(s.dir, "state"),
		"--socket", s.socket)
	s.cmd.Stderr = &s.log
	s.cmd.Env = append(os.Environ(), crashVariable+"="+crash)
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
}

// kill kills the daemon.
func (s *storm) kill() {
	if s.cmd != nil && s.cmd.ProcessState == nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
	}
}

// rage lets the daemon die so often.
func (s *storm) rage(points int) {
	ctx, cancel := context.WithCancel(s.t.Context())
	defer cancel()
	var work sync.WaitGroup
	for k := range 2 {
		seed := s.r.Uint64()
		work.Go(func() { s.work(ctx, rand.New(rand.NewPCG(seed, uint64(k)))) })
	}
	for range points {
		for range 8 {
			s.asks <- struct{}{}
		}
		if s.r.IntN(4) == 0 {
			s.start("")
			time.Sleep(time.Duration(20+s.r.IntN(400)) * time.Millisecond)
			s.kill()
			s.hits["random"]++
			continue
		}
		place := local.CrashPoints[s.r.IntN(len(local.CrashPoints))]
		n := 1 + s.r.IntN(2)
		if strings.HasSuffix(place, "commit") || place == "applied" {
			n = 1 + s.r.IntN(20)
		} else if strings.HasPrefix(place, "adopt") {
			n = 1
		}
		s.start(place + ":" + strconv.Itoa(n))
		gone := make(chan struct{})
		go func() { _ = s.cmd.Wait(); close(gone) }()
		select {
		case <-gone:
			s.hits[place]++
		case <-time.After(1200 * time.Millisecond):
			_ = s.cmd.Process.Kill()
			<-gone
			s.hits["random"]++
		}
	}
	s.start("")
	if !until(func() bool { return len(s.asks) == 0 }) { // what was to be submitted is
		s.t.Fatalf("submissions hang\n%s", s.log.String())
	}
	cancel()
	work.Wait()
}

// work does to the daemon what people do, until the context ends.
func (s *storm) work(ctx context.Context, r *rand.Rand) {
	for n := 0; ctx.Err() == nil; n++ {
		time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
		if r.IntN(2) == 0 {
			select {
			case <-s.asks:
				s.submit(r)
			default:
			}
			continue
		}
		if r.IntN(10) == 0 {
			s.setPolicy(ctx, r)
			continue
		}
		s.disturb(ctx, r)
	}
}

// setPolicy changes who is next, under the feet of those who run and wait.
func (s *storm) setPolicy(ctx context.Context, r *rand.Rand) {
	soon, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	to := api.PolicyRequest{Policy: []string{"multifactor", "fifo", "las:base=1s", "srtf"}[r.IntN(4)],
		Place: []string{"best-fit", "worst-fit"}[r.IntN(2)]}
	_ = s.cl.Do(soon, http.MethodPost, "/v1/policy", &to, nil)
}

// submit submits a job, as often as it takes until it is accepted.
func (s *storm) submit(r *rand.Rand) {
	p := &promise{gpus: 1 + r.IntN(2), tasks: 1, code: r.IntN(2) * 3}
	sub := &api.Submission{Dir: s.dir, Output: "/dev/null", GPUs: p.gpus,
		Tier: []string{"", "", "best-effort", "critical"}[r.IntN(4)]}
	switch r.IntN(4) {
	case 0:
		p.tasks, sub.Tasks = 2, 2
	case 1:
		p.disturbed, p.elastic, sub.GPUs, sub.MinTasks, sub.MaxTasks = true, true, 1, 1, 3
	}
	sub.Command = []string{"sh", s.script, s.dir, strconv.Itoa(r.IntN(12)), strconv.Itoa(p.code)}
	key := strconv.FormatUint(r.Uint64(), 36)
	for {
		out, err := s.cl.Submit(s.t.Context(), sub, key)
		var no *client.Error
		switch {
		case err == nil:
			s.mu.Lock()
			s.told[out.Jobs[0]] = p
			s.mu.Unlock()
			return
		case s.t.Context().Err() != nil || errors.As(err, &no) && no.Status != 503:
			s.t.Errorf("a submission is refused: %v", err)
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// disturb does something to some job; it may be too late for it.
func (s *storm) disturb(ctx context.Context, r *rand.Rand) {
	s.mu.Lock()
	id := len(s.told) - r.IntN(8)
	p := s.told[id]
	verb := []string{"cancel", "hold", "release", "requeue", "suspend", "resume", "suspend", "resume",
		"release"}[r.IntN(9)]
	if p != nil {
		p.disturbed = p.disturbed || verb == "requeue"
		p.cancelled = p.cancelled || verb == "cancel"
	}
	s.mu.Unlock()
	if p != nil {
		soon, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		_, _ = s.cl.Act(soon, id, verb)
	}
}

// check lets everything come to its end and compares what was promised with
// what happened.
func (s *storm) check() (jobs, runs int) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 5*time.Minute)
	defer cancel()
	for {
		list, err := s.cl.List(ctx, url.Values{"state": {"active"}})
		if err == nil && len(list) == 0 {
			break
		}
		for i := range list {
			_, _ = s.cl.Act(ctx, list[i].ID, "release")
			_, _ = s.cl.Act(ctx, list[i].ID, "resume")
		}
		if ctx.Err() != nil {
			s.t.Errorf("after five minutes %d jobs are not over (%v): %.3000s", len(list), err,
				fmt.Sprintf("%+v", list))
			return 0, 0
		}
		time.Sleep(20 * time.Millisecond)
	}
	list, err := s.cl.List(ctx, url.Values{})
	if err != nil {
		s.t.Fatal(err)
	}
	if len(list) != len(s.told) {
		s.t.Errorf("%d jobs are stored, %d were accepted", len(list), len(s.told))
	}
	notes := s.notes()
	for i := range list {
		s.checkJob(&list[i], notes[list[i].ID])
		for _, r := range notes[list[i].ID] {
			runs += len(r.ranks)
		}
	}
	nodes, err := s.cl.Nodes(ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, g := range nodes[0].GPUs {
		if len(g.Jobs) > 0 || g.Free != 1000 {
			s.t.Errorf("when all is over, GPU %d is held by %v", g.Index, g.Jobs)
		}
	}
	s.kill()
	s.checkStore()
	if left := s.shims(); len(left) > 0 {
		s.t.Errorf("when all is over, processes are left: %v", left)
	}
	return len(list), runs
}

// aRun is what the tasks of a run noted.
type aRun struct {
	number int
	ranks  map[int]bool
	ended  int     // tasks of it that came to their end by themselves
	held   float64 // GPU-seconds between its notes
}

// notes reads what the jobs noted, by job, in the order of their runs.
func (s *storm) notes() map[int][]*aRun {
	text, err := os.ReadFile(filepath.Join(s.dir, "log"))
	if err != nil {
		s.t.Error(err)
	}
	jobs := map[int][]*aRun{}
	began := map[string][2]float64{} // time and devices
	for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		f := strings.Fields(line)
		var job, number, rank int
		if len(f) != 4 {
			s.t.Errorf("a note that is not whole: %q", line)
			continue
		}
		if _, err := fmt.Sscanf(f[1], "%d.%d.%d.", &job, &number, &rank); err != nil {
			s.t.Errorf("%q: %v", line, err)
		}
		at, err := strconv.ParseFloat(f[3], 64)
		if err != nil {
			s.t.Errorf("%q: %v", line, err)
		}
		list := jobs[job]
		if len(list) == 0 || list[len(list)-1].number != number {
			if len(list) > 0 && list[len(list)-1].number > number {
				s.t.Errorf("job %d: run %d notes something after run %d began", job, number, list[len(list)-1].number)
			}
			list = append(list, &aRun{number: number, ranks: map[int]bool{}})
			jobs[job] = list
		}
		run := list[len(list)-1]
		switch f[0] {
		case "HELD":
			s.t.Errorf("two jobs on one device at a time: %s", line)
		case "start":
			if run.ranks[rank] {
				s.t.Errorf("run twice: %s", line)
			}
			run.ranks[rank] = true
			began[f[1]] = [2]float64{at / 1e9, float64(strings.Count(f[2], ",") + 1)}
		default:
			if f[0] == "end" {
				run.ended++
			}
			run.held += (at/1e9 - began[f[1]][0]) * began[f[1]][1]
		}
	}
	return jobs
}

// checkJob compares a job's end with its promise and with its notes.
func (s *storm) checkJob(j *api.Job, runs []*aRun) {
	p := s.told[j.ID]
	if p == nil {
		s.t.Errorf("job %d was never accepted", j.ID)
		return
	}
	state := map[int]string{0: api.StateCompleted, 3: api.StateFailed}[p.code]
	if j.State != state && !(p.cancelled && j.State == api.StateCancelled) {
		s.t.Errorf("job %d ended as %s (%s), not %s; it was asked to exit with %d", j.ID, j.State, j.Reason, state,
			p.code)
	}
	if j.State != api.StateCancelled && (len(runs) == 0 || runs[len(runs)-1].ended == 0) {
		s.t.Errorf("job %d is %s, and its last run did not come to its end: %+v", j.ID, j.State, runs)
	}
	held := 0.0
	for i, r := range runs {
		held += r.held
		if r.ended == p.tasks && i < len(runs)-1 && !p.disturbed && j.Preemptions == 0 {
			s.t.Errorf("job %d ran to its end in run %d and was run again", j.ID, r.number)
		}
	}
	got := j.GPUHours * 3600
	if got < held-0.02 && !p.elastic { // what such a job gives back is not booked while it stops for that
		s.t.Errorf("job %d: %.3f GPU-seconds are booked, at least %.3f were held", j.ID, got, held)
	}
	s.booked += got
	s.held += held
}

// shims lists the processes of this storm.
func (s *storm) shims() (pids []int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		if text, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline")); err == nil &&
			bytes.Contains(text, []byte(s.dir)) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// checkStore looks at the file itself, and takes every decision again.
func (s *storm) checkStore() {
	st, err := store.Open(filepath.Join(s.dir, "state", "muster.db"))
	if err != nil {
		s.t.Error(err)
		return
	}
	defer st.Close()
	ctx := s.t.Context()
	segments, err := st.Segments(ctx)
	if err != nil {
		s.t.Error(err)
	}
	for i, g := range segments {
		var header journal.Header
		var snap engine.Snapshot
		cfg, err := engine.Config{}, errors.Join(json.Unmarshal(g.Header, &header), json.Unmarshal(g.Snapshot, &snap))
		if err == nil {
			cfg, err = header.Config()
		}
		if err != nil {
			s.t.Error(err)
			return
		}
		e, err := engine.Restore(cfg, &snap)
		if err != nil {
			s.t.Error(err)
			return
		}
		last := int64(1) << 62
		if i+1 < len(segments) {
			last = segments[i+1].First - 1
		}
		seq := g.First - 1
		if err := st.Steps(ctx, g.First, last, func(batch []byte, hash string) error {
			var b engine.Batch
			if err := json.Unmarshal(batch, &b); err != nil {
				return err
			}
			if seq++; b.Seq != seq {
				return fmt.Errorf("step %d follows step %d", b.Seq, seq-1)
			}
			if d := e.Step(b); strconv.FormatUint(d.Hash, 16) != hash {
				return fmt.Errorf("step %d of segment %d is decided differently", b.Seq, i)
			}
			return nil
		}); err != nil {
			s.t.Error(err)
			return
		}
	}
}
