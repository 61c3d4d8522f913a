package services

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/muster-gpu/muster/kube/services/load"
)

// TestPrometheus lets Debian's Prometheus scrape the pods; it finds them by a file, as no kubelet has them discovered.
// Demand is a query of the counter of a gateway. Prometheus answers over TLS, to a user with a password.
func TestPrometheus(t *testing.T) {
	program, err := exec.LookPath("prometheus")
	if err != nil && os.Getenv("CI") != "" {
		t.Fatal("prometheus is missing: scripts/install-test-deps.sh installs it")
	}
	if err != nil {
		t.Skip("it needs Debian's prometheus")
	}
	b := newBench(t)
	dir := t.TempDir()
	gateway := b.model("gateway") // counts what arrives in front
	defer gateway.Close()
	b.mu.Lock()
	b.servers["gateway"] = gateway
	b.mu.Unlock()
	targets := filepath.Join(dir, "targets.json")
	b.targets(targets)
	config := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(config, fmt.Appendf(nil, `
global: {scrape_interval: 500ms, scrape_timeout: 400ms}
scrape_configs:
- job_name: pods
  file_sd_configs: [{files: [%q], refresh_interval: 1s}]
`, targets), 0o600); err != nil {
		t.Fatal(err)
	}
	access, web := secured(t, dir)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	c := exec.CommandContext(t.Context(), program, "--config.file="+config, "--storage.tsdb.path="+dir,
		"--web.config.file="+web,
		"--web.listen-address="+address, "--log.level=error")
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	c.Stdout, c.Stderr = t.Output(), t.Output()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	var over atomic.Bool
	defer over.Store(true)
	go func() {
		for !over.Load() {
			b.targets(targets)
			time.Sleep(100 * time.Millisecond)
		}
	}()
	p, err := load.NewPrometheus("https://"+address, access, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	access.User = "other"
	stranger, err := load.NewPrometheus("https://"+address, access, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	b.wait("another user is refused", func() bool {
		_, err := stranger.Demand(b.ctx, "1")
		return err != nil && strings.Contains(err.Error(), "prometheus_access is missing or wrong")
	})
	text := chat("chat", `metrics: {demand: 'sum(rate(vllm:request_success_total{pod="gateway"}[5s]))'}`)
	text[Annotation] = strings.NewReplacer("min: 1", "min: 0", "window=2s", "window=1s,idle=4s").
		Replace(text[Annotation])
	b.deployment("chat", "chat", 1, text)
	b.deployment("plain", "plain", 1, chat("plain"))
	b.load("chat", 35)
	b.load("gateway", 35)
	b.load("plain", 25)
	b.run(func(o *Options) { o.Source, o.Demand, o.Period = p, p.Demand, time.Second })
	b.wait("four serve 35 requests/s", func() bool { return b.replicas("chat") >= 4 && b.ready("chat") >= 4 })
	b.wait("three serve 25 requests/s", func() bool { return b.replicas("plain") >= 3 && b.replicas("plain") <= 5 })
	b.load("chat", 0)
	b.load("gateway", 0)
	b.wait("none is needed", func() bool { return b.replicas("chat") == 0 })
	b.load("gateway", 15)
	b.wait("what waits in front brings them back", func() bool { return b.replicas("chat") >= 2 })
}

// secured writes what Prometheus needs to answer over TLS and to a user only, and what that one needs.
func secured(t *testing.T, dir string) (a load.Access, web string) {
	t.Helper()
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	key, err := x509.MarshalPKCS8PrivateKey(s.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	a = load.Access{User: "muster", PasswordFile: write("password", []byte("s3cret\n")),
		CAFile: write("ca.crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))}
	write("tls.key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}))
	const hash = "$2b$04$abcdefghijklmnopqrstuuLZYjhNQAOdpbzt4WxWlUHjv1wsyH5DG" // of the password
	return a, write("web.yml", []byte("tls_server_config: {cert_file: ca.crt, key_file: tls.key}\n"+
		"basic_auth_users: {muster: '"+hash+"'}\n"))
}

// targets writes which pods there are for Prometheus.
func (b *bench) targets(path string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var list []string
	for name, s := range b.servers {
		list = append(list, fmt.Sprintf(`{"targets": [%q], "labels": {"namespace": "default", "pod": %q}}`,
			s.Listener.Addr().String(), name))
	}
	text := "[" + strings.Join(list, ",") + "]"
	if os.WriteFile(path+".new", []byte(text), 0o600) == nil {
		_ = os.Rename(path+".new", path)
	}
}
