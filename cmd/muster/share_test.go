//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// shares starts a daemon with a configuration of how GPUs are shared.
func shares(t *testing.T, gpus, sharing string) *daemon {
	t.Helper()
	d := withConfig(t, gpus, sharingRules(sharing))
	d.start()
	return d
}

func sharingRules(sharing string) string { return "sharing: " + sharing + "\nsample_every: 100ms\n" }

// stand is the path of a program of testdata.
func stand(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// pidIn reads a number from a file of a GPU's pipe folder; 0: there is none.
func (d *daemon) pidIn(gpu int, name string) int {
	text, err := os.ReadFile(filepath.Join(d.dir, "state", "mps", fmt.Sprintf("GPU-simulated-%d", gpu), "pipe", name))
	if err != nil {
		return 0
	}
	pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return pid
}

// knowsServer reports whether the service has noted that this process is the server of GPU 0.
func (d *daemon) knowsServer(pid int) bool {
	return strings.Contains(d.read(filepath.Join("state", "mps", "GPU-simulated-0", "servers.json")),
		fmt.Sprintf(`"pid":%d,`, pid))
}

// Shares under MPS: a control daemon for their GPU, which outlives the service, is
// started again when it ends, and the limits of each client. A fault of the server
// hits all that are on the GPU: they start again. The control program is played.
func TestMPS(t *testing.T) {
	t.Parallel()
	d := shares(t, "2xH100-80GB", "{shares: mps, mps_program: "+stand(t, "mps-control")+"}")
	d.endMPS(2)
	client := stand(t, "mps-client")
	out := filepath.Join(d.dir, "out")
	d.want(d.must("submit", "--gpus", "0.25", "-o", out, "--", client),
		"gets a share: enforced: memory by MPS; compute by MPS")
	d.must("submit", "--gpu-cores", "30%", "--gpu-mem", "8GiB", "-e", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=20", "-o",
		out+"2", "--", client)
	d.must("submit", "--gpus", "1", "-o", out+"3", "--", "sh", "-c", "env; sleep 1000")
	text := func(name string) string { b, _ := os.ReadFile(name); return string(b) }
	server := 0
	d.eventually("two clients have a server", func() bool {
		server = d.pidIn(0, "server")
		return server > 0 && strings.Contains(text(out), "CUDA_MPS_PIPE") &&
			strings.Contains(text(out+"2"), "CUDA_MPS_PIPE")
	})
	d.want(text(out), "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25\n", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=20480M\n")
	d.want(text(out+"2"), "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=20\n", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=8192M\n")
	d.eventually("the third has a whole GPU", func() bool {
		return strings.Contains(text(out+"3"), "CUDA_VISIBLE_DEVICES=GPU-simulated-1")
	})
	if strings.Contains(text(out+"3"), "CUDA_MPS") {
		t.Errorf("who has a whole GPU is no client of MPS:\n%s", text(out+"3"))
	}
	if text, code := d.try("submit", "--gpus", "2", "--gpu-cores", "30%", "--", "true"); code == 0 ||
		!strings.Contains(text, "gpus: shares of 2 GPUs: under MPS each GPU has a server of its own") ||
		!strings.Contains(text, "ask for whole GPUs, or for 2 tasks") {
		t.Errorf("a part of two GPUs: %d %s", code, text)
	}

	control := d.pidIn(0, "nvidia-cuda-mps-control.pid")
	d.kill()
	d.start()
	d.untilSays("running", "queue")
	time.Sleep(3 * time.Second) // longer than the service takes to look after it
	if now := d.pidIn(0, "nvidia-cuda-mps-control.pid"); now != control {
		t.Errorf("the control daemon of the service before is %d, now %d", control, now)
	}
	_ = syscall.Kill(control, syscall.SIGKILL)
	d.eventually("the control daemon is started again", func() bool {
		now := d.pidIn(0, "nvidia-cuda-mps-control.pid")
		return now > 0 && now != control
	})

	d.eventually("the server is known", func() bool { return d.pidIn(0, "server") == server })
	fails := filepath.Join(d.dir, "fails")
	d.must("submit", "--gpus", "0.25", "--", "sh", "-c", "while [ ! -e "+fails+" ]; do sleep 0.1; done; exit 3")
	d.untilSays(`"state": "running"`, "show", "4")
	d.eventually("the service knows the server", func() bool { return d.knowsServer(server) })
	_ = syscall.Kill(server, syscall.SIGKILL)
	for _, id := range []string{"1", "2"} {
		d.untilSays(`"restarts": 1`, "show", id)
		d.untilSays("the MPS server of GPU 0 failed; jobs "+map[string]string{"1": "2", "2": "1"}[id]+
			", 4 were on it, too", "history", id)
	}
	time.Sleep(12 * time.Second) // longer than a fault is the reason of failures
	if err := os.WriteFile(fails, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d.untilSays(`"state": "failed"`, "show", "4")
	d.want(d.must("show", "4"), `"exit_code": 3`, `"restarts": 0`)
	d.must("cancel", "1", "2", "3")
}

// A server that ends while the service is down, too: what its clients ended by is its fault,
// however long ago that was. A job that fails meanwhile on another GPU fails by itself.
func TestMPSFaultWhileDown(t *testing.T) {
	t.Parallel()
	d := shares(t, "2xH100-80GB", "{shares: mps, mps_program: "+stand(t, "mps-control")+"}")
	d.endMPS(2)
	client := stand(t, "mps-client")
	d.must("submit", "--gpus", "0.5", "--", client)
	d.must("submit", "--gpus", "0.5", "--", client)
	d.must("submit", "--gpus", "0.5", "--", client)
	fails := filepath.Join(d.dir, "fails")
	d.must("submit", "--gpus", "0.5", "--", "sh", "-c", "while [ ! -e "+fails+" ]; do sleep 0.1; done; exit 3")
	server := 0
	d.eventually("the service knows the server", func() bool {
		server = d.pidIn(0, "server")
		return server > 0 && d.knowsServer(server)
	})
	for _, id := range []string{"1", "2", "3"} {
		d.untilSays("on server ", "logs", id)
	}
	d.untilSays(`"state": "running"`, "show", "4")
	d.kill()
	_ = syscall.Kill(server, syscall.SIGKILL)
	if err := os.WriteFile(fails, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	time.Sleep(13 * time.Second) // longer than clients take to fail with their server
	d.start()
	for _, id := range []string{"1", "2"} {
		d.untilSays(`"restarts": 1`, "show", id)
		d.want(d.must("history", id),
			"the MPS server of GPU 0 failed; job "+map[string]string{"1": "2", "2": "1"}[id]+" was on it, too")
	}
	d.untilSays(`"state": "failed"`, "show", "4")
	d.want(d.must("show", "4"), `"exit_code": 3`, `"restarts": 0`)
	d.want(d.must("show", "3"), `"state": "running"`, `"restarts": 0`)
	d.must("cancel", "1", "2", "3")
}

// A job says what has to be kept apart, and gets the least that does.
func TestIsolation(t *testing.T) {
	t.Parallel()
	d := shares(t, "2xA100-80GB/0:3g.40gb@0,2g.20gb@4,1g.10gb@6", "{shares: time-slicing}")
	for _, c := range [][]string{
		{"--gpus 0.25", "gets a share: declared only: neither memory nor compute is enforced"},
		{"--gpus 0.25 --isolation full", "gets 2g.20gb, for isolation full: enforced: memory and compute by the GPU"},
		{"--gpus 0.1 --gpu-mem 30GiB --isolation memory", "gets 3g.40gb, for isolation memory: enforced"},
		{"--gpus 0.1 --latency-sensitive", "gets 1g.10gb, for a job that cannot wait for turns: enforced"},
		{"--gpus 0.6 --isolation full",
			"gets a whole GPU, for isolation full: this machine has no way to keep it apart on a part of one"},
		{"--gpu-mem 20GiB", "gets a share: declared only"},
	} {
		d.want(d.must(append(append([]string{"submit"}, strings.Fields(c[0])...), "--", "sleep", "1000")...), c[1])
	}
	d.want(d.must("show", "6"), `"share": 250`)
	d.want(d.must("why", "2"),
		"gets 2g.20gb, for isolation full: enforced: memory and compute by the GPU (on a real one: nothing is enforced on a simulated GPU)")
	if text := d.must("why", "1"); strings.Contains(text, "simulated GPU") {
		t.Errorf("a share of which nothing is enforced anyway: %s", text)
	}
	d.untilSays("6    0.25", "queue", "-o", "job,gpus")
	d.want(d.must("queue", "-o", "job,gpus"), "2    2g.20gb")
	d.want(d.must("why", "2"), "a 2g.20gb slice on ")
	d.want(d.must("why", "6"), "0.25 of a GPU on ")
	if text, code := d.try("submit", "--gpus", "0.5", "--isolation", "total", "--", "true"); code == 0 ||
		!strings.Contains(text, `isolation: expected value to be one of "none, memory, full"`) {
		t.Errorf("a wrong isolation: %d %s", code, text)
	}
}

// Under antman with measured memory a best-effort job comes beside one of which nothing
// was known, as far as that is measured to leave memory, and leaves when it needs more.
// One that uses more than it asked for is found. The driver's list of processes is played.
func TestMeasuredMemory(t *testing.T) {
	t.Parallel()
	const policy = "antman:memory=measured,check=1s"
	d := withConfig(t, "1xH100-80GB",
		"policy: '"+policy+"'\nsharing: {over_memory: warn}\nsample_every: 100ms\nperformance: {pairs: {'*/*': 0.99}}\n")
	d.policy = policy
	d.start()
	run := func(n string, more ...string) (pid string) {
		file := filepath.Join(d.dir, "pid"+n)
		d.must(append(append([]string{"submit"}, more...), "--gpus", "1", "--", "sh", "-c",
			"echo $$ >"+file+".new; mv "+file+".new "+file+"; exec sleep 1000")...)
		d.eventually(n+" runs", func() bool {
			b, _ := os.ReadFile(file)
			pid = strings.TrimSpace(string(b))
			return pid != "" || n == "2"
		})
		return pid
	}
	first := run("1")
	run("2", "--tier", "best-effort", "--gpu-mem", "8GiB")
	d.want(d.must("show", "2"), `"state": "pending"`)
	d.play("0 50 20000 " + first + " 20000\n")
	second := ""
	d.eventually("the second is beside it", func() bool {
		b, _ := os.ReadFile(filepath.Join(d.dir, "pid2"))
		second = strings.TrimSpace(string(b))
		return second != ""
	})
	d.play("0 50 20000 " + first + " 20000\n0 50 30000 " + second + " 9000\n")
	d.untilSays("uses 9000 MiB of a GPU beside another job, it asked for 8192", "history", "2")
	d.play("0 50 75000 " + first + " 75000\n")
	d.untilSays(`"preemptions": 1`, "show", "2")
	d.want(d.must("show", "1"), `"preemptions": 0`)
	d.must("cancel", "1", "2")
}

// A share that fits beside one who is leaving the GPU starts at once; one that needs what that one
// has waits for it, and says so.
func TestShareBesideLeaver(t *testing.T) {
	t.Parallel()
	d := shares(t, "1xH100-80GB", "{shares: time-slicing}\nkill_wait: 10m")
	deaf, leave := filepath.Join(d.dir, "deaf"), filepath.Join(d.dir, "leave")
	d.must("submit", "-o", "/dev/null", "--tier", "best-effort", "--gpus", "0.5", "--", "sh", "-c",
		"trap '' TERM; : >"+deaf+"; until [ -e "+leave+" ]; do sleep 0.2; done")
	d.eventually("it is deaf", func() bool { _, err := os.Stat(deaf); return err == nil })
	d.must("cancel", "1")
	d.must("submit", "-o", "/dev/null", "--gpus", "0.5", "--", "sleep", "1000")
	d.untilSays(`"state": "running"`, "show", "2")
	d.want(d.must("show", "1"), `"state": "stopping"`)
	d.must("submit", "-o", "/dev/null", "--gpus", "0.5", "--", "sleep", "1000")
	d.want(d.must("why", "3", "--json"), "has 0.5 of a GPU on ", "waits for job 1 sh to leave GPU 0")
	d.want(d.must("show", "1"), `"state": "stopping"`)
	d.write("leave", "")
	d.untilSays(`"state": "running"`, "show", "3")
	d.must("cancel", "2", "3")
}

// Without MPS, too, what a share may use of a GPU's memory is kept for it: nobody with a larger
// memory of its own comes beside it, nor it beside one.
func TestShareMemoryKept(t *testing.T) {
	t.Parallel()
	d := shares(t, "1xH100-80GB", "{shares: time-slicing}")
	submit := func(args ...string) {
		d.must(append(append([]string{"submit", "-o", "/dev/null"}, args...), "--", "sleep", "1000")...)
	}
	submit("--gpus", "0.25")
	submit("--gpus", "0.25", "--gpu-mem", "61GiB")
	d.untilSays("needs 0.25 of a GPU with 62464 MiB of its memory; no GPU has that left", "why", "2")
	submit("--gpus", "0.25", "--gpu-mem", "50GiB")
	submit("--gpus", "0.25")
	d.untilSays("needs 0.25 of a GPU with 20480 MiB of its memory; no GPU has that left", "why", "4")
	d.untilSays(`"state": "running"`, "show", "3")
	d.must("cancel", "1")
	d.untilSays(`"state": "running"`, "show", "4")
	d.must("cancel", "2", "3", "4")
}

// A job that uses more memory of a GPU than its share's, where nothing enforces that, is
// told, or stopped, as the operator says. The driver's list of processes is played.
func TestOverMemory(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"warn", "stop", "throttle"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			d := shares(t, "1xH100-80GB", "{shares: time-slicing, over_memory: "+what+"}")
			pidfile := filepath.Join(d.dir, "pid")
			d.must("submit", "--gpus", "0.25", "--gpu-mem", "8GiB", "--", "sh", "-c",
				"echo $$ >"+pidfile+".new; mv "+pidfile+".new "+pidfile+"; exec sleep 1000")
			pid := ""
			d.eventually("it runs", func() bool {
				b, _ := os.ReadFile(pidfile)
				pid = strings.TrimSpace(string(b))
				return pid != ""
			})
			use := func(mib string) { d.play("0 50 9000 " + pid + " " + mib + "\n") }
			use("8192")
			time.Sleep(500 * time.Millisecond)
			if strings.Contains(d.must("history", "1"), "its share has") {
				t.Error("it uses no more than its share")
			}
			use("9000")
			d.untilSays("uses 9000 MiB of a GPU, its share has 8192", "history", "1")
			state := func() string {
				b, _ := os.ReadFile("/proc/" + pid + "/stat")
				_, rest, _ := strings.Cut(string(b), ") ")
				return rest[:min(1, len(rest))]
			}
			switch what {
			case "stop":
				d.untilSays(`"state": "cancelled"`, "show", "1")
				d.want(d.must("show", "1"), "its share has 8192: it was stopped")
				return
			case "throttle":
				d.eventually("it stands still", func() bool { return state() == "T" })
				d.eventually("it goes on", func() bool { return state() == "S" })
				d.eventually("it stands still again", func() bool { return state() == "T" })
				use("100")
				d.eventually("it goes on", func() bool { return state() == "S" })
			}
			d.want(d.must("show", "1"), `"state": "running"`)
			d.must("cancel", "1")
		})
	}
}

// Each task of a gang has the memory of its own share, what is not said is the share's part of the
// GPU's, and a job with two shares of a GPU is on it once.
func TestOverMemoryByTask(t *testing.T) {
	t.Parallel()
	d := shares(t, "1xH100-80GB", "{shares: time-slicing, over_memory: stop}")
	pids := func(name string, n int) (list []string) {
		d.eventually("they run", func() bool { list = strings.Fields(d.read(name)); return len(list) == n })
		return list
	}
	run := func(name string, more ...string) string {
		return d.must(append(append([]string{"submit"}, more...), "--", "sh", "-c",
			"echo $$ >>"+filepath.Join(d.dir, name)+"; exec sleep 1000")...)
	}
	use := func(of ...string) { // a process and its MiB
		text := ""
		for _, p := range of {
			text += "0 50 60000 " + p + "\n"
		}
		d.play(text)
	}
	if text := run("gang", "--tasks", "2", "--gpus", "0.25", "--gpu-mem", "8GiB"); strings.Contains(text, "0,0") {
		t.Errorf("one GPU is named twice: %s", text)
	}
	gang := pids("gang", 2)
	run("quarter", "--gpus", "0.25")
	quarter := pids("quarter", 1)
	if text := d.must("nodes"); strings.Contains(text, "1,1") || !strings.Contains(text, "1,2") {
		t.Errorf("a job is named twice: %s", text)
	}
	use(gang[0]+" 6000", gang[1]+" 6000", quarter[0]+" 20480")
	time.Sleep(500 * time.Millisecond)
	for _, id := range []string{"1", "2"} {
		d.want(d.must("show", id), `"state": "running"`)
	}
	use(gang[0]+" 6000", gang[1]+" 6000", quarter[0]+" 70000")
	d.untilSays(`"state": "cancelled"`, "show", "2")
	d.want(d.must("show", "2"), "uses 70000 MiB of a GPU, its share has 20480: it was stopped")
	use(gang[0]+" 6000", gang[1]+" 9000")
	d.untilSays(`"state": "cancelled"`, "show", "1")
	out := d.must("show", "1")
	if d.want(out, "uses 9000 MiB of a GPU, its share has 8192: it was stopped"); !strings.Contains(out,
		"task 0 uses") && !strings.Contains(out, "task 1 uses") {
		t.Errorf("which task it was is not said: %s", out)
	}
}

// Where Muster partitions GPUs, instances are made as jobs ask for them, and those in
// the way of others go when no job is on them; a GPU is whole again for the job that needs it
// whole. The service may die in between.
func TestDynamicMIG(t *testing.T) {
	t.Parallel()
	d := shares(t, "2xH100-80GB", "{mig: dynamic}")
	out := func(id int) string {
		b, _ := os.ReadFile(filepath.Join(d.dir, fmt.Sprintf("out%d", id)))
		return string(b)
	}
	submit := func(id int, what string) {
		t.Helper()
		d.must("submit", "--gpus", what, "-o", filepath.Join(d.dir, fmt.Sprintf("out%d", id)), "--", "sh", "-c",
			"env; exec sleep 1000")
	}
	sees := func(id int, device string) {
		t.Helper()
		d.eventually(fmt.Sprintf("job %d sees %s", id, device), func() bool {
			return strings.Contains(out(id), "CUDA_VISIBLE_DEVICES="+device+"\n")
		})
	}
	submit(1, "3g.40gb")
	sees(1, "MIG-simulated-0-3g.40gb-4")
	submit(2, "4g.40gb")
	sees(2, "MIG-simulated-0-4g.40gb-0")
	submit(3, "1")
	sees(3, "GPU-simulated-1")
	d.untilSays("4g.40gb@0: job 2", "nodes")
	d.kill()
	d.start()
	d.want(d.must("show", "2"), `"uuid": "MIG-simulated-0-4g.40gb-0"`)
	d.ends(2)
	for id := 4; id <= 6; id++ { // where the 4g was
		submit(id, "1g.10gb")
		sees(id, fmt.Sprintf("MIG-simulated-0-1g.10gb-%d", 7-id))
	}
	d.untilSays("1g.10gb@3: job 4", "nodes")
	if text := d.must("nodes"); strings.Contains(text, "4g.40gb") || !strings.Contains(text, "3g.40gb@4: job 1") {
		t.Errorf("the 4g should be gone, the 3g in use should not:\n%s", text)
	}
	d.ends(3)
	submit(7, "7g.80gb")
	sees(7, "MIG-simulated-1-7g.80gb-0")
	d.ends(7)
	submit(8, "1")
	sees(8, "GPU-simulated-1")
	d.want(d.must("submit", "--gpus", "0.25", "--isolation", "full", "--", "sleep", "1000"),
		"gets 2g.20gb, for isolation full")
}

// ends cancels a job and waits until it has gone.
func (d *daemon) ends(id int) {
	d.t.Helper()
	d.must("cancel", strconv.Itoa(id))
	_, _ = d.try("wait", strconv.Itoa(id)) // it answers with the job's exit code
}

// GPUs in MIG mode get instances as jobs ask for them, the others stay whole.
func TestInstancesMIG(t *testing.T) {
	t.Parallel()
	d := shares(t, "2xH100-80GB/1:*", "{mig: instances}")
	for i, c := range [][2]string{{"1", "GPU-simulated-0"}, {"3g.40gb", "MIG-simulated-1-3g.40gb-4"}} {
		out := filepath.Join(d.dir, fmt.Sprintf("out%d", i))
		d.must("submit", "--gpus", c[0], "-o", out, "--", "sh", "-c", "env; exec sleep 1000")
		d.eventually(c[1], func() bool {
			b, _ := os.ReadFile(out)
			return strings.Contains(string(b), "CUDA_VISIBLE_DEVICES="+c[1]+"\n")
		})
	}
	d.want(d.must("submit", "--gpus", "1", "--", "true"), "waiting")
	if text := d.must("nodes"); strings.Contains(text, "unhealthy") {
		t.Error(text)
	}
}
