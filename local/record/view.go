//go:build linux

package record

import (
	"time"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/progress"
	"github.com/muster-gpu/muster/show"
)

// View is a job as people see it.
func (j *Job) View(now time.Time) show.Job {
	info := j.Whole()
	return view(&info, j.Sub, int(j.ID), now)
}

func view(info *Info, sub *ask.Submission, id int, now time.Time) show.Job {
	r := &info.Record
	at := func(t cluster.Time) *time.Time {
		if t <= 0 || t == cluster.Never {
			return nil
		}
		v := time.Unix(0, int64(t)).UTC()
		return &v
	}
	j := show.Job{ID: id, Array: info.Array, Index: info.Index, User: info.User.Name, State: info.State,
		Reason:    info.Text,
		Submitted: time.Unix(0, int64(r.Spec.Submit)).UTC(), Eligible: at(r.EligibleSince),
		Started: at(r.Started), FirstStart: at(r.FirstStart),
		Ended: at(r.Ended), Waited: ask.Duration(info.Waited), Ran: ask.Duration(r.Ran),
		GPUHours: float64(r.Attained) / 3.6e9,
		Restarts: info.Restarts(), Preemptions: int(r.Preemptions), ExitCode: info.Exit, ExitSignal: info.Signal,
		Devices: info.Devices, StdOut: info.StdOut, StdErr: info.StdErr, Progress: info.Progress, Metrics: info.Metrics,
		Submission: *sub,
		Sharing:    info.Sharing, LostGPUHours: info.Use.Lost.Hours(), CPUTime: ask.Duration(info.Use.CPU),
		RAMPeak: info.Use.Peak >> 20, Loan: info.Loan}
	if r.State == engine.Done && r.Reason == engine.NeverReady {
		j.Code = "DependencyNeverSatisfied"
	}
	j.Moves = r.State == engine.Stopping && r.How == engine.Replace
	if r.Target != nil {
		j.Promise = answers[r.Target.Deadline]
	}
	t := cluster.Time(now.UnixNano())
	switch {
	case r.State == engine.Pending || r.State == engine.Placed:
		j.Waited += ask.Duration(max(0, t.Sub(r.Since)))
	case r.State < engine.Done:
		j.Ran += ask.Duration(max(0, t.Sub(r.Acc)))
		for _, d := range info.Devices {
			share := d.Share
			if share == 0 {
				share = cluster.Whole
			}
			j.GPUHours += float64(share) / float64(cluster.Whole) * max(0, t.Sub(r.Acc).Hours())
		}
	}
	j.GPUHours += info.backHours(t)
	j.StepRate, j.SampleRate = progress.PerHour(info.Pace.Steps, j.GPUHours),
		progress.PerHour(info.Pace.Sample, j.GPUHours)
	if s := &info.Switch; s.Count > 0 {
		j.SwitchCost, j.SwitchGPUHours = ask.Duration(s.Took/time.Duration(s.Count)), s.GPU.Hours()
	}
	if r.State < engine.Done {
		j.SavesNothing = info.savesText(sub)
	}
	if end, by := endOf(info, sub, t); by != "" {
		j.ExpectedEnd, j.EndBy = at(end), by
	}
	if i := info.Idle; i != nil && r.State < engine.Done {
		j.Idle = &show.Idle{Since: i.Since, Stage: i.Stage, Text: i.Text}
		j.Reason = i.Text
	}
	return j
}

// answers are what the policy says of a job's deadline.
var answers = map[engine.DeadlineAnswer]string{engine.DeadlineAccepted: "accepted", engine.DeadlineDeclined: "declined"}

// endOf is when a running job is expected to end, and how one knows: from its
// progress, an estimate that was stated, earlier runs, or its time limit.
func endOf(info *Info, sub *ask.Submission, now cluster.Time) (end cluster.Time, by string) {
	r := &info.Record
	if r.State < engine.Starting || r.State > engine.Running || r.EndKey == 0 ||
		cluster.Time(r.EndKey) == cluster.Never {
		return cluster.Never, ""
	}
	switch end = cluster.Time(r.EndKey); {
	case info.Progress != nil && info.Progress.Steps > 0 && info.Pace.Rate > 0:
		by = show.EndByProgress
	case sub.Estimate > 0:
		by = show.EndByEstimate
	case info.Guessed:
		by = show.EndByHistory
	}
	if end <= now { // it was expected earlier: as the engine does
		end = now.Add(max(time.Minute, progress.RanAt(r, now)/20))
	}
	if end >= r.LimitAt {
		return r.LimitAt, show.EndByLimit
	}
	return end, by
}
