//go:build linux

package local

import (
	"errors"
	"io/fs"
	"os"

	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/local/run"
	"github.com/muster-gpu/muster/local/shim"
)

// writeOwn writes a file of the task's folder, which is the daemon's still.
func (r *runner) writeOwn(path string, text []byte, mode os.FileMode) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if errors.Is(err, fs.ErrExist) { // of a start that was interrupted
		if err = os.Remove(path); err == nil {
			f, err = os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
		}
	}
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, r.ownFile(f), f.Close())
}

// ownFile gives an open file to the job's user.
func (r *runner) ownFile(f *os.File) error {
	if os.Getuid() != 0 {
		return nil
	}
	return f.Chown(r.job.Info.User.UID, r.job.Info.User.GID)
}

// plan makes the tasks of a run from what the engine gave it.
func (r *runner) plan(allocs []engine.Alloc) (tasks []*run.Task) {
	r.port = freePort()
	for i := range allocs {
		a := &allocs[i]
		end := i + 1
		for end < len(allocs) && a.Share > 0 && allocs[end].Tasks == 0 { // a share of another GPU, of the same task
			end++
		}
		devices := r.m.gpus.Held(&r.m.opt.Rules.Spec, allocs[i:end])
		each := len(devices)
		if a.Tasks > 0 && a.Share == 0 {
			each = len(devices) / int(a.Tasks)
		}
		for k := range int(a.Tasks) {
			own := devices
			if a.Share == 0 {
				own = devices[k*each : (k+1)*each]
			}
			rank := len(tasks)
			t := &run.Task{Rank: rank, Dir: r.m.keeper.TaskDir(r.ID, r.N, rank), UID: r.job.Info.User.UID,
				Request: r.job.Spec.Tasks[a.Set].Request}
			t.Spec = &shim.Task{Mark: r.m.keeper.Mark(r.ID, r.N, rank), User: r.shimUser()}
			t.Group = r.m.keeper.Group(t.Spec.Mark)
			r.describe(t, own)
			tasks = append(tasks, t)
		}
	}
	for _, t := range tasks {
		t.Spec.Env = r.environment(t, len(tasks))
	}
	return tasks
}
