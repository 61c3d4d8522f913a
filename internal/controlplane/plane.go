// Package controlplane runs a real Kubernetes control plane for tests: etcd, kube-apiserver, and where a test
// needs them kube-controller-manager and KWOK, which simulates nodes. Package binaries builds them.
package controlplane

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	_ "embed"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muster-gpu/muster/internal/controlplane/binaries"
	"github.com/muster-gpu/muster/internal/kubeapi"
	"github.com/muster-gpu/muster/internal/shared"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

//go:embed stages.yaml
var stages []byte

// Options are what a test needs besides etcd and kube-apiserver.
type Options struct {
	// Controllers starts kube-controller-manager: ServiceAccounts, Jobs, garbage
	// collection.
	Controllers bool
	// Args are appended to kube-apiserver's.
	Args []string
}

// Host is the owner of a control plane: a test, or a program that shows one.
type Host interface {
	Helper()
	Context() context.Context
	Logf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Cleanup(f func()) // called when it ends, the last first
}

// Plane is a running control plane.
type Plane struct {
	t     Host
	bin   string
	dir   string
	port  int
	ca    []byte
	caKey *ecdsa.PrivateKey
	ended *atomic.Pointer[string] // the name of a program that ended
	// programs are the running ones, by name; all planes of For share them.
	programs map[string]*program
	// Admin is the configuration of a client that may do everything.
	Admin *rest.Config
	// Kubeconfig is the path of a file with the same.
	Kubeconfig string
}

const adminToken, group = "admin-token", "system:masters"

// Start starts a control plane with simulated nodes and pods, which ends with the test. If it cannot be built,
// the test fails, or is skipped if tests are short.
func Start(t Host, opt Options) *Plane {
	t.Helper()
	if t, ok := t.(*testing.T); ok {
		skipShort(t)
	}
	bin, err := binaries.Build(t.Context(), t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "muster-plane")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	p := &Plane{t: t, bin: bin, dir: dir, ended: &atomic.Pointer[string]{}, programs: map[string]*program{}}
	p.keys()
	etcd := p.etcd()
	p.apiserver(etcd, opt)
	p.connect()
	p.run("kwok", "--kubeconfig", p.Kubeconfig, "--manage-all-nodes", "--config", p.file("stages.yaml", stages),
		"--node-lease-duration-seconds", "0", "--v", "ERROR")
	p.play()
	if opt.Controllers {
		p.run("kube-controller-manager", "--kubeconfig", p.Kubeconfig, "--service-account-private-key-file",
			p.path("sa.key"),
			"--root-ca-file", p.path("ca.crt"), "--use-service-account-credentials=false", "--leader-elect=false",
			"--secure-port=0",
			// nothing attaches the volumes for which the last would wait
			"--controllers=*,-node-lifecycle-controller,-node-ipam-controller,-ttl-controller,-persistentvolume-attach-detach-controller")
		p.Wait("the default ServiceAccount is there", func(ctx context.Context) bool {
			_, err := p.Client().CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
			return err == nil
		})
	}
	return p
}

func skipShort(t *testing.T) {
	if t.Helper(); testing.Short() {
		t.Skip("a real control plane takes long")
	}
}

// For is the plane for a sub-test, to which it reports failures.
func (p *Plane) For(t Host) *Plane {
	return &Plane{t: t, bin: p.bin, dir: p.dir, port: p.port, ca: p.ca, caKey: p.caKey, ended: p.ended,
		programs: p.programs, Admin: p.Admin, Kubeconfig: p.Kubeconfig}
}

// unlimited is what a client of an admin is made from that may ask as often as it likes.
func (p *Plane) unlimited() *rest.Config {
	c := rest.CopyConfig(p.Admin)
	c.QPS, c.Burst = -1, 0
	return c
}

// Client is a client of an admin.
func (p *Plane) Client() *kubeapi.Clientset {
	p.t.Helper()
	c := p.unlimited()
	c.ContentType = "application/vnd.kubernetes.protobuf"
	cs, err := kubeapi.New(c)
	if err != nil {
		p.t.Fatal(err)
	}
	return cs
}

// Program is the path of one of the binaries.
func (p *Plane) Program(name string) string { return filepath.Join(p.bin, name) }

func (p *Plane) path(name string) string { return filepath.Join(p.dir, name) }

func (p *Plane) file(name string, data []byte) string {
	p.t.Helper()
	if err := os.WriteFile(p.path(name), data, 0o600); err != nil {
		p.t.Fatal(err)
	}
	return p.path(name)
}

func (p *Plane) etcd() string {
	client, peer := freePort(p.t), freePort(p.t)
	url := fmt.Sprintf("http://127.0.0.1:%d", client)
	peerURL := fmt.Sprintf("http://127.0.0.1:%d", peer)
	p.run("etcd", "--data-dir", p.path("etcd"), "--unsafe-no-fsync", "--backend-batch-interval", "1s",
		"--listen-client-urls", url, "--advertise-client-urls", url,
		"--listen-peer-urls", peerURL, "--initial-advertise-peer-urls", peerURL, "--initial-cluster",
		"default="+peerURL, "--log-level", "error")
	return url
}

func (p *Plane) apiserver(etcd string, opt Options) {
	p.port = freePort(p.t)
	tokens := p.file("tokens.csv", []byte(adminToken+",admin,admin,"+group+"\n"))
	args := []string{"--etcd-servers", etcd, "--secure-port", strconv.Itoa(p.port), "--bind-address", "127.0.0.1",
		"--advertise-address", "127.0.0.1", // without it there has to be a default route
		"--endpoint-reconciler-type", "none",
		"--tls-cert-file", p.path("api.crt"), "--tls-private-key-file", p.path("api.key"), "--token-auth-file", tokens,
		"--client-ca-file", p.path("ca.crt"), "--requestheader-client-ca-file", p.path("proxy-ca.crt"),
		"--requestheader-allowed-names", proxyName,
		"--requestheader-username-headers", "X-Remote-User", "--requestheader-group-headers", "X-Remote-Group",
		"--requestheader-extra-headers-prefix", "X-Remote-Extra-", "--proxy-client-cert-file", p.path("proxy.crt"),
		"--proxy-client-key-file", p.path("proxy.key"),
		"--enable-priority-and-fairness=false", // a sixth of its time
		"--authorization-mode", "RBAC", "--service-account-key-file", p.path("sa.pub"),
		"--service-account-signing-key-file", p.path("sa.key"),
		"--service-account-issuer", "https://kubernetes.default.svc", "--service-cluster-ip-range", "10.0.0.0/24",
		"--watch-cache=true", "--profiling=false"}
	off := "TaintNodesByCondition" // nothing would remove the taint
	if !opt.Controllers {          // nothing creates the default ServiceAccounts
		off += ",ServiceAccount"
	}
	args = append(args, "--disable-admission-plugins", off)
	p.run("kube-apiserver", append(args, opt.Args...)...)
}

// KubeconfigFor is a kubeconfig with a token.
func (p *Plane) KubeconfigFor(token string) []byte {
	return p.kubeconfig(fmt.Sprintf("token: %q", token))
}

func (p *Plane) kubeconfig(user string) []byte {
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: test
contexts: [{name: test, context: {cluster: test, user: user}}]
clusters: [{name: test, cluster: {server: %q, certificate-authority: %q, disable-compression: true}}]
users: [{name: user, user: {%s}}]
`, p.Admin.Host, p.path("ca.crt"), user)
}

// connect waits until the API server answers.
func (p *Plane) connect() {
	p.Admin = &rest.Config{Host: fmt.Sprintf("https://127.0.0.1:%d", p.port), BearerToken: adminToken,
		DisableCompression: true, // it never leaves this machine
		TLSClientConfig:    rest.TLSClientConfig{CAData: p.ca}}
	p.Kubeconfig = p.file("kubeconfig", p.KubeconfigFor(adminToken))
	p.answers()
}

// answers waits until the API server reports that it is ready.
func (p *Plane) answers() {
	p.t.Helper()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(p.ca)
	tr := http.DefaultTransport.(*http.Transport).Clone()
	tr.TLSClientConfig = &tls.Config{RootCAs: pool}
	defer tr.CloseIdleConnections()
	p.Wait("the API server answers", func(ctx context.Context) bool {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.Admin.Host+"/readyz", nil)
		if err != nil {
			p.t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+adminToken)
		resp, err := (&http.Client{Transport: tr}).Do(req)
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

// patience is how long anything may take on a busy machine.
const patience = 4 * time.Minute

// seldom is the shortest time between two looks at a cluster: each costs it, and the one that looks, some 5 ms of a
// processor. After some looks it is two fifths of the time that was waited (shared.Pause).
const seldom = 50 * time.Millisecond

// Wait waits until a condition holds.
func (p *Plane) Wait(what string, so func(ctx context.Context) bool) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	for begin := time.Now(); ; {
		asked := time.Now()
		if so(ctx) {
			return
		}
		select {
		case <-ctx.Done():
			if p.t.Context().Err() != nil {
				p.t.Fatalf("the test was over before %s", what)
			}
			p.t.Logf("the cluster:\n%s", p.logs()) // the failure comes last, because the end of the output is read
			p.t.Fatalf("waited %s in vain until %s", patience, what)
		case <-time.After(max(seldom, shared.Pause(2*time.Since(begin), time.Since(asked)))):
			if name := p.ended.Load(); name != nil {
				p.t.Logf("logs:\n%s", p.logs())
				p.t.Fatalf("%s ended by itself, while waiting until %s", *name, what)
			}
		}
	}
}

func freePort(t Host) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
