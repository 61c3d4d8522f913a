//go:build linux

package local

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/driver"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/local/evidence"
	"github.com/muster-gpu/muster/local/shim"
	"github.com/muster-gpu/muster/store"
)

// adopt compares what the engine believes with the shims that are there and
// prepares what it missed. A job whose tasks all ended meanwhile counts as
// running until its runner, which finds that out at once, says so.
func (m *Machine) adopt() error {
	o := driver.Observed{Nodes: m.eng.Nodes()}
	var mine, begin []*runner
	for _, b := range m.eng.Beliefs() {
		j := m.jobs[b.Job]
		r := m.newRunner(j)
		switch {
		case r.find(j.info.On):
			mine = append(mine, r)
		case b.State == engine.Starting, b.State == engine.Running && b.Resizing:
			r.on = b.Allocs // it is started in place: the devices are its own
			begin = append(begin, r)
		default:
			r.forget()
			continue
		}
		f := driver.Found{Job: b.Job, Rate: 1_000_000}
		for _, a := range r.on {
			f.On = append(f.On, driver.Held{Node: o.Nodes[a.Node].Name, GPUs: a.GPUs})
		}
		o.Running = append(o.Running, f)
	}
	mine = append(mine, m.adoptSuspended()...)
	m.crash("adopting")
	events, _ := driver.Diff(o, driver.ViewOf(m.eng))
	events = slices.DeleteFunc(events, func(ev engine.Event) bool { // they have yet to say so themselves
		return slices.ContainsFunc(begin, func(r *runner) bool { return r.id == ev.Job })
	})
	if len(events) > 0 {
		m.inbox.Put(func(cluster.Time) ([]engine.Event, func(error)) { return events, nil })
	} else {
		m.event(engine.Event{Type: engine.Tick})
	}
	m.chooseAgain()
	if err := m.sweep(); err != nil {
		return err
	}
	m.mps.Missed()
	m.crash("adopted")
	for _, r := range mine {
		orders := r.owed()
		go func() {
			defer m.runners.Done()
			for _, o := range orders { // before it is seen that the job has ended, perhaps because of them
				r.obey(o)
			}
			r.follow()
		}()
	}
	for _, r := range begin {
		says := engine.Started
		if r.job.info.Record.State == engine.Running {
			says = engine.Resized
		}
		go func() {
			defer m.runners.Done()
			if r.again(says) {
				r.follow()
			}
		}()
	}
	return nil
}

// noteCold ends the processes of jobs that were suspended and are not to go on with what they
// have in memory, and writes that down.
func (m *Machine) noteCold(ctx context.Context) error {
	for _, j := range m.sorted() {
		if r := j.whole().Record; r.State != engine.Pending || r.Home == nil || m.eng.Record(j.id).Home != nil {
			continue
		}
		run := &runner{m: m, id: j.id, job: j, n: j.info.Run}
		run.seek(j.info.On)
		run.endAll()
		info := j.own()
		info.Use.add(run.tasks)
		info.Frozen = false
		j.said = append(j.said, "what it had in memory is given up: GPUs are shared in another way than when it was suspended, or are not there any more")
		if err := m.store.Write(ctx, func(t *store.Tx) error { return m.writeJob(t, j.id) }); err != nil {
			return err
		}
		m.settle(j.id)
	}
	return nil
}

// adoptSuspended finds the jobs that are frozen, and not on devices.
func (m *Machine) adoptSuspended() (mine []*runner) {
	for _, j := range m.sorted() {
		if r := j.whole().Record; r.State == engine.Pending && r.Home != nil {
			run := m.newRunner(j)
			run.frozen, run.reportedSuspended = true, true
			if run.find(j.info.On) {
				mine = append(mine, run)
				continue
			}
			run.forget()
			m.event(engine.Event{Type: engine.Cancelled, Job: j.id})
			j.own().Text = "killed while it was suspended"
		}
	}
	return mine
}

// forget drops a runner of which nothing is to be seen.
func (r *runner) forget() {
	r.job.run = nil
	r.m.runners.Done()
}

// sorted lists the jobs by number.
func (m *Machine) sorted() (list []*job) {
	for id := range m.next {
		if j := m.jobs[id]; j != nil {
			list = append(list, j)
		}
	}
	return list
}

// owed is what a job was told, and may not have heard, when the daemon died. One
// that was told to stop gets the rest of its time.
func (r *runner) owed() (list []order) {
	rec := r.job.whole().Record
	if rec.State == engine.Running && rec.LimitAt != cluster.Never {
		r.limit = time.Unix(0, int64(rec.LimitAt))
	}
	switch {
	case rec.State == engine.Stopping:
		return []order{{how: r.m.eng.Record(r.id).How, grace: r.remaining()}} // GPUs may be shared in another way than when it was told
	case rec.State == engine.Running && r.job.info.Requeue:
		return []order{{how: engine.Checkpoint, grace: r.remaining()}}
	case r.reportedSuspended, r.job.info.Frozen:
		list = append(list, order{freeze: true})
	default:
		list = append(list, order{unfreeze: true})
	}
	if rec.State == engine.Running && rec.Resizing && !sameAllocs(r.on, rec.Allocs) {
		list = append(list, order{resize: slices.Clone(rec.Allocs), grace: r.m.grace(r.job)})
	}
	return list
}

// find looks for the tasks of the job's last run. It reports false when the run
// did not begin; a gang that began in part is killed.
func (r *runner) find(allocs []engine.Alloc) bool {
	n := r.seek(allocs)
	r.ended = make(chan *task, n)
	if len(r.tasks) == n && n > 0 {
		for _, t := range r.tasks {
			r.live++
			r.gone(t, t.awaitShim)
		}
		return true
	}
	r.endAll()
	return false
}

// endAll ends the tasks of a run that is not to go on.
func (r *runner) endAll() {
	for _, t := range r.tasks {
		t.kill()
	}
	for _, t := range r.tasks {
		if !t.end() {
			r.m.opt.Log.Warn("a task that was killed has not ended yet", "job", r.id, "run", r.n, "task", t.rank)
		}
	}
}

// endWait is how long a task that was killed is waited for.
const endWait = 10 * time.Second

// end kills a task, whoever is left of it, and returns when its shim has ended. false: it has
// not after a while, as one does whose process waits for a device.
func (t *task) end() bool {
	for wait, waited := 2*time.Millisecond, time.Duration(0); ; wait = min(2*wait, 200*time.Millisecond) {
		_ = t.read() // it may just have begun
		t.kill()
		if waited >= endWait/2 {
			t.killShim()
		}
		if !locked(t.dir+".lock") && len(t.killLeft(0)) == 0 {
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

// seek looks for the tasks of a run, and returns how many there should be.
func (r *runner) seek(allocs []engine.Alloc) (n int) {
	r.on = allocs
	for i := range allocs {
		n += int(allocs[i].Tasks)
	}
	for rank := range n {
		t := r.m.leftTask(r.id, r.n, rank, r.job.info.User.UID)
		t.request = r.job.spec.Tasks[setOf(allocs, rank)].Request
		if r.examine(t) {
			r.tasks = append(r.tasks, t)
		}
	}
	return n
}

// leftTask is a task that an earlier daemon began.
func (m *Machine) leftTask(id cluster.JobID, run, rank, uid int) *task {
	mark := m.mark(id, run, rank)
	t := &task{rank: rank, uid: uid, dir: m.taskDir(id, run, rank), spec: &shim.Task{Mark: mark}, group: m.groupOf(mark)}
	t.legacy = shim.Legacy(t.dir)
	return t
}

// examine reads a task's state; false: it never began. A shim that waits for
// the word to go has seen its daemon die, and ends; one that has begun says
// soon what became of it.
func (r *runner) examine(t *task) bool {
	for try := 0; ; try++ {
		held := locked(t.dir + ".lock")
		err := t.read()
		s := t.state
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
func (t *task) awaitShim() {
	f, err := os.OpenFile(t.dir+".lock", os.O_RDWR, 0)
	if err != nil {
		return
	}
	for unix.Flock(int(f.Fd()), unix.LOCK_EX) == unix.EINTR {
	}
	_ = f.Close()
}

// locked reports whether somebody holds the lock.
func locked(path string) bool {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil
}

// sweep kills the tasks that nobody knows any more: their daemon died between
// stopping them and writing it down, or their job is over.
func (m *Machine) sweep() error {
	locks, err := filepath.Glob(filepath.Join(m.opt.Dir, "jobs", "*", "*", "*.lock"))
	if err != nil {
		return err
	}
	for _, path := range locks {
		id, run, rank, ok := parseLock(path)
		if j := m.jobs[id]; !ok || j != nil && j.run != nil && j.info.Run == run || !locked(path) {
			continue
		}
		m.opt.Log.Warn("a task is left over from a job that is not running; it is killed", "job", id, "run", run, "task", rank)
		if t := m.leftTask(id, run, rank, folderOwner(m.taskDir(id, run, rank))); !t.end() {
			m.opt.Log.Warn("a task that was killed has not ended yet", "job", id, "run", run, "task", rank)
		}
	}
	m.sweepGroups()
	return nil
}

// folderOwner is the user of a folder in one of the daemon's; -1: there is none.
func folderOwner(path string) int {
	fi, err := os.Lstat(path)
	if err != nil {
		return -1
	}
	return ownerOf(fi)
}

// ownerOf is the user whose file that is; -1: the file system does not say.
func ownerOf(fi os.FileInfo) int {
	if uid, ok := evidence.OwnerOf(fi); ok {
		return uid
	}
	return -1
}

// parseLock reads the numbers in jobs/ID/RUN/RANK.lock.
func parseLock(path string) (id cluster.JobID, run, rank int, ok bool) {
	parts := strings.Split(strings.TrimSuffix(path, ".lock"), string(filepath.Separator))
	if len(parts) < 3 {
		return 0, 0, 0, false
	}
	var n [3]int
	for i, p := range parts[len(parts)-3:] {
		v, err := strconv.Atoi(p)
		if err != nil {
			return 0, 0, 0, false
		}
		n[i] = v
	}
	return cluster.JobID(n[0]), n[1], n[2], true
}
