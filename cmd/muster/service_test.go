//go:build linux

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/internal/netlab"
	"github.com/muster-gpu/muster/show"
)

// servingTest is a daemon that runs services, with the gateway beside it. The models are real, on the CPU; only
// the GPUs are simulated.
type servingTest struct {
	*daemon
	url     string
	gateway *exec.Cmd
	ports   string // of replicas
}

// somePorts are where the replicas of the next daemon answer; each has some of its own.
var somePorts atomic.Int64

func startServing(t testing.TB, gpus string, settings ...string) *servingTest {
	t.Helper()
	needsModels(t)
	d := prepareDaemon(t, gpus)
	first := 31000 + 50*somePorts.Add(1)
	conf := filepath.Join(d.dir, "muster.yaml")
	ports := fmt.Sprintf("%d-%d", first, first+49)
	text := "kill_wait: 1s\nservices: {ports: " + ports + ", period: 1s}\n" + strings.Join(settings, "")
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	d.args = []string{"--config", conf}
	d.start()
	s := &servingTest{daemon: d, ports: ports}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.url = "http://" + l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.killGateway)
	s.startGateway()
	return s
}

// noTorch says, once for all tests, whether PyTorch is missing.
var noTorch = sync.OnceValue(netlab.NoTorch)

// needsModels fails, or skips outside of CI, without what the example's models need.
func needsModels(t testing.TB) {
	t.Helper()
	if err := noTorch(); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("python3-torch is missing: scripts/install-test-deps.sh installs it")
		}
		t.Skip("needs python3-torch")
	}
}

func (s *servingTest) startGateway() {
	s.t.Helper()
	s.gateway = exec.Command(filepath.Join(filepath.Dir(s.bin), gatewayProgram), "--dir",
		filepath.Join(s.dir, "state", "gateway"), "--listen", strings.TrimPrefix(s.url, "http://"))
	s.gateway.Stderr = &s.log
	if err := s.gateway.Start(); err != nil {
		s.t.Fatal(err)
	}
}

func (s *servingTest) killGateway() {
	_ = s.gateway.Process.Signal(syscall.SIGKILL)
	_ = s.gateway.Wait()
}

// apply applies a service with a small model.
func (s *servingTest) apply(name, more string, args ...string) {
	s.t.Helper()
	s.applyAs(name, more, "{batch: 1, latency: 5ms}, {batch: 16, latency: 10ms}", args...)
}

// applyAs applies a service with a small model that is said to have a profile.
func (s *servingTest) applyAs(name, more, profile string, args ...string) {
	s.t.Helper()
	s.want(s.must("service", "apply", s.file(name, more, profile, args...)), "service "+name)
}

// applyChanged applies a service with a small model in whose file texts are replaced (old, new, ...).
func (s *servingTest) applyChanged(name, more, profile string, oldnew ...string) {
	s.t.Helper()
	file := s.file(name, more, profile)
	text := strings.NewReplacer(oldnew...).Replace(s.read(filepath.Base(file)))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	s.must("service", "apply", file)
}

// applyExample applies one of the examples, whose programs are found wherever it runs, with texts of it replaced (old,
// new, ...).
func (s *servingTest) applyExample(name string, oldnew ...string) {
	s.t.Helper()
	wd, err := os.Getwd()
	if err != nil {
		s.t.Fatal(err)
	}
	root := filepath.Join(wd, "..", "..")
	text, err := os.ReadFile(filepath.Join(root, "examples", "serving", name))
	if err != nil {
		s.t.Fatal(err)
	}
	path := filepath.Join(s.dir, name)
	whole := strings.ReplaceAll(string(text), "examples/", filepath.Join(root, "examples")+"/")
	// a replica that does not answer is given up after a multiple of that
	whole = strings.ReplaceAll(whole, "startup: 10s", "startup: 1m")
	whole = strings.NewReplacer(oldnew...).Replace(whole)
	if err := os.WriteFile(path, []byte(whole), 0o600); err != nil {
		s.t.Fatal(err)
	}
	s.must("service", "apply", path)
}

// refuses expects that a service with a small model is not run.
func (s *servingTest) refuses(name, more, why string) {
	s.t.Helper()
	out, code := s.try("service", "apply", s.file(name, more, "{batch: 1, latency: 5ms}"))
	if s.want(out, why); code == 0 {
		s.t.Errorf("exit code 0: %s", out)
	}
}

// file writes the file of a service with a small model.
func (s *servingTest) file(name, more, profile string, args ...string) string {
	s.t.Helper()
	wd, err := os.Getwd()
	if err != nil {
		s.t.Fatal(err)
	}
	command, err := json.Marshal(append([]string{"/usr/bin/python3",
		filepath.Join(wd, "..", "..", "examples", "serving", "matrix.py"), "--numpy", "--width", "128"}, args...))
	if err != nil {
		s.t.Fatal(err)
	}
	text := fmt.Sprintf(`
name: %s
latency: 5s
%s
variants:
  - {name: small, command: %s, startup: 5s, profile: [%s]}
`, name, more, command, profile)
	path := filepath.Join(s.dir, name+".yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return path
}

func (s *servingTest) show(name string) (v api.Service) {
	s.t.Helper()
	v, err := s.api().Service(s.t.Context(), name)
	if err != nil {
		s.t.Fatal(err)
	}
	return v
}

// answers waits until so many replicas of a service answer, and no others are there.
func (s *servingTest) answers(name string, n int) {
	s.t.Helper()
	s.eventually(fmt.Sprintf("%d replicas of %s answer, and no others are there", n, name), func() bool {
		v := s.show(name)
		return v.Answers == n && len(v.Replicas) == n
	})
}

const gatewayProgram = "muster-gateway"

const oneRow = `{"inputs":[{"name":"x","datatype":"FP32","shape":[1,8],"data":[1,2,3,4,5,6,7,8]}]}`

// ask sends a request and returns the answer's status and text.
func (s *servingTest) ask(name string) (int, string) {
	resp, err := http.Post(s.url+"/v2/models/"+name+"/infer", "application/json", strings.NewReader(oneRow))
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(body)
}

// load sends requests from several clients until it is ended, which returns how many were answered and what the others
// came to. A client waits before it asks again, so that the processors are not taken from all that answers.
func (s *servingTest) load(name string, clients int) (end func() (answered int, others map[string]int)) {
	return s.askAll(name, clients, 20*time.Millisecond)
}

// press is load of clients that do not wait.
func (s *servingTest) press(name string, clients int) (end func() (answered int, others map[string]int)) {
	return s.askAll(name, clients, 0)
}

func (s *servingTest) askAll(name string, clients int, pause time.Duration) func() (int, map[string]int) {
	var all sync.WaitGroup
	var mu sync.Mutex
	stop := make(chan struct{})
	answered, others := 0, map[string]int{}
	for range clients {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				status, text := s.ask(name)
				mu.Lock()
				if status == http.StatusOK {
					answered++
				} else {
					others[fmt.Sprintf("%d %.120s", status, text)]++
				}
				mu.Unlock()
				if status != http.StatusOK {
					time.Sleep(20 * time.Millisecond)
				}
				time.Sleep(pause)
			}
		})
	}
	return func() (int, map[string]int) {
		close(stop)
		all.Wait()
		return answered, others
	}
}

// TestService: a service answers through the gateway, survives the deaths of the daemon and of a replica under load,
// is changed without losing a request, and ends.
func TestService(t *testing.T) {
	t.Parallel()
	s := startServing(t, "4xH100-80GB")
	s.apply("vision", "replicas: {min: 2, max: 2}")
	s.answers("vision", 2)
	if status, body := s.ask("vision"); status != http.StatusOK || !strings.Contains(body, `"outputs"`) {
		t.Fatalf("%d %s", status, body)
	}
	s.want(s.must("service", "list"), "vision", "2 of 2", "latency 5s for 99 %")
	s.want(s.must("service", "show", "--json", "vision"), `"answers":2`)
	s.want(s.must("service", "logs", "vision"), "serving vision at port")

	end := s.load("vision", 8)
	s.kill() // the daemon: what it runs, and the gateway, go on
	time.Sleep(2 * time.Second)
	s.start()
	s.answers("vision", 2)
	before := s.show("vision").Replicas
	s.eventually("the last minute's requests are known", func() bool { return s.show("vision").Rate > 0 })
	s.apply("vision", "replicas: {min: 2, max: 2}", "--layers", "3")
	s.eventually("both replicas were replaced", func() bool {
		v := s.show("vision")
		return v.Answers == 2 && len(v.Replicas) == 2 && v.Replicas[0].Job > before[1].Job
	})
	answered, others := end()
	if answered == 0 || len(others) > 0 {
		t.Errorf("%d requests were answered, others: %v", answered, others)
	}

	end = s.load("vision", 4)
	first := s.show("vision").Replicas[0]
	s.killReplica(first.Port)
	s.eventually("another replica takes its place", func() bool {
		v := s.show("vision")
		return v.Answers == 2 && len(v.Replicas) == 2 && v.Replicas[0].Job > first.Job
	})
	answered, others = end()
	lost := 0
	for _, n := range others {
		lost += n
	}
	if answered == 0 || lost > 4 { // one client of each of the four was in the replica that was killed, at most
		t.Errorf("%d requests were answered, others: %v", answered, others)
	}
	s.want(s.must("service", "why", "vision"), fmt.Sprintf("job %d: ", first.Job))

	s.killGateway()
	s.eventually("the daemon says that there is no gateway", func() bool {
		return strings.Contains(s.must("service", "why", "vision"), "no gateway runs")
	})
	s.startGateway()
	s.eventually("it answers again", func() bool { status, _ := s.ask("vision"); return status == http.StatusOK })

	s.want(s.must("service", "scale", "vision", "1"), "from 1 to 1")
	s.answers("vision", 1)
	s.must("service", "delete", "vision")
	s.eventually("it is gone", func() bool { return strings.Contains(s.must("service", "list"), "no services") })
	s.eventually("its jobs are over", func() bool { return !strings.Contains(s.must("queue"), "vision") })
	if status, _ := s.ask("vision"); status != http.StatusNotFound {
		t.Errorf("status %d of a service that is gone", status)
	}
}

// killReplica kills the process that listens at a port.
func (s *servingTest) killReplica(port int) {
	s.t.Helper()
	out, err := exec.Command("pgrep", "-f", "(matrix|tokens)[.]py").Output()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, text := range strings.Fields(string(out)) {
		env, err := os.ReadFile(filepath.Join("/proc", text, "environ"))
		if err != nil || !bytes.Contains(env, []byte("\x00MUSTER_PORT="+strconv.Itoa(port)+"\x00")) {
			continue
		}
		pid, err := strconv.Atoi(text)
		if err != nil {
			s.t.Fatal(err)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			s.t.Fatal(err)
		}
		return
	}
	s.t.Fatalf("nothing is at port %d", port)
}

// TestServiceKilled: of the requests that the gateway, or a replica, has accepted, those at most are lost that are in
// the process when it is killed. While the gateway is started again its socket, which is another's, takes connections.
func TestServiceKilled(t *testing.T) {
	t.Parallel()
	s := startServing(t, "2xH100-80GB")
	s.killGateway()
	l, err := net.Listen("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	socket, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	_ = l.Close() // the file is another descriptor of it
	start := func() {
		s.gateway = exec.Command("sh", "-c", `LISTEN_FDS=1 LISTEN_PID=$$ exec "$@"`, "sh",
			filepath.Join(filepath.Dir(s.bin), gatewayProgram), "--dir", filepath.Join(s.dir, "state", "gateway"),
			"--listen", "none")
		s.gateway.Stderr, s.gateway.ExtraFiles = &s.log, []*os.File{socket}
		if err := s.gateway.Start(); err != nil {
			t.Fatal(err)
		}
	}
	start()
	s.apply("vision", "replicas: {min: 2, max: 2}")
	s.answers("vision", 2)
	s.eventually("it answers", func() bool { status, _ := s.ask("vision"); return status == http.StatusOK })
	const clients = 8
	for name, kill := range map[string]func(){
		"gateway": func() { s.killGateway(); time.Sleep(300 * time.Millisecond); start() },
		"daemon":  func() { s.kill(); time.Sleep(300 * time.Millisecond); s.start() },
		"replica": func() { s.killReplica(s.show("vision").Replicas[0].Port) },
	} {
		end := s.load("vision", clients)
		time.Sleep(time.Second)
		kill()
		time.Sleep(2 * time.Second)
		s.answers("vision", 2)
		answered, others := end()
		lost := 0
		for _, n := range others {
			lost += n
		}
		if most := map[string]int{"gateway": clients}[name]; answered < 20 || lost > most {
			t.Errorf("%s: %d requests were answered, %d lost of at most %d: %v", name, answered, lost, most, others)
		}
		t.Logf("%s: %d requests were answered, %d lost", name, answered, lost)
	}
}

// TestDashboardServices: the page of services shows replicas, reasons, load, latency against the goal, the size of
// batches, what requests cost, and to which job is lent.
func TestDashboardServices(t *testing.T) {
	t.Parallel()
	s := startServing(t, "2xH100-80GB")
	s.apply("vision", "replicas: {min: 1, max: 2}\nscaling: static:replicas=1\nlend: {within: 6s}")
	s.answers("vision", 1)
	borrower := strings.TrimSpace(s.must("submit", "--parsable", "--tier", "best-effort", "--gpus", "1", "--", "sleep",
		"1000"))
	b := signIn(t, s.daemon)
	b.visit("/services")
	b.Await("the service", has(".services th", "vision")+` && `+has(".services td", "1 of 1"))
	b.Await("its goal", has(".services td", "latency 5s for 99 %"))
	end := s.load("vision", 2)
	for _, c := range []struct {
		what  string
		cell  int
		looks string
	}{{"requests a second", 2, `^[1-9][0-9.,]*$`}, {"median", 3, ` (ms|s)$`},
		{"latency at the goal's percentile", 4, ` (ms|s)$`},
		{"part in time", 5, `^[0-9]+\.[0-9]{2} %$`}, {"batches", 6, `^[1-9][0-9.]*$`}, {"cost an hour", 7, `^1\.0$`},
		{"cost of 1000 requests", 8, `^(<0\.01|[0-9]+\.[0-9]+)$`}} {
		b.Await("its "+c.what, fmt.Sprintf(`[...document.querySelectorAll(".services tr")].some(r =>
			r.querySelector("th")?.textContent === "vision" && /%s/.test(r.querySelectorAll("td")[%d].textContent))`,
			c.looks, c.cell))
	}
	b.Await("its curves", `document.querySelectorAll(".chart canvas").length === 2`)
	b.Await("the latency beside the goal", has(".sub", "Latency that 99 % of the requests keep")+` && `+
		`[...document.querySelectorAll(".chart .canvas")].some(e => / m?s at the goal's percentile; the goal is `+
		`latency 5s for 99 %\.$/.test(e.getAttribute("aria-label")))`)
	b.Await("what it lends", has(".lends", "Lent until it is needed, to job "+borrower+"; back within 6.0 s."))
	b.Await("its replica", has(".slim td", "answers")+` && `+has(".slim td", "GPU 0"))
	end()
	b.Shoot("services")
	s.must("service", "delete", "vision")
	b.Await("that there are none", has(".services td", "No services"))
	b.Clean(s.url, b.base, "data:")
}

// TestServiceFromZero: without requests nothing runs; the first one starts a replica and is answered by it.
func TestServiceFromZero(t *testing.T) {
	t.Parallel()
	s := startServing(t, "1xH100-80GB")
	s.apply("vision", "replicas: {min: 0, max: 1}\nscaling: muster:idle=3s,window=3s")
	s.answers("vision", 0)
	status, body := 0, ""
	s.eventually("the gateway knows the service", func() bool {
		status, body = s.ask("vision")
		return status != 0 && status != http.StatusNotFound // 0: it does not listen yet
	})
	if status != http.StatusOK {
		t.Fatalf("%d %s", status, body)
	}
	s.answers("vision", 1)
	s.answers("vision", 0)
}

// TestServiceLends: GPUs that a service does not use are lent to training. A step in load takes them back within the
// time that the service says, also from a job that will not leave, while its latency holds; training goes on from its
// checkpoint once the service does not need the GPUs any more.
func TestServiceLends(t *testing.T) {
	t.Parallel()
	s := startServing(t, "3xH100-80GB", "stop: {best-effort: {how: checkpoint, grace: 1m}}\n")
	const lowest = "best-effort"
	s.must("submit", "--name", "training", "--tier", lowest, "--gpus", "1", "--", "sh", "-c", `
		n=$(cat "$MUSTER_CHECKPOINT_DIR/n" 2>/dev/null || echo 0)
		echo "from $n" >>runs
		trap 'echo $n >"$MUSTER_CHECKPOINT_DIR/n"; exit 0' USR1
		while :; do n=$((n+1)); sleep 0.05; done`)
	s.must("submit", "--name", "stubborn", "--tier", lowest, "--gpus", "1", "--", "sh", "-c",
		"trap '' USR1 TERM; while :; do sleep 0.2; done")
	s.eventually("training runs", func() bool { return s.read("runs") == "from 0\n" })
	s.refuses("vision", "replicas: {min: 1, max: 1}\nlend: {within: 1s}", "within 1s no job is sure to have left")
	s.applyAs("vision", "percentile: 95\nreplicas: {min: 1, max: 3}\nscaling: muster:window=3s\nlend: {within: 6s}",
		"{batch: 1, latency: 500ms}") // so a replica is expected to sustain 2 requests a second
	s.answers("vision", 1)
	if out := s.must("queue"); strings.Count(out, "running") != 3 {
		t.Errorf("training and a replica should run:\n%s", out)
	}
	s.eventually("it says which jobs have what it lends", func() bool {
		l := s.show("vision").Loans
		return l.Replicas == 2 && len(l.Jobs) == 2
	})
	s.want(s.must("service", "show", "vision"), "what 2 more replicas would hold, to 2 jobs; back within 6s")
	s.want(s.must("why", "1"), "service vision lends it GPUs until it needs them; then it has to leave within 6s")
	firm := strings.TrimSpace(s.must("submit", "--parsable", "--gpus", "1", "--", "sleep", "1000"))
	s.want(s.must("why", firm), "service vision lends 2 GPUs of H100-80GB, which only "+
		"best-effort and elastic jobs may have until it needs them: 0 GPUs left for others, 1 GPU asked")
	s.must("cancel", firm)
	end := s.press("vision", 2)
	s.answers("vision", 3)
	if answered, others := end(); answered == 0 || len(others) > 0 {
		t.Errorf("%d requests were answered, others: %v", answered, others)
	}
	v := s.show("vision")
	if l := v.Loans; l.Returns != 2 || l.Late != 0 || l.Longest > 6 || len(l.Jobs) != 0 {
		t.Errorf("%+v", l)
	}
	if v.Attainment < 0.95 || v.Quantile > 5 {
		t.Errorf("the latency did not hold: %.2f s, %.2f within the goal", v.Quantile, v.Attainment)
	}
	s.kill()
	s.start()
	if l := s.show("vision").Loans; l.Returns != 2 {
		t.Errorf("another daemon does not know how it was given back: %+v", l)
	}
	s.answers("vision", 1)
	s.eventually("training goes on from its checkpoint", func() bool {
		return strings.Count(s.read("runs"), "from ") == 2
	})
	if strings.Count(s.read("runs"), "from 0\n") != 1 {
		t.Errorf("it began again from nothing:\n%s", s.read("runs"))
	}
}

// onlyLate reports whether all others are answers that a busy machine gives: that there was no time for a request.
func onlyLate(others map[string]int) bool {
	for text := range others {
		if !strings.HasPrefix(text, "429 ") || !strings.Contains(text, "in time") {
			return false
		}
	}
	return true
}

// startSharing is startServing with shares of GPUs that are played: what computes there slows down what is beside it.
func startSharing(t *testing.T, gpus int) *servingTest {
	t.Helper()
	s := startServing(t, fmt.Sprintf("%dxH100-80GB", gpus),
		"sharing: {shares: mps, mps_program: "+stand(t, "mps-control")+"}\n")
	s.endMPS(gpus)
	return s
}

// applyShares applies a service whose only variant has its name, and has parts of GPUs that are played.
func (s *servingTest) applyShares(name string, replicas int) {
	s.t.Helper()
	more := fmt.Sprintf("replicas: {min: %d, max: %[1]d}\nscaling: static:replicas=%[1]d", replicas)
	s.applyChanged(name, more, "{batch: 1, latency: 700ms}, {batch: 2, latency: 700ms}", `["/usr/bin/python3",`,
		fmt.Sprintf(`["/usr/bin/python3",%q,%q,"serve",`, playedGPU(s.t), s.dir),
		"{name: small,", "{name: "+name+", share: 0.3,")
	s.answers(name, replicas)
}

// playedGPU is the path of a program that computes on a GPU that is played.
func playedGPU(t testing.TB) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("testdata", "onegpu.py"))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// TestServiceNeighbours: two models on parts of one GPU slow each other down. That is measured, and the next replica
// goes to the other GPU.
func TestServiceNeighbours(t *testing.T) {
	t.Parallel()
	s := startSharing(t, 2)
	s.applyShares("first", 1)
	end := s.load("first", 1)
	s.eventually("its batches alone are measured", func() bool {
		m := s.show("first").Variants[0].Measured
		return len(m) == 1
	})
	time.Sleep(3 * time.Second)
	s.applyShares("second", 1)
	at := func(name string, i int) string { return strings.Join(s.show(name).Replicas[i].Devices, " ") }
	if at("first", 0) != at("second", 0) {
		t.Fatalf("%s and %s are not one GPU", at("first", 0), at("second", 0))
	}
	endToo := s.load("second", 1)
	s.eventually("it is learnt what they do to each other", func() bool {
		b := s.show("first").Variants[0].Beside
		return len(b) == 1 && b[0].Other == "second/second" && b[0].Factor > 1.1 && b[0].Batches > 30
	})
	s.want(s.must("service", "profile", "first"), "# beside second/second on the same GPU: ")
	s.eventually("the scheduler knows it", func() bool {
		return strings.Contains(s.must("perf", "measured"), "first/second")
	})
	s.applyShares("second", 2)
	if at("second", 1) == at("first", 0) {
		t.Errorf("another one was put beside it, on %s", at("first", 0))
	}
	for _, f := range []func() (int, map[string]int){end, endToo} {
		if answered, others := f(); answered == 0 || !onlyLate(others) {
			t.Errorf("%d requests were answered, others: %v", answered, others)
		}
	}
}

// TestServiceBesideTraining: a job that computes on a replica's GPU slows it down. That is measured, and the scheduler
// knows it.
func TestServiceBesideTraining(t *testing.T) {
	t.Parallel()
	s := startSharing(t, 1)
	s.applyShares("first", 1)
	end := s.load("first", 1)
	s.eventually("its batches alone are measured", func() bool {
		return len(s.show("first").Variants[0].Measured) == 1
	})
	time.Sleep(3 * time.Second)
	s.must("submit", "--gpus", "0.3", "--model", "burner", "--name", "train", "--", "/usr/bin/python3", playedGPU(t),
		s.dir, "train")
	s.eventually("it is learnt what training does to it", func() bool { // soon it has to leave, as it does too much
		b := s.show("first").Variants[0].Beside
		return len(b) == 1 && b[0].Other == "jobs of burner" && b[0].Factor > 1.2
	})
	s.want(s.must("service", "profile", "first"), "# beside jobs of burner on the same GPU: ")
	s.eventually("the scheduler knows it", func() bool {
		return strings.Contains(s.must("perf", "measured"), "first/burner")
	})
	if answered, others := end(); answered == 0 || !onlyLate(others) {
		t.Errorf("%d requests were answered, others: %v", answered, others)
	}
}

// TestServiceStreams: a language model's tokens come through the gateway as they are made, and its policy knows how
// full its memory is.
func TestServiceStreams(t *testing.T) {
	t.Parallel()
	s := startServing(t, "1xH100-80GB")
	s.applyExample("chat-cpu.yaml")
	s.answers("chat", 1)
	s.eventually("the gateway lists it", func() bool {
		resp, err := http.Get(s.url + "/v1/models")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		return err == nil && strings.Contains(string(body), `"chat"`)
	})
	resp, err := http.Post(s.url+"/v1/completions", "application/json",
		strings.NewReader(`{"model":"chat","prompt":"one two","max_tokens":400,"stream":true}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	began, first, tokens := time.Now(), time.Duration(0), 0
	in := bufio.NewScanner(resp.Body)
	for in.Scan() {
		if !strings.HasPrefix(in.Text(), "data: {") {
			continue
		}
		if tokens++; tokens == 1 {
			first = time.Since(began)
		}
	}
	if took := time.Since(began); in.Err() != nil || tokens != 400 || first > took/2 {
		t.Errorf("%d tokens in %v, the first after %v: %v", tokens, took, first, in.Err())
	}
	s.eventually("it is known how full its memory is", func() bool {
		out := s.must("service", "why", "chat")
		return strings.Contains(out, "wants 1") && !strings.Contains(out, "how full its KV memory is")
	})
}

// Prompts are computed by one replica and answers by another, which goes on with the first one's keys and values; a
// replica for prompts that dies is replaced, and requests go on.
func TestServicePhases(t *testing.T) {
	t.Parallel()
	s := startServing(t, "2xH100-80GB")
	s.applyExample("phases-cpu.yaml")
	s.answers("chat", 2)
	type completion struct {
		Choices  []struct{ Text string }
		TookOver bool `json:"took_over"`
	}
	complete := func(prompt string) (c completion, status int) {
		resp, err := http.Post(s.url+"/v1/completions", "application/json",
			strings.NewReader(fmt.Sprintf(`{"model":"chat","prompt":%q,"max_tokens":8}`, prompt)))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			if err := json.NewDecoder(resp.Body).Decode(&c); err != nil {
				t.Fatal(err)
			}
		}
		return c, resp.StatusCode
	}
	s.eventually("a request is answered", func() bool {
		c, status := complete("the gang waits for a node")
		return status == http.StatusOK && c.TookOver && c.Choices[0].Text != ""
	})
	v := s.show("chat")
	for _, r := range v.Replicas {
		if r.Variant == "prompts" {
			s.killReplica(r.Port)
		}
	}
	s.eventually("a request is answered after a replica for prompts has died", func() bool {
		c, status := complete("the gang waits for a node")
		return status == http.StatusOK && c.TookOver
	})
	s.eventually("the requests of late are counted", func() bool {
		complete("the gang waits for a node")
		v = s.show("chat")
		return v.Attainment > 0 && v.Rate > 0
	})
}

// Three small models vote on each request where none is accurate enough alone; when one dies, the others do.
func TestServiceVotes(t *testing.T) {
	t.Parallel()
	s := startServing(t, "4xH100-80GB")
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	text := "name: vision\nlatency: 500ms\nreplicas: {min: 1, max: 4}\nscaling: cocktail:together=0\n" +
		"budget: {accuracy: 0.75}\nvariants:\n"
	for i := range 3 {
		text += fmt.Sprintf("- {name: v%d, accuracy: 0.7, startup: 10s, "+
			"command: [/usr/bin/python3, %s, --numpy, --width, %q], "+
			"profile: [{batch: 1, latency: 20ms}, {batch: 8, latency: 40ms}]}\n", i,
			filepath.Join(wd, "../../examples/serving/matrix.py"), strconv.Itoa(64<<i))
	}
	path := filepath.Join(s.dir, "votes.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s.must("service", "apply", path)
	last := ""
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the last answer: %s; %+v", last, s.show("vision"))
		}
	})
	once := func() string {
		resp, err := http.Post(s.url+"/v2/models/vision/infer", "application/json", strings.NewReader(
			`{"inputs":[{"name":"x","datatype":"FP32","shape":[1,8],"data":[1,2,3,4,5,6,7,8]}]}`))
		if err != nil {
			return err.Error()
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(body), `"label"`) {
			return resp.Status + string(body)
		}
		return resp.Header.Get("X-Muster-Votes")
	}
	ask := func() string {
		last = once()
		return last
	}
	s.eventually("three vote", func() bool { return ask() == "3" })
	s.killReplica(s.show("vision").Replicas[0].Port)
	if votes := ask(); votes != "2" && votes != "3" {
		t.Errorf("%s votes after one has died", votes)
	}
	s.eventually("three vote again", func() bool { return ask() == "3" })
}

// TestServiceBatch: a file of requests is answered by a job that starts a replica in time for its deadline; it
// is made to begin again in the middle, and each request has one answer.
func TestServiceBatch(t *testing.T) {
	t.Parallel()
	s := startServing(t, "1xH100-80GB")
	s.apply("vision", "replicas: {min: 0, max: 1}\nscaling: muster:idle=3s,window=3s")
	var in strings.Builder
	const all = 2000
	for i := range all {
		fmt.Fprintf(&in, `{"custom_id":"r%d","method":"POST","url":"/v2/models/vision/infer","body":%s}`+"\n", i,
			oneRow)
	}
	if err := os.WriteFile(filepath.Join(s.dir, "in.jsonl"), []byte(in.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	s.want(s.must("service", "batch", "in.jsonl", "--out", "out.jsonl", "--gateway", s.url, "--deadline", "5m",
		"--submit"),
		"job 1 answers 2000 requests")
	var pids []int
	s.eventually("the job runs", func() bool { pids = s.processesOf(1); return len(pids) > 0 })
	s.eventually("a first request is answered", func() bool { return s.read("out.jsonl") != "" })
	some := func() bool { return strings.Count(s.read("out.jsonl"), "\n") > all/20 }
	for begun := time.Now(); !some() && time.Since(begun) < patience; {
		time.Sleep(time.Millisecond) // all of them take a second or two
	}
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGSTOP) // so that it does not end before it is told to; that lets it go on
	}
	if !some() {
		t.Fatalf("it answers nothing: %s", s.must("logs", "1"))
	}
	s.must("requeue", "1")
	if out, code := s.try("wait", "1"); code != 0 {
		t.Fatalf("exit code %d: %s\n%s", code, out, s.must("logs", "1"))
	}
	seen := map[string]bool{}
	for line := range strings.Lines(s.read("out.jsonl")) {
		var a struct {
			ID       string `json:"custom_id"`
			Response struct {
				Status int `json:"status_code"`
			}
		}
		if err := json.Unmarshal([]byte(line), &a); err != nil || a.Response.Status != http.StatusOK || seen[a.ID] {
			t.Fatalf("%q, seen before: %v, %v", line, seen[a.ID], err)
		}
		seen[a.ID] = true
	}
	if len(seen) != all {
		t.Errorf("%d of %d requests have an answer", len(seen), all)
	}
	s.answers("vision", 0)
}

// TestServiceTrouble: what is wrong with a service is told where people look, and nothing else suffers.
func TestServiceTrouble(t *testing.T) {
	t.Parallel()
	s := startServing(t, "1xH100-80GB")
	out, code := s.try("service", "apply", "/dev/null")
	if code != exitUsage {
		t.Errorf("exit code %d", code)
	}
	s.want(out, "the file is empty")
	s.apply("broken", "replicas: {min: 1, max: 1}", "--no-such-option")
	s.eventually("why says that it ends", func() bool {
		return strings.Contains(s.must("service", "why", "broken"), "in a row")
	})
	s.want(s.must("service", "logs", "broken"), "unrecognized arguments: --no-such-option")
	s.must("service", "delete", "broken")
	s.apply("large", "replicas: {min: 2, max: 2}")
	s.eventually("why says that one waits", func() bool {
		return strings.Contains(s.must("service", "why", "large"), "waits for GPUs since")
	})
	out, _ = s.try("submit", "--queue", "nowhere", "--", "true")
	s.want(out, "nowhere")
	out, code = s.try("service", "show", "nothing")
	if code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	s.want(out, "no such service")
}

// TestServiceStages: what is printed of a service says in how many stages the GPUs of a replica compute, where there
// are several.
func TestServiceStages(t *testing.T) {
	var out bytes.Buffer
	s := api.Service{Variants: []show.ServiceVariant{{Name: "a", Pipeline: 3, Tensor: 2},
		{Name: "b", Pipeline: 1, Tensor: 4}}}
	if err := printService(&out, &s); err != nil {
		t.Fatal(err)
	}
	if text := out.String(); !strings.Contains(text, "a: 3 stages, GPUs in each: 2") || strings.Contains(text, "b:") {
		t.Errorf("%s", text)
	}
}
