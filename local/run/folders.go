//go:build linux

package run

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/local/evidence"
)

// LogFile keeps what muster run shows of a task's stream, "out" or "err".
func (p Places) LogFile(id cluster.JobID, task int, stream string) string {
	return filepath.Join(p.JobDir(id), "log", strconv.Itoa(task)+"."+stream)
}

// CheckpointDir is the folder for checkpoints of a job: where it is already, else where the configuration says.
func (p Places) CheckpointDir(id cluster.JobID) string {
	own := filepath.Join(p.JobDir(id), "checkpoint")
	if p.Checkpoints == "" || evidence.Exists(own) {
		return own
	}
	return filepath.Join(p.Checkpoints, strconv.Itoa(int(id)), "checkpoint")
}

// TrialDir is the folder for checkpoints of a trial of a fused group.
func (p Places) TrialDir(id cluster.JobID, trial int) string {
	return filepath.Join(p.CheckpointDir(id), "trial-"+strconv.Itoa(trial))
}

// lastUser names, in the folder of a job, the last one that went on in its checkpoint folder.
const lastUser = "goes-on"

// GoOn notes that a job is about to go on in another's folder, which is kept as long as the job's own would be.
func (p Places) GoOn(id, folder cluster.JobID) error {
	path := filepath.Join(p.JobDir(folder), lastUser)
	if err := os.WriteFile(path+".new", []byte(strconv.Itoa(int(id))), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// LastIn is the last job that went on in another's folder; fs.ErrNotExist: none did.
func (p Places) LastIn(folder cluster.JobID) (int, error) {
	text, err := os.ReadFile(filepath.Join(p.JobDir(folder), lastUser))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(text))
}

// Jobs are the numbers of the jobs that have folders.
func (p Places) Jobs() (ids []cluster.JobID, err error) {
	entries, err := os.ReadDir(filepath.Join(p.Dir, "jobs"))
	for _, e := range entries {
		if id, err := strconv.Atoi(e.Name()); err == nil {
			ids = append(ids, cluster.JobID(id))
		}
	}
	return ids, err
}

// Remove removes the folders of a job.
func (p Places) Remove(id cluster.JobID) error {
	err := os.RemoveAll(p.JobDir(id))
	if p.Checkpoints != "" {
		err = errors.Join(err, os.RemoveAll(filepath.Join(p.Checkpoints, strconv.Itoa(int(id)))))
	}
	return err
}
