//go:build linux

package local

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/local/evidence"
	"github.com/muster-gpu/muster/store"
)

// lost is what a database lacks that is gone on with, and the folder that gets what it does not know.
type lost struct {
	*evidence.Loss
	aside string
}

// examine refuses a database that knows less than what lies beside it, unless that is accepted: then it sets
// aside what cannot be gone on with. nil: nothing is lost.
func examine(ctx context.Context, opt *Options) (*lost, error) {
	loss, err := evidence.Find(ctx, opt.Dir, opt.AcceptLoss)
	if err != nil || loss == nil {
		return nil, err
	}
	if !opt.AcceptLoss {
		return nil, loss
	}
	aside, err := loss.SetAside(opt.Now())
	if err != nil {
		return nil, err
	}
	opt.Log.Warn("the state has lost something, which is accepted", "set_aside", aside, "numbers_above", loss.Highest)
	return &lost{loss, aside}, nil
}

// endLost ends the tasks that the database does not know, moves their folders away, and has job numbers go on
// above all that were given. It also signs the folders that are of before folders were signed.
func (m *Machine) endLost(ctx context.Context, l *lost) error {
	if l != nil {
		if err := m.store.Write(ctx, func(t *store.Tx) error { return t.SetFloor(l.Highest) }); err != nil {
			return err
		}
		for _, left := range l.Left {
			for _, live := range left.Live {
				m.opt.Log.Warn("a task that the database does not know is ended", "job", live.Job, "run", live.Run,
					"task", live.Rank)
				if !m.keeper.EndLeft(cluster.JobID(live.Job), live.Run, live.Rank) {
					return fmt.Errorf("task %d of job %d, run %d, does not end: end it, and start again with --accept-loss", live.Rank, live.Job, live.Run)
				}
			}
			if err := l.MoveLeft(l.aside, left); err != nil {
				return err
			}
		}
	}
	return m.signFolders(ctx)
}

const metaSigned = "folders_signed"

// signFolders makes the folders of jobs this state's that were made before folders named their state.
func (m *Machine) signFolders(ctx context.Context) error {
	_, err := m.store.Meta(ctx, metaSigned)
	if !errors.Is(err, store.ErrNotFound) {
		return err
	}
	_, last, err := m.store.Last(ctx)
	if err != nil {
		return err
	}
	if err := evidence.Sign(filepath.Join(m.opt.Dir, "jobs"), m.store.ID(), last); err != nil {
		return err
	}
	return m.store.Write(ctx, func(t *store.Tx) error { return t.PutMeta(metaSigned, []byte("1")) })
}
