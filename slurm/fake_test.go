package slurm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/ask"
)

// fake is a stand-in for the server: it keeps jobs in memory and runs nothing. Tests start and end its jobs by
// hand. It has neither rights nor a scheduler, which are tested with a real server.
type fake struct {
	now   time.Time
	user  string
	jobs  []api.Job
	nodes []api.Node
	parts []api.Partition
	log   []string // calls with their arguments

	queues []api.Queue
	fair   api.Fair
	meter  api.Samples
	asked  int   // number of requests for nodes or partitions
	revoke bool  // jobs are cancelled instead of started
	fail   error // the answer of Submit and Test
}

func newFake() *fake {
	gpus := make([]api.GPU, 8)
	for i := range gpus {
		gpus[i] = api.GPU{Index: i, UUID: fmt.Sprintf("GPU-%d", i), Model: "H100-80GB", Memory: 81920, Healthy: true,
			Free: 1000}
	}
	return &fake{now: time.Date(2026, 3, 4, 10, 0, 0, 0, time.UTC), user: "ann",
		queues: []api.Queue{{Name: "lab", Limit: -1}, {Name: "vision", Parent: "lab", Guarantee: 2000, Limit: 4000}},
		nodes:  []api.Node{{Name: "box", State: "up", CPU: 64000, RAM: 20000, GPUs: gpus}},
		parts: []api.Partition{
			{Name: "gpu", Default: true, MaxTime: api.Duration(7 * 24 * time.Hour),
				DefaultTime: api.Duration(time.Hour), Nodes: []string{"box"}},
			{Name: "debug", MaxTime: api.Duration(30 * time.Minute), Nodes: []string{"box"}}}}
}

func (f *fake) Now() time.Time { return f.now }
func (f *fake) User() string   { return f.user }
func (f *fake) Step() []string { return []string{"muster", "slurm", "srun"} }

func (f *fake) Submit(s api.Submission) (api.Job, error) {
	if f.fail != nil {
		return api.Job{}, f.fail
	}
	if text := f.never(&s); text != "" {
		return api.Job{}, errors.New(text)
	}
	indices := []int{0}
	array := 0
	if s.Array != "" {
		a, err := ask.ParseArray(s.Array)
		if err != nil {
			return api.Job{}, err
		}
		indices, array = a.Indices, len(f.jobs)+1
	}
	first := len(f.jobs)
	for _, i := range indices {
		t := f.now
		j := api.Job{ID: len(f.jobs) + 1, Array: array, User: f.user, State: api.StatePending, Submitted: f.now,
			Eligible: &t, Code: "Resources",
			Position: len(f.jobs) + 1, Submission: s}
		if array != 0 {
			j.Index = i
		}
		if s.Hold {
			j.Code = "JobHeldUser"
		}
		j.Node = "box"
		j.StdOut = abs(s.Dir, ask.ExpandPattern(s.Output, fileNames(j)))
		if s.Error != "" {
			j.StdErr = abs(s.Dir, ask.ExpandPattern(s.Error, fileNames(j)))
		}
		j.Node = ""
		f.jobs = append(f.jobs, j)
	}
	return f.jobs[first], nil
}

func (f *fake) SubmitBatch(s api.Submission) (int, error) {
	j, err := f.Submit(s)
	return j.ID, err
}

// fileNames are the values of the patterns in a job's file names, as on the server.
func fileNames(j api.Job) ask.FileNames {
	return ask.FileNames{Job: j.ID, Array: j.Array, Index: j.Index, User: j.User, JobName: j.Submission.Name,
		Node: j.Node, Step: "batch"}
}

func abs(dir, file string) string {
	if filepath.IsAbs(file) {
		return file
	}
	return filepath.Join(dir, file)
}

// never refuses what the server would, in other words than Slurm's.
func (f *fake) never(s *api.Submission) string {
	for _, p := range s.Partitions {
		if !slices.ContainsFunc(f.parts, func(k api.Partition) bool { return k.Name == p }) {
			return "there is no such partition"
		}
	}
	if n := &f.nodes[0]; s.GPUs > len(n.GPUs) && s.Profile == "" || s.CPU > n.CPU || s.RAM > n.RAM {
		return "no node has that much"
	}
	return ""
}

func (f *fake) Test(s api.Submission) (api.Job, error) {
	if text := f.never(&s); text != "" {
		return api.Job{}, errors.New(text)
	}
	t := f.now
	return api.Job{ID: len(f.jobs) + 1, Expected: &t, Node: "box", Submission: s}, f.fail
}

func (f *fake) Jobs() ([]api.Job, error) {
	var out []api.Job
	for i := range f.jobs {
		if !stateOf(&f.jobs[i]).over {
			out = append(out, f.jobs[i])
		}
	}
	return out, nil
}

func (f *fake) Job(id int) (api.Job, error) {
	if id < 1 || id > len(f.jobs) {
		return api.Job{}, ErrNoJob
	}
	return f.jobs[id-1], nil
}

func (f *fake) History(since, until time.Time) ([]api.Job, error) {
	var out []api.Job
	for _, j := range f.jobs {
		if (j.Ended == nil || !j.Ended.Before(since)) && !j.Submitted.After(until) {
			out = append(out, j)
		}
	}
	return out, nil
}

func (f *fake) call(format string, args ...any) error {
	f.log = append(f.log, fmt.Sprintf(format, args...))
	return nil
}

func (f *fake) Wait(id int) (api.Job, error) { f.call("wait %d", id); f.end(id, 0); return f.Job(id) }
func (f *fake) Attach(id int, _ io.Reader, out, _ io.Writer) (api.Job, error) {
	fmt.Fprintln(out, "attached")
	f.end(id, 0)
	return f.Job(id)
}
func (f *fake) CancelAll(jobs []api.Job) (map[int]error, error) {
	for i := range jobs {
		if err := f.Cancel(jobs[i].ID); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

func (f *fake) Cancel(id int) error {
	f.jobs[id-1].State = api.StateCancelled
	return f.call("cancel %d", id)
}
func (f *fake) Signal(id int, s string, to Receivers) error {
	return f.call("signal %d %s %d", id, s, to)
}
func (f *fake) Hold(id int) error    { return f.call("hold %d", id) }
func (f *fake) Release(id int) error { return f.call("release %d", id) }
func (f *fake) Requeue(id int) error { return f.call("requeue %d", id) }
func (f *fake) Suspend(id int) error { return f.call("suspend %d", id) }
func (f *fake) Resume(id int) error  { return f.call("resume %d", id) }
func (f *fake) Update(id int, u *api.Update) error {
	f.jobs[id-1].Submission = u.Apply(f.jobs[id-1].Submission)
	return f.call("update %d", id)
}
func (f *fake) Nodes() ([]api.Node, error)       { f.asked++; return f.nodes, nil }
func (f *fake) Queues() ([]api.Queue, error)     { return f.queues, nil }
func (f *fake) Fair() (api.Fair, error)          { return f.fair, nil }
func (f *fake) Samples(int) (api.Samples, error) { return f.meter, nil }
func (f *fake) Started(id int) (api.Job, error) {
	if f.revoke {
		f.jobs[id-1].State = api.StateCancelled
	} else if f.jobs[id-1].State == api.StatePending {
		f.start(id)
	}
	return f.Job(id)
}
func (f *fake) Partitions() ([]api.Partition, error) { f.asked++; return f.parts, nil }
func (f *fake) SetNode(name, state, reason string) error {
	return f.call("node %s %s %s", name, state, reason)
}

// start puts a job on devices.
func (f *fake) start(id int, devices ...int) {
	j := &f.jobs[id-1]
	t := f.now
	j.State, j.Code, j.Node, j.Started, j.FirstStart, j.Position = api.StateRunning, "", "box", &t, &t, 0
	for _, d := range devices {
		j.Devices = append(j.Devices, api.Device{Index: d, UUID: fmt.Sprintf("GPU-%d", d)})
		f.nodes[0].GPUs[d].Free = 0
	}
}

func (f *fake) end(id, code int) {
	j := &f.jobs[id-1]
	t := f.now
	j.State, j.ExitCode, j.Ended, j.Position = api.StateCompleted, code, &t, 0
	if code != 0 {
		j.State = api.StateFailed
	}
}

// do runs a command line against the stand-in.
func (f *fake) do(t *testing.T, stdin string, words ...string) (code int, out, errs string) {
	t.Helper()
	return f.doEnv(t, stdin, []string{"PATH=/usr/bin:/bin", "HOME=/home/ann", "USER=ann"}, words...)
}

func (f *fake) doEnv(t *testing.T, stdin string, env []string, words ...string) (code int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	code = Main(words[0], words[1:], env, strings.NewReader(stdin), &o, &e, f)
	return code, o.String(), e.String()
}
