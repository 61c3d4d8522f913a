//go:build linux

package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/show"
)

// Under MPS each GPU on which shares are has a control daemon of its own, with its
// pipes and logs in a folder of the state. It is started before the first share's
// tasks, looked after, and stopped when no share is left: after a while, or at once when
// somebody else starts on the GPU. It outlives the service as tasks do: a new service
// finds it by its folder.

const (
	mpsAnswer = 15 * time.Second // within which a control daemon answers
	mpsStart  = 10 * time.Second // within which one that was started does
	mpsEnd    = 10 * time.Second // within which one that was told to quit has ended
	mpsLook   = 50 * time.Millisecond
	// mpsLinger is how long one without shares stays, so that one notebook after
	// the other does not start it anew.
	mpsLinger = 30 * time.Second
	// mpsHits is how often a job that runs beside others may be ended by a fault of
	// a GPU's server until it counts as its own.
	mpsHits = 3
	// mpsNear is how long before the end of a server, or after it, its clients fail;
	// who fails at another time does so by itself. That a server has ended is noticed
	// late, by mpsAnswer or by as long as the service was down: see mpsFault.
	mpsNear = 10 * time.Second
)

// mpsDaemons are the control daemons of this machine.
type mpsDaemons struct {
	m   *Machine
	mu  sync.Mutex // of gpus
	gpu map[string]*mpsDaemon
}

// mpsDaemon is that of one GPU. Its lock is held while it is started or stopped.
type mpsDaemon struct {
	uuid, dir string
	mu        sync.Mutex
	known     mpsKnown
	unused    time.Time // since when no share is there; zero: there is one
}

// findMPS knows the control daemons of the services before this one.
func (m *Machine) findMPS() error {
	m.mps = &mpsDaemons{m: m, gpu: map[string]*mpsDaemon{}}
	list, err := os.ReadDir(filepath.Join(m.opt.Dir, "mps"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range list {
		d := m.mps.of(e.Name())
		if err := d.load(); err != nil { // a fault that nobody knows of is the failing jobs' own
			m.opt.Log.Warn("what was known of the MPS servers of a GPU cannot be read", "error", err)
		}
	}
	return nil
}

func (s *mpsDaemons) of(uuid string) *mpsDaemon {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.gpu[uuid]
	if d == nil {
		d = &mpsDaemon{uuid: uuid, dir: filepath.Join(s.m.opt.Dir, "mps", uuid)}
		s.gpu[uuid] = d
	}
	return d
}

func (s *mpsDaemons) all() (list []*mpsDaemon) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.gpu {
		list = append(list, d)
	}
	slices.SortFunc(list, func(a, b *mpsDaemon) int { return strings.Compare(a.uuid, b.uuid) })
	return list
}

func (d *mpsDaemon) pipe() string { return filepath.Join(d.dir, "pipe") }

// tell sends a command to the control daemon and returns its answer.
func (s *mpsDaemons) tell(d *mpsDaemon, command string) (string, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.m.running), mpsAnswer)
	defer cancel()
	c := exec.CommandContext(ctx, s.m.opt.Sharing.Program)
	c.Env, c.Stdin = d.env(), strings.NewReader(command+"\n")
	c.WaitDelay = time.Second
	out, err := c.Output()
	return strings.TrimSpace(string(out)), err
}

func (d *mpsDaemon) env() []string {
	return []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "CUDA_VISIBLE_DEVICES=" + d.uuid,
		"CUDA_MPS_PIPE_DIRECTORY=" + d.pipe(), "CUDA_MPS_LOG_DIRECTORY=" + filepath.Join(d.dir, "log")}
}

// need makes sure that a GPU has its control daemon.
func (s *mpsDaemons) need(uuid string) error {
	for {
		d := s.of(uuid)
		d.mu.Lock()
		if s.of(uuid) != d { // it has just been ended
			d.mu.Unlock()
			continue
		}
		err := s.look(d)
		if err != nil {
			err = s.start(d)
		}
		d.mu.Unlock()
		return err
	}
}

// leave has a GPU be no longer MPS' alone, now that somebody else starts there: its
// control daemon ends. Where shares of MPS are still on it, nothing happens.
func (s *mpsDaemons) leave(uuid string) error {
	s.mu.Lock()
	d := s.gpu[uuid]
	s.mu.Unlock()
	if d == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(s.m.sharers(uuid)) > 0 {
		return nil
	}
	return s.end(d)
}

// end ends a control daemon and gives its GPU back; its lock is held.
func (s *mpsDaemons) end(d *mpsDaemon) error {
	if s.look(d) == nil {
		if _, err := s.tell(d, "quit"); err != nil {
			return fmt.Errorf("the MPS control daemon of %s does not end: %w", d.uuid, err)
		}
		for waited := time.Duration(0); s.look(d) == nil; waited += mpsLook { // it waits for its servers
			if waited >= mpsEnd {
				return fmt.Errorf("the MPS control daemon of %s has not ended after %v: somebody may still use the GPU", d.uuid, mpsEnd)
			}
			time.Sleep(mpsLook)
		}
	}
	err := errors.Join(s.m.opt.Devices.Exclusive(d.uuid, false), os.RemoveAll(d.dir))
	s.mu.Lock()
	delete(s.gpu, d.uuid)
	s.mu.Unlock()
	if err != nil {
		return fmt.Errorf("GPU %s is not given back by MPS: %w", d.uuid, err)
	}
	return nil
}

// start starts a control daemon; its lock is held.
func (s *mpsDaemons) start(d *mpsDaemon) error {
	if err := errors.Join(os.MkdirAll(d.pipe(), 0o711), os.MkdirAll(filepath.Join(d.dir, "log"), 0o711)); err != nil {
		return err
	}
	if _, err := d.logged(); err != nil { // from here on
		s.m.opt.Log.Warn("what a control daemon of MPS writes cannot be read", "uuid", d.uuid, "error", err)
	}
	if err := s.m.opt.Devices.Exclusive(d.uuid, true); err != nil { // MPS works without; then others could come beside it
		s.m.opt.Log.Warn("a GPU cannot be kept for MPS alone", "uuid", d.uuid, "error", err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.m.running), mpsStart)
	defer cancel()
	c := exec.CommandContext(ctx, s.m.opt.Sharing.Program, "-d")
	c.Env, c.Dir = d.env(), "/"
	c.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	if err := c.Run(); err != nil {
		return fmt.Errorf("the MPS control daemon of %s does not start: %w", d.uuid, err)
	}
	for {
		err := s.look(d)
		if err == nil {
			s.m.opt.Log.Info("MPS: a control daemon was started", "uuid", d.uuid)
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the MPS control daemon of %s does not answer: %w", d.uuid, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// uidOf is the user of a job.
func (m *Machine) uidOf(id cluster.JobID) int {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if j := m.jobs[id]; j != nil {
		return j.info.User.UID
	}
	return -1
}

// tend looks after the control daemons until the service ends.
func (s *mpsDaemons) tend() {
	defer s.m.runners.Done()
	tick := time.NewTicker(healthEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.m.running.Done():
			return
		case <-tick.C:
		}
		for _, d := range s.all() {
			s.tendOne(d)
		}
	}
}

func (s *mpsDaemons) tendOne(d *mpsDaemon) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := s.m.opt.Now()
	if len(s.m.sharers(d.uuid)) > 0 {
		d.unused = time.Time{}
		if s.look(d) != nil {
			s.m.opt.Log.Warn("MPS: a control daemon has ended; it is started again, and tasks that it served may fail", "uuid", d.uuid)
			if err := s.start(d); err != nil {
				s.m.opt.Log.Warn(err.Error())
			}
		}
		return
	}
	if d.unused.IsZero() {
		d.unused = now
	}
	if now.Sub(d.unused) < mpsLinger {
		_ = s.look(d)
		return
	}
	if err := s.end(d); err != nil {
		s.m.opt.Log.Warn(err.Error())
	}
}

// sharers are the jobs that hold shares of a GPU, or have not left it yet.
func (m *Machine) sharers(uuid string) (ids []cluster.JobID) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	at := slices.IndexFunc(m.opt.GPUs, func(g show.GPU) bool { return g.UUID == uuid })
	on := func(a engine.Alloc) bool { return a.Share > 0 && a.Slots == 0 && a.GPUs>>at&1 == 1 }
	for id, j := range m.jobs {
		if at >= 0 && (slices.ContainsFunc(j.info.Record.Allocs, on) || slices.ContainsFunc(j.info.Record.Leaving, on) || j.run != nil && slices.ContainsFunc(j.info.On, on)) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// underMPS reports whether a device is a share that MPS enforces.
func (m *Machine) underMPS(d *show.Device) bool {
	return m.opt.Rules.Spec.Sharing == cluster.MPS && d.Share > 0 && d.Profile == ""
}

// endMPS has the GPUs that a run gets whole, or instances of, be no longer MPS' alone: in
// exclusive-process mode a second process would be refused, and a GPU in use cannot be cut.
func (r *runner) endMPS(tasks []*task) error {
	for _, t := range tasks {
		for i := range t.devices {
			if d := &t.devices[i]; !r.m.underMPS(d) {
				if err := r.m.mps.leave(d.GPU()); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// serveMPS makes sure that the GPUs of a run's shares have their control daemons.
func (r *runner) serveMPS(tasks []*task) error {
	for _, t := range tasks {
		for i := range t.devices {
			if r.m.underMPS(&t.devices[i]) {
				if err := r.m.mps.need(t.devices[i].UUID); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// mpsPercentage begins the variable by which a client limits itself.
const mpsPercentage = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="

// threads is the limit of a client's threads, in per cent: its share of the GPU, in
// thousandths, or less, if the user's own environment says so. It can only be tightened
// (A-timeslicing-mps).
func threads(share int64, own []string) string {
	percent := max(1, share/10)
	for _, kv := range own {
		if text, ok := strings.CutPrefix(kv, mpsPercentage); ok {
			if v, err := strconv.ParseFloat(text, 64); err == nil && v >= 1 {
				percent = max(1, min(share/10, int64(v)))
			}
		}
	}
	return strconv.FormatInt(percent, 10)
}

// mpsVariables make a task a client of its GPU's server, within its share; own is the
// user's environment.
func (m *Machine) mpsVariables(t *task, own []string) []string {
	if len(t.devices) != 1 || !m.underMPS(&t.devices[0]) {
		return nil
	}
	d := m.mps.of(t.devices[0].UUID)
	env := []string{"CUDA_MPS_PIPE_DIRECTORY=" + d.pipe(), "CUDA_MPS_LOG_DIRECTORY=" + filepath.Join(d.dir, "log"),
		mpsPercentage + threads(t.devices[0].Share, own)}
	if t.asked.Memory > 0 {
		env = append(env, fmt.Sprintf("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=%dM", t.asked.Memory))
	}
	return env
}

// failedAt is when the first task of a run failed: the others were stopped then.
func (r *runner) failedAt() time.Time {
	at := r.m.opt.Now()
	for _, t := range r.tasks {
		if s := t.state; s != nil && s.Exit != 0 && !s.Ended.IsZero() && s.Ended.Before(at) {
			at = s.Ended
		}
	}
	return at
}

func numbers(ids []cluster.JobID) string {
	var words []string
	for _, id := range ids {
		words = append(words, strconv.Itoa(int(id)))
	}
	return strings.Join(words, ", ")
}
