//go:build linux

package run

import (
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/local/shim"
)

// endWait is how long a task that was killed is waited for.
const endWait = 10 * time.Second

// end kills a task and what is left of it, and returns when its shim has ended. false: it has
// not after a while, as one does whose process waits for a device.
func (t *Task) end() bool {
	for wait, waited := 2*time.Millisecond, time.Duration(0); ; wait = min(2*wait, 200*time.Millisecond) {
		_ = t.read() // it may just have begun
		t.kill()
		if waited >= endWait/2 {
			t.killShim()
		}
		if !locked(t.lock()) && len(t.killLeft(0)) == 0 {
			t.over()
			return true
		}
		if waited >= endWait {
			return false
		}
		time.Sleep(wait)
		waited += wait
	}
}

// Left is a task that an earlier daemon began.
func (k *Keeper) Left(id cluster.JobID, run, rank, uid int) *Task {
	mark := k.Mark(id, run, rank)
	t := &Task{Rank: rank, UID: uid, Dir: k.TaskDir(id, run, rank), Spec: &shim.Task{Mark: mark}, Group: k.Group(mark)}
	t.legacy = shim.Legacy(t.Dir)
	return t
}

// Find follows the tasks of a run that an earlier daemon began; want is all that there should be. It reports false when
// the run did not begin; a gang that began in part is killed.
func (r *Run) Find(want []*Task) bool {
	r.seek(want)
	r.ended = make(chan *Task, len(want))
	if len(r.Tasks) == len(want) && len(want) > 0 {
		for _, t := range r.Tasks {
			r.live++
			r.gone(t, t.awaitShim)
		}
		return true
	}
	r.end()
	return false
}

// FindAndEnd ends the tasks of a run that is not to go on.
func (r *Run) FindAndEnd(want []*Task) {
	r.seek(want)
	r.end()
}

func (r *Run) seek(want []*Task) {
	for _, t := range want {
		if t.began() {
			r.Tasks = append(r.Tasks, t)
		}
	}
}

func (r *Run) end() {
	for _, t := range r.Tasks {
		t.kill()
	}
	for _, t := range r.Tasks {
		if !t.end() {
			r.k.notEnded(r.ID, r.N, t.Rank)
		}
	}
}

func (k *Keeper) notEnded(id cluster.JobID, run, rank int) {
	k.Log.Warn("a task that was killed has not ended yet", "job", id, "run", run, "task", rank)
}

// EndLeft ends a task that an earlier daemon began, and what is left of it; false: it has not ended after a while.
func (k *Keeper) EndLeft(id cluster.JobID, run, rank int) bool {
	return k.Left(id, run, rank, folderOwner(k.TaskDir(id, run, rank))).end()
}

// Sweep kills the tasks that are not known any more: their daemon died between stopping them and writing it down, or
// their job is over. live reports whether a run goes on, known whether it is its job's last.
func (k *Keeper) Sweep(live, known func(id cluster.JobID, run int) bool) error {
	locks, err := k.locks()
	if err != nil {
		return err
	}
	for _, path := range locks {
		id, run, rank, ok := parseLock(path)
		if !ok || live(id, run) || !locked(path) {
			continue
		}
		k.Log.Warn("a task is left over from a job that is not running; it is killed",
			"job", id, "run", run, "task", rank)
		if !k.EndLeft(id, run, rank) {
			k.notEnded(id, run, rank)
		}
	}
	k.Groups.Sweep(func(name string) bool { // groups of tasks that ended with their daemon
		id, run, _, ok := k.parseMark(name)
		return ok && !known(id, run)
	})
	return nil
}

// began reads a task's state; false: it never began. A shim that waits for
// the word to go has seen its daemon die, and ends; one that has begun says
// soon what became of it.
func (t *Task) began() bool {
	for try := 0; ; try++ {
		held := locked(t.lock())
		err := t.read()
		s := t.State
		switch {
		case err != nil:
			return true // something was there: it counts as lost
		case s == nil && !held:
			return false
		case s != nil && (s.Phase != shim.Starting || !held):
			t.alive = held
			return true
		case try > 5000: // it hangs
			t.alive = held
			return true
		}
		time.Sleep(time.Millisecond)
	}
}

// awaitShim returns when a shim that is not our child has ended: its lock is free then.
func (t *Task) awaitShim() {
	f, err := os.OpenFile(t.lock(), os.O_RDWR, 0)
	if err != nil {
		return
	}
	for unix.Flock(int(f.Fd()), unix.LOCK_EX) == unix.EINTR {
	}
	_ = f.Close()
}

// locked reports whether the lock is held.
func locked(path string) bool {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil
}
