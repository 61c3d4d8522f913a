//go:build linux

package local

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/local/share"
)

// A restart may change how GPUs are shared. What a job asked for is in its submission;
// what it gets for it was chosen for the service before. So each job that waits is
// chosen for again, before anything is decided. What runs keeps what it has, until it
// comes back to the line.

// chooseAgain chooses for the jobs that wait when the service starts. It is called when
// it is known which tasks run.
func (m *Machine) chooseAgain() {
	var events []engine.Event
	for _, j := range m.sorted() {
		rec := m.eng.Record(j.ID)
		switch {
		case rec.State == engine.Done:
		case j.run == nil && (rec.State <= engine.Placed || comesBack(rec, engine.NodeLost)):
			events = append(events, m.another(j, rec)...)
		default: // also one that is suspended: its memory is where it is
			j.stale = true
		}
	}
	if len(events) > 0 {
		m.inbox.Put(func(cluster.Time) ([]engine.Event, func(error)) { return events, nil })
	}
}

// comesBack reports whether a job that stops for a reason waits again then.
func comesBack(rec *engine.JobRecord, reason engine.StopReason) bool {
	again := func(r engine.StopReason) bool { return r == engine.Preempted || r == engine.NodeLost }
	return again(reason) && !rec.Spec.NoRequeue && (rec.State != engine.Stopping || again(rec.Reason))
}

// chooseOnReturn chooses for a job that began under the service before and waits again,
// if it does for that reason.
func (m *Machine) chooseOnReturn(j *job, rec *engine.JobRecord, reason engine.StopReason) []engine.Event {
	if !j.stale || !comesBack(rec, reason) {
		return nil
	}
	return m.another(j, rec)
}

// another is the event by which a job gets what is chosen for it now, if that is not what
// it had. Where there is no way to it, the job waits, and says why.
func (m *Machine) another(j *job, rec *engine.JobRecord) []engine.Event {
	// whole GPUs, or none
	if s := j.Sub; (s.Share == 0 || s.Share == cluster.Whole) && s.Profile == "" && (s.Memory == 0 || s.GPUs > 0) {
		return nil
	}
	asked, err := j.Sub.Job()
	if err != nil || len(asked.Tasks) != len(rec.Spec.Tasks) { // of a version that read it otherwise
		return nil
	}
	j.stale = false
	spec := *rec.Spec
	spec.Tasks = asked.Tasks
	text, err := m.choose(j.Sub, &spec)
	if err != nil { // a share of several GPUs under MPS
		for i := range spec.Tasks {
			if r := &spec.Tasks[i].Request; r.Fractional() {
				r.Share, r.Memory = 0, 0
			}
		}
		text = fmt.Sprintf("whole GPUs: %s (sharing.shares)", err)
	}
	same := slices.Equal(spec.Tasks, rec.Spec.Tasks)
	if j.noWay = m.noWay(&spec, same && !strings.HasPrefix(j.Info.Sharing, nothingNow)); j.noWay != "" {
		text = nothingNow + j.noWay
	}
	if same && text == j.Info.Sharing {
		return nil
	}
	if text != j.Info.Sharing {
		j.Said = append(j.Said, fmt.Sprintf("GPUs are shared otherwise since the service started: gets %s", text))
	}
	j.Own().Sharing = text
	return []engine.Event{{Type: engine.Updated, Job: j.ID, Spec: &spec}}
}

// nothingNow begins what is said of a job that cannot have what it asked for.
const nothingNow = "nothing now: "

// noWay says why a job cannot have what was chosen for it, as this machine's GPUs are
// shared; "": it can. One that was accepted as it is need not be checked again.
func (m *Machine) noWay(spec *cluster.Job, accepted bool) string {
	if text := share.NoInstance(&m.opt.Rules.Spec, spec); text != "" {
		return text
	}
	if accepted {
		return ""
	}
	if text := m.eng.Check(spec); text != "" {
		return fmt.Sprintf("%s (what it gets is chosen by sharing.shares, %s, and sharing.mig, %s)", text,
			m.opt.Rules.Spec.Sharing, m.opt.Rules.Spec.MIG)
	}
	return ""
}
