package slurm

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// BenchmarkBeside compares Muster with a real Slurm on the same machine, with the same commands: Slurm's own
// sbatch and squeue, and those that muster slurm install makes. Run it with -benchtime 1x; docs/design/performance.md
// has the figures.
func BenchmarkBeside(b *testing.B) {
	for _, s := range []struct {
		name  string
		start func(testing.TB) *subject
	}{{"slurm", realSlurm}, {"muster", musterAsSlurm}} {
		b.Run(s.name, func(b *testing.B) {
			u := s.start(b)
			b.Run("submit", func(b *testing.B) { u.submissions(b, 1) })
			b.Run("submit-4-clients", func(b *testing.B) { u.submissions(b, 4) })
			b.Run("submit-arrays", u.arrays)
			b.Run("submit-50000", u.bigArray)
			b.Run("submit-to-exec", u.latency)
			b.Run("2000-jobs", u.throughput)
			b.Run("list-10000", u.listing)
			b.Run("idle", u.idle)
		})
	}
}

// subject is a scheduler under measurement.
type subject struct {
	dir string // of the jobs
	env []string
	bin string // folder of its commands; "": in PATH
	pid func() []int
}

func realSlurm(t testing.TB) *subject { return startOracle(t).subject() }

func (o *oracle) subject() *subject {
	return &subject{dir: filepath.Join(o.dir, "work"), env: o.env, pid: func() (pids []int) {
		for _, n := range []string{"slurmctld", "slurmd"} {
			out, _ := exec.Command("pgrep", "-f", n+".*"+o.dir).Output()
			for _, f := range strings.Fields(string(out)) {
				p, _ := strconv.Atoi(f)
				pids = append(pids, p)
			}
		}
		return pids
	}}
}

func musterAsSlurm(t testing.TB) *subject {
	dir, err := os.MkdirTemp("", "mus")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	bin := filepath.Join(dir, "muster")
	_, here, _, _ := runtime.Caller(0)                                       // a test may run in another folder
	for _, name := range []string{"muster", "muster-shim", "muster-slurm"} { // as make build does
		cmd := exec.Command("go", "build", "-o", filepath.Join(dir, name), "../cmd/"+name)
		cmd.Dir, cmd.Env = filepath.Dir(here), os.Environ()
		if name != "muster" {
			cmd.Env = append(cmd.Env, "CGO_ENABLED=0")
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	return serveAsSlurm(t, bin)
}

// serveAsSlurm starts a daemon, and makes Slurm's commands for it.
func serveAsSlurm(t testing.TB, bin string) *subject {
	dir, err := os.MkdirTemp("", "mus")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	u := &subject{dir: filepath.Join(dir, "work"), bin: filepath.Join(dir, "bin"),
		env: append(os.Environ(), "MUSTER_SOCKET="+dir+"/s")}
	if err := os.Mkdir(u.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(bin, "slurm", "install", u.bin).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	// 64 cores, as Slurm's node claims to have.
	cmd := exec.Command(bin, "serve", "--gpus", "sim:8xH100-80GB", "--cpus", "64", "--state", dir+"/state", "--socket",
		dir+"/s")
	log, err := os.Create(dir + "/log")
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr, cmd.Env = log, u.env
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		u.run(t, "scancel", "-u", me(t)) // its jobs would outlive it
		for i := 0; i < 200 && u.run(t, "squeue", "-h") != ""; i++ {
			time.Sleep(50 * time.Millisecond)
		}
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	u.pid = func() []int { return []int{cmd.Process.Pid} }
	for i := 0; ; i++ {
		if _, err := os.Stat(dir + "/s"); err == nil {
			return u
		}
		if i == 500 {
			t.Fatal("muster serve does not listen")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (u *subject) run(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, _ := u.runTimed(t, name, args...)
	return out
}

// runTimed also returns the processor time that the command took.
func (u *subject) runTimed(t testing.TB, name string, args ...string) (string, time.Duration) {
	t.Helper()
	cmd := exec.Command(filepath.Join(u.bin, name), args...)
	if u.bin == "" {
		cmd = exec.Command(name, args...)
	}
	cmd.Dir, cmd.Env = u.dir, u.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return strings.TrimSpace(string(out)), cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
}

// drain waits until the queue is empty.
func (u *subject) drain(t testing.TB) {
	for range 6000 {
		if u.run(t, "squeue", "-h") == "" {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatal("the queue does not empty")
}

const submissions = 100

// submissions measures durable submissions per second.
func (u *subject) submissions(b *testing.B, clients int) {
	for range b.N {
		r := u.submit(b, clients)
		b.ReportMetric(r.perSecond, "jobs/s")
		b.ReportMetric(r.client, "client-ms")
		b.ReportMetric(r.daemons, "daemon-ms")
	}
}

// round is the time of a hundred submissions.
type round struct {
	perSecond       float64
	client, daemons float64 // processor time of one submission, in milliseconds
}

func (u *subject) submit(t testing.TB, clients int) round {
	var wg sync.WaitGroup
	var took atomic.Int64
	before, start := u.ticks(), time.Now()
	for range clients {
		wg.Go(func() {
			for range submissions / clients {
				_, d := u.runTimed(t, "sbatch", "--hold", "-o", "/dev/null", "--wrap", "true")
				took.Add(int64(d))
			}
		})
	}
	wg.Wait()
	r := round{submissions / time.Since(start).Seconds(), float64(took.Load()) / 1e6 / submissions,
		float64(u.ticks()-before) * 10 / submissions}
	u.run(t, "scancel", "-u", me(t))
	u.drain(t)
	return r
}

// BenchmarkInTurns compares submissions with those to a real Slurm while the machine has other work: rounds of a
// hundred, alternating, the medians of nine. MUSTER_BESIDE is another muster to compare with, such as an earlier
// build (its muster-slurm must be in the same folder).
func BenchmarkInTurns(b *testing.B) {
	subjects := map[string]*subject{"slurm": realSlurm(b), "muster": musterAsSlurm(b)}
	if bin := os.Getenv("MUSTER_BESIDE"); bin != "" {
		subjects["before"] = serveAsSlurm(b, bin)
	}
	for range b.N {
		got := map[string][]round{}
		for range 9 {
			for _, clients := range []int{1, 4} {
				for name, u := range subjects {
					key := fmt.Sprintf("%s-%d", name, clients)
					got[key] = append(got[key], u.submit(b, clients))
				}
			}
		}
		for key, rounds := range got {
			for unit, of := range map[string]func(round) float64{"jobs/s": func(r round) float64 { return r.perSecond },
				"client-ms": func(r round) float64 {
					return r.client
				}, "daemon-ms": func(r round) float64 { return r.daemons }} {
				slices.SortFunc(rounds, func(a, b round) int { return cmp.Compare(of(a), of(b)) })
				b.ReportMetric(of(rounds[len(rounds)/2]), key+":"+unit)
			}
		}
	}
}

// arrays measures submissions of a hundred jobs at once.
func (u *subject) arrays(b *testing.B) {
	for range b.N {
		start := time.Now()
		for range 50 {
			u.run(b, "sbatch", "--hold", "--array=0-99", "-o", "/dev/null", "--wrap", "true")
		}
		b.ReportMetric(50*100/time.Since(start).Seconds(), "jobs/s")
		u.run(b, "scancel", "-u", me(b))
		u.drain(b)
	}
}

// bigArray measures the submission of one array of 50,000 jobs, its memory, and its cancellation.
func (u *subject) bigArray(b *testing.B) {
	for range b.N {
		used, start := u.memory(), time.Now()
		u.run(b, "sbatch", "--hold", "--array=0-49999", "-o", "/dev/null", "--wrap", "true")
		b.ReportMetric(time.Since(start).Seconds()*1000, "ms")
		b.ReportMetric((u.memory()-used)*(1<<20)/50_000, "B/job")
		start = time.Now()
		u.run(b, "scancel", "-u", me(b))
		b.ReportMetric(time.Since(start).Seconds()*1000, "cancel-ms")
		u.drain(b)
	}
}

// latency measures from before sbatch is executed until the job's first command.
func (u *subject) latency(b *testing.B) {
	for range b.N {
		var ms []float64
		for i := range 50 {
			file := fmt.Sprintf("start-%d", i)
			before := time.Now().UnixNano()
			u.run(b, "sbatch", "-o", "/dev/null", "--wrap", "date +%s%N > "+file+".new; mv "+file+".new "+file)
			for {
				if text, err := os.ReadFile(filepath.Join(u.dir, file)); err == nil {
					at, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
					if err != nil {
						b.Fatal(err)
					}
					ms = append(ms, float64(at-before)/1e6)
					break
				}
				time.Sleep(time.Millisecond)
			}
		}
		slices.Sort(ms)
		b.ReportMetric(ms[len(ms)/2], "p50-ms")
		b.ReportMetric(ms[len(ms)-1], "max-ms")
		u.drain(b)
	}
}

// throughput measures two arrays of a thousand short jobs, from the first
// submission to the last end.
func (u *subject) throughput(b *testing.B) {
	for range b.N {
		start := time.Now()
		for range 2 {
			u.run(b, "sbatch", "--array=0-999", "-n", "1", "-o", "/dev/null", "--wrap", "true")
		}
		u.drain(b)
		b.ReportMetric(2000/time.Since(start).Seconds(), "jobs/s")
	}
}

// listing measures squeue over ten thousand waiting jobs.
func (u *subject) listing(b *testing.B) {
	for range 10 {
		u.run(b, "sbatch", "--hold", "--array=0-999", "-o", "/dev/null", "--wrap", "true")
	}
	b.ResetTimer()
	for range b.N {
		start := time.Now()
		if n := strings.Count(u.run(b, "squeue", "-h", "-r"), "\n") + 1; n != 10_000 {
			b.Fatalf("%d jobs are listed", n)
		}
		b.ReportMetric(float64(time.Since(start).Milliseconds()), "ms")
		b.ReportMetric(u.memory(), "MiB")
	}
	u.run(b, "scancel", "-u", me(b))
	u.drain(b)
}

// memory is what the daemons hold, in MiB.
func (u *subject) memory() (mib float64) {
	for _, pid := range u.pid() {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if _, rest, ok := strings.Cut(string(text), "VmRSS:"); ok {
			kib, _ := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			mib += kib / 1024
		}
	}
	return mib
}

// idle measures the processor time of daemons that have nothing to do.
func (u *subject) idle(b *testing.B) {
	for range b.N {
		before, start := u.ticks(), time.Now()
		time.Sleep(5 * time.Second)
		b.ReportMetric(float64(u.ticks()-before)/100/time.Since(start).Seconds()*100, "%core")
		b.ReportMetric(u.memory(), "MiB")
	}
}

// ticks is the daemons' processor time in hundredths of a second.
func (u *subject) ticks() (n int64) {
	for _, pid := range u.pid() {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if i := strings.LastIndexByte(string(text), ')'); i > 0 {
			f := strings.Fields(string(text)[i+1:])
			for _, k := range []int{11, 12} {
				v, _ := strconv.ParseInt(f[k], 10, 64)
				n += v
			}
		}
	}
	return n
}
