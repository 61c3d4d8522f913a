//go:build linux

package local

import (
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/muster-gpu/muster/local/run"
	"github.com/muster-gpu/muster/local/shim"
	"github.com/muster-gpu/muster/local/traffic"
	"github.com/muster-gpu/muster/show"
)

// logRoom is what logs in the state's folder leave free on its disk, bytes.
const logRoom = 64 << 20

// describe fills in what a task executes, and with which files.
func (r *runner) describe(t *run.Task, devices []show.Device) {
	s := r.job.Sub
	t.Devices = devices
	t.Spec.Dir, t.Spec.Input, t.Spec.Truncate = s.Dir, "/dev/null", s.Truncate
	t.Spec.Umask, _ = s.Mask() // it was checked at submission
	if s.Input != "" {
		t.Spec.Input = inDir(s.Dir, s.Input)
	}
	if t.Rank == 0 && s.Pty {
		t.Spec.TTY = shim.InputPty
	} else if t.Rank == 0 && s.Stdin {
		t.Spec.TTY = shim.InputPipe
	}
	t.Spec.Output, t.Spec.Error = r.m.outputs(&r.job.Job, t.Rank)
	if s.Attached { // its log is on the disk of the state, which must not be full
		t.Spec.LogRoom = logRoom
	}
	if s.Script == "" {
		t.Spec.Argv = s.Command
		return
	}
	t.Spec.Argv = append([]string{filepath.Join(r.m.keeper.TaskDir(r.ID, r.N, 0), shim.ScriptFile)}, s.Args...)
}

// environment is the user's, with what Muster says of the job.
func (r *runner) environment(t *run.Task, size int) []string {
	s, u := r.job.Sub, r.job.Info.User
	env := append([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + u.Home,
		"USER=" + u.Name,
		"LOGNAME=" + u.Name, "SHELL=/bin/sh"}, s.Env...)
	// of a job from within which it was submitted
	env = slices.DeleteFunc(env, func(kv string) bool {
		return strings.HasPrefix(kv, savingName) || strings.HasPrefix(kv, traffic.FileVariable+"=")
	})
	if more := r.m.opt.Variables; more != nil {
		view := r.job.View(r.m.opt.Now())
		view.Node = r.m.opt.Rules.Spec.Nodes[0].Name
		env = append(env, more(&view, t.Rank)...)
	}
	rank, world := strconv.Itoa(t.Rank), strconv.Itoa(size)
	env = append(append(env, r.deviceVariables(t.Devices)...), r.m.mpsVariables(t, s.Env)...)
	env = append(append(env, run.TrialVariables(s.Trial, t.Dir)...), r.savingVariable()...)
	env = append(env, r.trafficVariables()...)
	return lastOnes(append(env,
		"MUSTER_JOB_ID="+strconv.Itoa(int(r.ID)), "MUSTER_JOB_NAME="+s.Name, "MUSTER_QUEUE="+s.Queue,
		"MUSTER_RESTART_COUNT="+strconv.Itoa(r.job.Info.Restarts()),
		"MUSTER_CHECKPOINT_DIR="+r.m.keeper.CheckpointDir(r.job.Folder()),
		"MUSTER_CHECKPOINT_SIGNAL="+strings.TrimPrefix(unix.SignalName(r.Wishes.Signal), "SIG"),
		"MUSTER_PROGRESS="+filepath.Join(t.Dir, shim.ProgressFile), "MUSTER_RANK="+rank, "MUSTER_WORLD_SIZE="+world,
		"RANK="+rank, "LOCAL_RANK="+rank, "WORLD_SIZE="+world, "LOCAL_WORLD_SIZE="+world,
		"MASTER_ADDR=127.0.0.1", "MASTER_PORT="+strconv.Itoa(r.port), t.Spec.Mark))
}

// lastOnes leaves of each variable the last value: what a job that was submitted
// from within a job has of that one's is not its own, and programs differ in which they take.
func lastOnes(env []string) []string {
	last := map[string]int{}
	for i, kv := range env {
		name, _, _ := strings.Cut(kv, "=")
		last[name] = i
	}
	out := env[:0]
	for i, kv := range env {
		if name, _, _ := strings.Cut(kv, "="); last[name] == i {
			out = append(out, kv)
		}
	}
	return out
}

// deviceVariables say which GPUs a task may see; that it may see none is said, too.
func (r *runner) deviceVariables(devices []show.Device) []string {
	var uuids, index []string
	for _, d := range devices {
		uuids, index = append(uuids, d.UUID), append(index, strconv.Itoa(d.Index))
	}
	visible := strings.Join(uuids, ",")
	nvidia := visible
	if len(devices) == 0 {
		nvidia = "void"
	}
	return []string{"CUDA_DEVICE_ORDER=PCI_BUS_ID", "CUDA_VISIBLE_DEVICES=" + visible,
		"NVIDIA_VISIBLE_DEVICES=" + nvidia,
		"MUSTER_GPUS=" + strings.Join(index, ",")}
}

// freePort finds a port for the tasks to meet at. Somebody else may take it
// before they do; then they fail at once, and say so.
func freePort() int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 29500 // as torchrun's default
	}
	defer l.Close()
	a, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return 29500
	}
	return a.Port
}
