//go:build linux

// Package share is how a machine's GPUs are shared where something must run for that: MPS' control daemons.
//
// Under MPS each GPU on which shares are has a control daemon of its own, with its
// pipes and logs in a folder of the state. It is started before the first share's
// tasks, looked after, and stopped when no share is left: after a while, or at once when
// another job starts on the GPU. It outlives the service as tasks do: a new service
// finds it by its folder.
package share

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
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
)

// MostFaults is how often a job that runs beside others may be ended by a fault of a GPU's server until it counts as
// its own.
const MostFaults = 3

const (
	answersWithin = 15 * time.Second // within which a control daemon answers
	startsWithin  = 10 * time.Second // within which one that was started does
	endsWithin    = 10 * time.Second // within which one that was to quit has ended
	pause         = 50 * time.Millisecond
	// linger is how long one without shares stays, so that one notebook after
	// the other does not start it again.
	linger = 30 * time.Second
	// near is how long before the end of a server, or after it, its clients fail;
	// who fails at another time does so by itself. That a server has ended is noticed
	// late, by answersWithin or by as long as the service was down: see fault.
	near = 10 * time.Second
)

// Host is what the control daemons must know of the machine, and do to it.
type Host interface {
	// Sharers are the jobs that hold shares of a GPU, or have not left it yet, in order.
	Sharers(uuid string) []cluster.JobID
	// UserOf is the user of a job; -1: there is no such job.
	UserOf(id cluster.JobID) int
	// Exclusive has a GPU take processes of MPS alone, or of everybody.
	Exclusive(uuid string, on bool) error
}

// Options are those of the control daemons.
type Options struct {
	Dir     string // what is known of them, their pipes and logs; a folder for each GPU
	Program string // that starts and controls one
	Host    Host
	Now     func() time.Time
	Log     *slog.Logger
}

// MPS are the control daemons of this machine.
type MPS struct {
	opt     Options
	running context.Context // ends when the service does
	mu      sync.Mutex      // of gpu
	gpu     map[string]*control
}

// control is the control daemon of one GPU. Its lock is held while it is started or stopped.
type control struct {
	uuid, dir string
	mu        sync.Mutex
	known     known
	unused    time.Time // since when no share is there; zero: there is one
}

// Find knows the control daemons of the services before this one.
func Find(running context.Context, opt Options) (*MPS, error) {
	s := &MPS{opt: opt, running: running, gpu: map[string]*control{}}
	list, err := os.ReadDir(opt.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range list {
		d := s.of(e.Name())
		if err := d.load(); err != nil { // a fault that is not known is the failing jobs' own
			opt.Log.Warn("what was known of the MPS servers of a GPU cannot be read", "error", err)
		}
	}
	return s, nil
}

func (s *MPS) of(uuid string) *control {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.gpu[uuid]
	if d == nil {
		d = &control{uuid: uuid, dir: filepath.Join(s.opt.Dir, uuid)}
		s.gpu[uuid] = d
	}
	return d
}

func (s *MPS) all() (list []*control) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.gpu {
		list = append(list, d)
	}
	slices.SortFunc(list, func(a, b *control) int { return strings.Compare(a.uuid, b.uuid) })
	return list
}

func (d *control) pipe() string { return filepath.Join(d.dir, "pipe") }

// send sends a command to the control daemon and returns its answer.
func (s *MPS) send(d *control, command string) (string, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.running), answersWithin)
	defer cancel()
	c := exec.CommandContext(ctx, s.opt.Program)
	c.Env, c.Stdin = d.env(), strings.NewReader(command+"\n")
	c.WaitDelay = time.Second
	out, err := c.Output()
	return strings.TrimSpace(string(out)), err
}

func (d *control) env() []string {
	return []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"CUDA_VISIBLE_DEVICES=" + d.uuid,
		"CUDA_MPS_PIPE_DIRECTORY=" + d.pipe(), "CUDA_MPS_LOG_DIRECTORY=" + filepath.Join(d.dir, "log")}
}

// Need makes sure that a GPU has its control daemon.
func (s *MPS) Need(uuid string) error {
	for {
		d := s.of(uuid)
		d.mu.Lock()
		if s.of(uuid) != d { // it has just been ended
			d.mu.Unlock()
			continue
		}
		err := s.checkServers(d)
		if err != nil {
			err = s.start(d)
		}
		d.mu.Unlock()
		return err
	}
}

// Leave has a GPU be no longer MPS' alone, now that another job starts there: its
// control daemon ends. Where shares of MPS are still on it, nothing happens.
func (s *MPS) Leave(uuid string) error {
	s.mu.Lock()
	d := s.gpu[uuid]
	s.mu.Unlock()
	if d == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(s.opt.Host.Sharers(uuid)) > 0 {
		return nil
	}
	return s.end(d)
}

// end ends a control daemon and gives its GPU back; its lock is held.
func (s *MPS) end(d *control) error {
	if s.checkServers(d) == nil {
		if _, err := s.send(d, "quit"); err != nil {
			return fmt.Errorf("the MPS control daemon of %s does not end: %w", d.uuid, err)
		}
		for waited := time.Duration(0); s.checkServers(d) == nil; waited += pause { // it waits for its servers
			if waited >= endsWithin {
				return fmt.Errorf("the MPS control daemon of %s has not ended after %v: a process may still use the GPU", d.uuid, endsWithin)
			}
			time.Sleep(pause)
		}
	}
	err := errors.Join(s.opt.Host.Exclusive(d.uuid, false), os.RemoveAll(d.dir))
	s.mu.Lock()
	delete(s.gpu, d.uuid)
	s.mu.Unlock()
	if err != nil {
		return fmt.Errorf("GPU %s is not given back by MPS: %w", d.uuid, err)
	}
	return nil
}

// start starts a control daemon; its lock is held.
func (s *MPS) start(d *control) error {
	if err := errors.Join(os.MkdirAll(d.pipe(), 0o711), os.MkdirAll(filepath.Join(d.dir, "log"), 0o711)); err != nil {
		return err
	}
	if _, err := d.logged(); err != nil { // from here on
		s.opt.Log.Warn("what a control daemon of MPS writes cannot be read", "uuid", d.uuid, "error", err)
	}
	if err := s.opt.Host.Exclusive(d.uuid, true); err != nil { // MPS works without; then others could come beside it
		s.opt.Log.Warn("a GPU cannot be kept for MPS alone", "uuid", d.uuid, "error", err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.running), startsWithin)
	defer cancel()
	c := exec.CommandContext(ctx, s.opt.Program, "-d")
	c.Env, c.Dir = d.env(), "/"
	c.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	if err := c.Run(); err != nil {
		return fmt.Errorf("the MPS control daemon of %s does not start: %w", d.uuid, err)
	}
	for {
		err := s.checkServers(d)
		if err == nil {
			s.opt.Log.Info("MPS: a control daemon was started", "uuid", d.uuid)
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the MPS control daemon of %s does not answer: %w", d.uuid, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Tend looks after the control daemons, every so often, until the service ends. Those whose GPUs have no share then end
// with it, as nobody else would end them.
func (s *MPS) Tend(every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-s.running.Done():
			for _, d := range s.all() {
				if err := s.Leave(d.uuid); err != nil {
					s.opt.Log.Warn(err.Error())
				}
			}
			return
		case <-tick.C:
		}
		for _, d := range s.all() {
			s.tendOne(d)
		}
	}
}

func (s *MPS) tendOne(d *control) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := s.opt.Now()
	if len(s.opt.Host.Sharers(d.uuid)) > 0 {
		d.unused = time.Time{}
		if s.checkServers(d) != nil {
			s.opt.Log.Warn("MPS: a control daemon has ended; it is started again, and tasks that it served may fail",
				"uuid", d.uuid)
			if err := s.start(d); err != nil {
				s.opt.Log.Warn(err.Error())
			}
		}
		return
	}
	if d.unused.IsZero() {
		d.unused = now
	}
	if now.Sub(d.unused) < linger {
		_ = s.checkServers(d)
		return
	}
	if err := s.end(d); err != nil {
		s.opt.Log.Warn(err.Error())
	}
}

// percentage begins the variable by which a client limits itself.
const percentage = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="

// threads is the limit of a client's threads, in per cent: its share of the GPU, in
// thousandths, or less, if the user's own environment says so. It can only be tightened
// (NVIDIA's MPS documentation).
func threads(share int64, own []string) string {
	percent := max(1, share/10)
	for _, kv := range own {
		if text, ok := strings.CutPrefix(kv, percentage); ok {
			if v, err := strconv.ParseFloat(text, 64); err == nil && v >= 1 {
				percent = max(1, min(share/10, int64(v)))
			}
		}
	}
	return strconv.FormatInt(percent, 10)
}

// Variables make a task with one share of a GPU, in thousandths, a client of the GPU's server, within its share and,
// unless it is 0, an amount of its memory in MiB; own is the user's environment.
func (s *MPS) Variables(uuid string, share, memory int64, own []string) []string {
	d := s.of(uuid)
	env := []string{"CUDA_MPS_PIPE_DIRECTORY=" + d.pipe(), "CUDA_MPS_LOG_DIRECTORY=" + filepath.Join(d.dir, "log"),
		percentage + threads(share, own)}
	if memory > 0 {
		env = append(env, fmt.Sprintf("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=%dM", memory))
	}
	return env
}
