package load

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/muster-gpu/muster/internal/shared"
	"github.com/muster-gpu/muster/service"
)

// starts runs a program that ends with the test; without it the test fails in CI and is skipped elsewhere.
func starts(t *testing.T, program string, args ...string) {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil && os.Getenv("CI") != "" {
		t.Fatal(program, "is missing: scripts/install-test-deps.sh installs it")
	}
	if err != nil {
		t.Skip("NOT TESTED:", err)
	}
	c := exec.Command(path, args...)
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	c.Stdout, c.Stderr = t.Output(), t.Output()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
}

// free is an address at which nothing listens yet.
func free(t *testing.T) string {
	t.Helper()
	l := shared.Must(net.Listen("tcp", "127.0.0.1:0"))
	defer l.Close()
	return l.Addr().String()
}

// Two real servers of a language model answer real requests; what they publish is read by asking them, and from a real
// Prometheus that scrapes them, and says the same: how many came, how long they took, and how many tokens they had.
func TestRealServers(t *testing.T) {
	if _, err := os.Stat("/usr/lib/python3/dist-packages/torch"); err != nil && os.Getenv("CI") == "" {
		t.Skip("NOT TESTED: python3-torch is missing")
	}
	dir := t.TempDir()
	var pods []Replica
	var targets []string
	for _, name := range []string{"a", "b"} {
		at := free(t)
		_, port, _ := net.SplitHostPort(at)
		starts(t, "/usr/bin/python3", "../../../examples/serving/tokens.py", "--port", port, "--handover",
			filepath.Join(dir, "handover"))
		pods = append(pods, Replica{ID: name, Name: name, Address: "http://" + at + "/metrics",
			Started: time.Unix(0, 0)})
		targets = append(targets, fmt.Sprintf(`{"targets": [%q], "labels": {"namespace": "team", "pod": %q}}`, at, name))
	}
	list, config := filepath.Join(dir, "targets.json"), filepath.Join(dir, "prometheus.yml")
	for path, text := range map[string]string{list: "[" + strings.Join(targets, ",") + "]", config: fmt.Sprintf(
		"global: {scrape_interval: 500ms, scrape_timeout: 400ms}\nscrape_configs:\n- job_name: pods\n"+
			"  file_sd_configs: [{files: [%q]}]\n", list)} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	address := free(t)
	starts(t, "prometheus", "--config.file="+config, "--storage.tsdb.path="+dir, "--web.listen-address="+address,
		"--log.level=error")
	sources := map[string]Source{"servers": NewPods(time.Now, true),
		"Prometheus": shared.Must(NewPrometheus("http://"+address, Access{}, time.Now))}
	// wait reads both sources until what they say is so.
	wait := func(what string, so func(r *Reading) bool) map[string]map[string]Reading {
		t.Helper()
		all := map[string]map[string]Reading{}
		for begin := time.Now(); ; time.Sleep(200 * time.Millisecond) {
			good := 0
			for name, source := range sources {
				readings, err := source.Read(t.Context(), "team", "vllm", pods)
				all[name] = readings
				for _, r := range readings {
					if err == nil && so(&r) {
						good++
					}
				}
			}
			if good == len(sources)*len(pods) {
				return all
			}
			if time.Since(begin) > 2*time.Minute {
				t.Fatalf("%s: not so: %+v", what, all)
			}
		}
	}
	before := wait("both servers are known", func(r *Reading) bool { return r.Finished == 0 && r.Tells })
	const each, tokens = 6, 9
	var wg sync.WaitGroup
	for i := range 2 * each {
		wg.Go(func() {
			url := strings.TrimSuffix(pods[i%2].Address, "/metrics") + "/v1/completions"
			resp, err := http.Post(url, "application/json",
				strings.NewReader(fmt.Sprintf(`{"prompt": "one two three", "max_tokens": %d}`, tokens)))
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Error(resp, err)
				return
			}
			_ = resp.Body.Close()
		})
	}
	wg.Wait()
	after := wait("all requests are counted", func(r *Reading) bool {
		return r.Finished == each && r.Outputs == each*tokens && r.Prompts == each*3 && r.Waiting+r.Running == 0
	})
	goal := &service.Goal{TTFT: 10 * time.Second, TPOT: 5 * time.Second, Percentile: 90}
	for name := range sources {
		var m Meter
		m.Take(time.Now().Add(-time.Minute), goal, pods, before[name])
		l := m.Take(time.Now(), goal, pods, after[name])
		if l.TTFT.Total() != 2*each || l.TTFT.Quantile(0.5) <= 0 || l.TPOT.Total() != 2*each*(tokens-1) ||
			l.Missed() != 0 {
			t.Errorf("%s: %d first tokens, half after %s, %d others, %d requests missed the goal", name, l.TTFT.Total(),
				l.TTFT.Quantile(0.5), l.TPOT.Total(), l.Missed())
		}
	}
}
