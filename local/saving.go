//go:build linux

package local

import (
	"strconv"
	"sync"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/perf"
)

// interrupted counts losses of work since the daemon's start.
type interrupted struct {
	mu     sync.Mutex
	losses perf.Losses
}

// note counts a run that is over.
func (x *interrupted) note(tier cluster.Tier, ran time.Duration, lost bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.losses.Note(tier, ran, lost)
}

// noteRun counts a run that is over now for what is known of interruptions: it was stopped, or a task of it was lost.
func (r *runner) noteRun(rec *engine.JobRecord, now cluster.Time, stopped, lost bool) {
	stopped = stopped &&
		(rec.State != engine.Stopping || rec.Reason == engine.Preempted || rec.Reason == engine.NodeLost)
	if rec.Started > 0 && rec.Started <= now {
		r.m.interrupted.note(rec.Spec.Tier, now.Sub(rec.Started), lost || stopped && !r.Saved())
	}
}

// saveEvery is how often a job is to write a checkpoint; 0: nothing is said.
func (m *Machine) saveEvery(j *cluster.Job) time.Duration {
	m.interrupted.mu.Lock()
	defer m.interrupted.mu.Unlock()
	return m.settings().Saving.Interval(j, &m.interrupted.losses)
}

const savingName = "MUSTER_CHECKPOINT_EVERY="

// savingVariable says how often a run is to write a checkpoint, in whole seconds.
func (r *runner) savingVariable() []string {
	every := r.m.saveEvery(r.job.Spec)
	if every <= 0 {
		return nil
	}
	return []string{savingName + strconv.FormatInt(int64(max(time.Second, every)/time.Second), 10)}
}
