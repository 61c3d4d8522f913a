package pending

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/job"
)

// TestTimersTwin compares the heap with a sorted slice; void timers never come up.
func TestTimersTwin(t *testing.T) {
	scanned, popped := 0, 0
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 3))
		jobs := newJobs(20)
		h := Timers{Holds: func(t *Timer) bool { return t.Current(jobs[t.Job]) }}
		var twin []Timer
		for range 400 {
			if r.IntN(3) > 0 {
				at, kind, j := cluster.Time(r.IntN(50)), TimerKind(r.IntN(2)), jobs[r.IntN(20)]
				h.Set(at, kind, j)
				twin = append(twin, Timer{at, kind, int32(j.Spec.ID), j.Gen})
			} else {
				jobs[r.IntN(20)].Gen++ // its timers are void
			}
			void := func(tm Timer) bool { return !tm.Current(jobs[tm.Job]) }
			twin = slices.DeleteFunc(twin, void)
			slices.SortFunc(twin, func(a, b Timer) int {
				if a.Before(&b) {
					return -1
				}
				return 1
			})
			next := h.Next()
			if (next != nil) != (len(twin) > 0) || next != nil && (*next != twin[0] || h.At() != twin[0].At) {
				t.Fatalf("seed %d: next is %+v, twin has %v", seed, next, twin)
			}
			if next != nil && r.IntN(2) == 0 {
				if got := h.Pop(); got != twin[0] {
					t.Fatalf("seed %d: %+v comes up, not %+v", seed, got, twin[0])
				}
				twin = twin[1:]
			}
			if now := cluster.Time(r.IntN(60)); r.IntN(40) == 0 { // few of them are due, or many
				due := h.Due(now)
				for _, tm := range due {
					at := slices.Index(twin, tm)
					if tm.At > now || at < 0 && !void(tm) {
						t.Fatalf("seed %d: %+v is taken at %v", seed, tm, now)
					}
					if at >= 0 {
						twin = slices.Delete(twin, at, at+1)
					}
				}
				if len(twin) > 0 && twin[0].At <= now {
					t.Fatalf("seed %d: %+v is not taken at %v", seed, twin[0], now)
				}
				scanned += count(len(due)*4 > len(due)+len(h.heap))
				popped += count(len(due) > 0 && len(due)*16 < len(due)+len(h.heap))
			}
		}
	}
	if scanned == 0 || popped == 0 {
		t.Errorf("many timers were due %d times, few of many %d times", scanned, popped)
	}
	var h Timers
	if h.Set(cluster.Never, Begin, newJobs(1)[0]); len(h.heap) != 0 {
		t.Error("a timer for never is kept")
	}
}

func newJobs(n int) (jobs []*job.State) {
	for id := range n {
		jobs = append(jobs, &job.State{Tenure: &job.Tenure{}, Spec: &cluster.Job{ID: cluster.JobID(id)},
			Facts: job.Facts{FirstStart: cluster.Never}})
	}
	return jobs
}

// A job waits for the ends of others, for starts with a delay, and for all of several jobs; each tells it once.
func TestDeps(t *testing.T) {
	jobs := newJobs(6)
	admitted := ""
	d := NewDeps(func() []*job.State { return jobs }, func(j *job.State) { admitted += fmt.Sprint(j.Spec.ID, " ") },
		func(*job.State) {})
	jobs[3].Spec.After = []cluster.Dependency{{Type: cluster.AfterOK, Job: 0}}
	jobs[4].Spec.After = []cluster.Dependency{{Type: cluster.AfterStart, Job: 1, Delay: 10}}
	jobs[5].Spec.After = []cluster.Dependency{{Type: cluster.AfterAny, Job: 0, Elements: 3}}
	stand := func(now cluster.Time) (text string) {
		for _, j := range jobs[3:] {
			park, never := d.Holds(j, now, func(at cluster.Time) { text += fmt.Sprintf("at %d: ", int64(at)) })
			if text += fmt.Sprint(park == job.NotParked, " "); never {
				text += "never "
			}
		}
		return text
	}
	for _, j := range jobs[3:] {
		d.Join(j)
		j.Parked = job.ParkedDependency
	}
	want := func(now cluster.Time, text, woken string) {
		t.Helper()
		if got := stand(now); got != text || admitted != woken {
			t.Errorf("at %v: %q, want %q; admitted %q, want %q", now, got, text, admitted, woken)
		}
		if err := d.Check(); err != nil {
			t.Error(err)
		}
		admitted = ""
	}
	want(0, "false false false ", "")
	jobs[1].State, jobs[1].FirstStart, jobs[1].Speed = job.Running, 5, 1
	d.Began(jobs[1])
	want(5, "false at 15: false false ", "4 ")
	want(15, "false true false ", "")
	for i, reason := range []job.StopReason{job.Completed, job.Completed, job.LaunchFailed} {
		jobs[i].State, jobs[i].Reason = job.Done, reason
		d.Ended(jobs[i])
	}
	want(15, "true true true ", "3 4 5 ")
	if d.Wakes(3) {
		t.Error("a job that waits for no other is woken")
	}
	jobs[4].Spec.After[0].Type = cluster.AfterNotOK // of a job that completed
	if want := "true never true "; stand(15) != "true true never true " {
		t.Errorf("%q, want %q", stand(15), want)
	}
}

// Elements of an array run as many at once as its cap says, the next in the order in which they came.
func TestArray(t *testing.T) {
	jobs := newJobs(3)
	admitted := []cluster.JobID{}
	d := NewDeps(func() []*job.State { return jobs }, func(j *job.State) { admitted = append(admitted, j.Spec.ID) },
		func(*job.State) {})
	for i, j := range jobs {
		j.Spec.Array = &cluster.Array{ID: 0, Cap: 1}
		if d.EnterArray(j) != (i == 0) {
			t.Errorf("element %d enters: %v", i, i != 0)
		}
		if i > 0 {
			j.Parked = job.ParkedArray
		}
	}
	if err := d.Check(); err != nil || !slices.Equal(d.Waiting(0), []cluster.JobID{1, 2}) {
		t.Errorf("%v: %v wait", err, d.Waiting(0))
	}
	if d.LeaveArray(jobs[2]); len(d.Waiting(0)) != 1 {
		t.Errorf("%v wait", d.Waiting(0))
	}
	jobs[2].Parked = job.NotParked
	if d.Ended(jobs[0]); !slices.Equal(admitted, []cluster.JobID{1}) || jobs[0].InArray {
		t.Errorf("admitted %v", admitted)
	}
}
