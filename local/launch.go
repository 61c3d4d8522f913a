//go:build linux

package local

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"github.com/muster-gpu/muster/local/evidence"
	"github.com/muster-gpu/muster/local/run"
	"github.com/muster-gpu/muster/local/shim"
)

// Prepare makes the folders of a task and what the daemon writes into them.
// Users may pass through the folder of a run, which is the daemon's, and own
// those of their tasks: a task's own folder as soon as the daemon has written
// what it has to. A daemon of root that wrote into a user's folder could be led
// by a link to write anywhere.
func (r *runner) Prepare(t *run.Task) error {
	if err := r.makeDirs(t); err != nil {
		return err
	}
	if s := r.job.Sub.Script; s != "" && t.Rank == 0 {
		if err := r.writeOwn(filepath.Join(t.Dir, shim.ScriptFile), []byte(s), 0o700); err != nil {
			return err
		}
	}
	trials, err := r.m.keeper.Trials(r.job.Sub.Trial, r.job.Folder())
	if err == nil && trials != nil {
		err = r.writeOwn(filepath.Join(t.Dir, run.TrialsFile), trials, 0o600)
	}
	if err != nil {
		return err
	}
	if err := errors.Join(r.tellTreatment(), r.confine(t)); err != nil {
		return err
	}
	text, err := json.Marshal(t.Spec)
	if err != nil {
		return err
	}
	if err := os.WriteFile(shim.TaskFile(t.Dir), text, 0o600); err != nil {
		return err
	}
	return evidence.Own(t.Dir, r.job.Info.User.UID, r.job.Info.User.GID)
}

// makeDirs makes the folders of a task, in the folder of its job, which is this state's.
func (r *runner) makeDirs(t *run.Task) error {
	j := r.m.keeper.JobDir(r.ID)
	if err := evidence.Folder(filepath.Dir(j), r.m.store.ID(), int(r.ID)); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(t.Dir), 0o711); err != nil {
		return err
	}
	if r.job.Info.Folder != 0 {
		if err := r.m.keeper.GoOn(r.ID, r.job.Info.Folder); err != nil {
			return err
		}
	}
	if err := evidence.UserFolder(t.Dir, os.Getuid(), os.Getgid()); err != nil { // the daemon's until it is prepared
		return err
	}
	saves := r.m.keeper.CheckpointDir(r.job.Folder())
	// on a file system of its own, signed like the job's folder
	if of := filepath.Dir(saves); filepath.Dir(of) == r.m.opt.Checkpoints {
		id, err := strconv.Atoi(filepath.Base(of))
		if err := errors.Join(err, evidence.Folder(r.m.opt.Checkpoints, r.m.store.ID(), id)); err != nil {
			return err
		}
	}
	dirs := []string{saves}
	if r.job.Sub.Attached {
		dirs = append(dirs, filepath.Join(j, "log"))
	}
	for _, d := range dirs {
		if err := evidence.UserFolder(d, r.job.Info.User.UID, r.job.Info.User.GID); err != nil {
			return err
		}
	}
	return nil
}

// shimUser is the user that the task runs as; nil: the daemon's.
func (r *runner) shimUser() *shim.User {
	u := r.job.Info.User
	if os.Getuid() != 0 {
		return nil
	}
	return &shim.User{UID: u.UID, GID: u.GID, Groups: u.Groups}
}
