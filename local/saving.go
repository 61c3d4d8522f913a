//go:build linux

package local

import (
	"cmp"
	"strconv"
	"sync"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

// interrupted counts, by tier and since the daemon's start, for how long jobs ran, and how often that
// ended so that work was lost which they were not asked, or had no time, to save.
type interrupted struct {
	mu   sync.Mutex
	ran  [3]time.Duration
	lost [3]int
}

// note counts a run that is over.
func (x *interrupted) note(tier cluster.Tier, ran time.Duration, lost bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.ran[tier] += max(0, ran)
	if lost {
		x.lost[tier]++
	}
}

// unlost is for how long jobs of a tier count as having run without a loss before the daemon's start:
// one that is killed after seconds says little of how often that happens.
const unlost = 24 * time.Hour

// every is the mean time between such losses of a job of the tier; 0: there was none.
func (x *interrupted) every(tier cluster.Tier) time.Duration {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.lost[tier] == 0 {
		return 0
	}
	return (unlost + x.ran[tier]) / time.Duration(x.lost[tier])
}

// noteRun counts a run that is over now for what is known of interruptions. lost: a task of it was.
func (r *runner) noteRun(rec *engine.JobRecord, now cluster.Time, lost bool) {
	stopped := r.told && (rec.State != engine.Stopping || rec.Reason == engine.Preempted || rec.Reason == engine.NodeLost)
	if rec.Started > 0 && rec.Started <= now {
		r.m.interrupted.note(rec.Spec.Tier, now.Sub(rec.Started), lost || stopped && !r.saved)
	}
}

// unknownCost is what writing a checkpoint is taken to cost as long as it was neither stated nor
// measured, as in replays.
const unknownCost = 30 * time.Second

// saveEvery is how often a job is told to write a checkpoint; 0: nothing is said.
func (m *Machine) saveEvery(j *cluster.Job) time.Duration {
	s := m.settings().Saving
	if s == nil || j.Checkpoint.None {
		return 0
	}
	saving := *s
	saving.Preempted = m.interrupted.every(j.Tier)
	every := j.Checkpoint.Interval
	if every == 0 {
		every = saving.Every(j, cmp.Or(j.Checkpoint.Cost, unknownCost), 0)
	}
	if most := saving.Most(j); most > 0 {
		every = min(every, most)
	}
	return every
}

const savingName = "MUSTER_CHECKPOINT_EVERY="

// savingVariable tells a run how often to write a checkpoint, in whole seconds.
func (r *runner) savingVariable() []string {
	every := r.m.saveEvery(r.job.info.Record.Spec)
	if every <= 0 {
		return nil
	}
	return []string{savingName + strconv.FormatInt(int64(max(time.Second, every)/time.Second), 10)}
}
