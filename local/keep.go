//go:build linux

package local

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/driver"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/journal"
	"github.com/muster-gpu/muster/local/segment"
	"github.com/muster-gpu/muster/store"
)

// What grows is cut now and then: the journal, idempotency keys, the folders of
// jobs that are over, and the engine's memory of them. The rows of jobs stay.

// renewEvery and renewJobs are after what time, or after how many jobs that
// ended, the engine starts over from what is still of interest.
const (
	renewEvery = 24 * time.Hour
	renewJobs  = 10_000
)

// errRenew ends the loop for a moment.
var errRenew = errors.New("the engine starts again")

// schedule is the loop, under one engine after the other.
func (m *Machine) schedule(ctx context.Context) error {
	for {
		err := driver.Run(ctx, m.eng, m, m)
		if !errors.Is(err, errRenew) {
			return err
		}
		if len(m.turns) > 0 {
			m.turnAll()
			continue
		}
		if err := m.renew(ctx); err != nil { // it is tried again when it is due again
			m.opt.Log.Error("old entries of the journal cannot be removed", "error", err)
		}
	}
}

// stale reports that the engine should start over.
func (m *Machine) stale(now cluster.Time) bool {
	return m.ended >= renewJobs || now.Sub(m.renewed) >= renewEvery
}

// renew restores the engine from what a restart of the daemon would find, as a
// new segment of the journal, and forgets what is older than it is to be kept.
func (m *Machine) renew(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	rules := m.rules()
	m.renewed, m.ended = m.clock.Now(), 0
	snap, err := m.facts(ctx)
	if err != nil {
		return err
	}
	e, err := m.restored(&rules, snap)
	if err != nil {
		return err
	}
	if err := m.begin(ctx, &rules, snap, nil); err != nil {
		return err
	}
	m.eng = e
	m.event(engine.Event{Type: engine.Tick})
	return nil
}

// facts are what a restart of the daemon would find now. The state is locked.
func (m *Machine) facts(ctx context.Context) (*engine.Snapshot, error) {
	snap := m.eng.Common()
	snap.Past = m.eng.Past()
	known := map[cluster.JobID]bool{}
	for _, j := range m.sorted() {
		known[j.ID] = true
		snap.Jobs = append(snap.Jobs, *m.eng.Record(j.ID))
	}
	return &snap, m.doneBefore(ctx, &snap, known)
}

// restored makes an engine that goes on from a snapshot under these rules.
func (m *Machine) restored(rules *config.Rules, snap *engine.Snapshot) (*engine.Engine, error) {
	if err := rules.Check(); err != nil {
		return nil, err
	}
	cfg, err := m.config(rules)
	if err != nil {
		return nil, err
	}
	return engine.Restore(cfg, snap)
}

// begin begins a segment of the journal with a snapshot; what also is to be
// stored is stored in the same moment.
func (m *Machine) begin(ctx context.Context, rules *config.Rules, snap *engine.Snapshot,
	also func(*store.Tx) error) error {
	h := journal.Header{Rules: *rules}
	h.Stamp()
	h.Pin()
	header, err := json.Marshal(&h)
	if err != nil {
		return err
	}
	text, err := segment.EncodeSnapshot(snap)
	if err != nil {
		return err
	}
	oldest := m.before(m.opt.Keep)
	if err := m.store.Write(ctx, func(t *store.Tx) error {
		if also != nil {
			if err := also(t); err != nil {
				return err
			}
		}
		if err := t.PutSegment(m.seq+1, header, text); err != nil {
			return err
		}
		return errors.Join(t.Forget(int64(oldest)), t.ForgetAudit(int64(m.before(m.opt.AuditKeep))))
	}); err != nil {
		return err
	}
	m.runners.Add(1)
	go func() {
		defer m.runners.Done()
		m.removeFolders(oldest)
	}()
	return nil
}

// before is the time before which things are forgotten that are kept for so long; 0: nothing is.
func (m *Machine) before(keep time.Duration) cluster.Time {
	if keep <= 0 {
		return 0
	}
	return m.renewed.Add(-keep)
}

// removeFolders removes the folders of jobs that ended before a time.
func (m *Machine) removeFolders(before cluster.Time) {
	ids, err := m.keeper.Jobs()
	if err != nil || before <= 0 {
		return
	}
	for _, id := range ids {
		if m.running.Err() != nil {
			return
		}
		row, err := m.store.Job(m.running, int(id))
		if err != nil || row.Active || row.Ended >= int64(before) || m.folderNeeded(id, before) {
			continue
		}
		if err := m.keeper.Remove(id); err != nil {
			m.opt.Log.Warn("the folder of an old job cannot be removed", "job", id, "error", err)
		}
	}
}

// folderNeeded reports whether another job needs the folder of one that is over:
// it is not over itself, or ended after the time from which folders are kept.
func (m *Machine) folderNeeded(id cluster.JobID, before cluster.Time) bool {
	m.mu.RLock()
	for _, j := range m.jobs {
		if j.Needs(id) {
			m.mu.RUnlock()
			return true
		}
	}
	m.mu.RUnlock()
	last, err := m.keeper.LastIn(id)
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	if err != nil {
		return true // it is not known
	}
	row, err := m.store.Job(m.running, last)
	return err != nil || row.Active || row.Ended >= int64(before)
}
