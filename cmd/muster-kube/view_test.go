package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/chromedp/chromedp"
	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/muster-gpu/muster/internal/browser"
	"github.com/muster-gpu/muster/internal/controlplane"
	"github.com/muster-gpu/muster/internal/kubeapi"
	"github.com/muster-gpu/muster/internal/shared"
	"github.com/muster-gpu/muster/kube/front"
)

// stage is a cluster with a scheduler, and the programs as they are built.
type stage struct {
	*testing.T
	p   *controlplane.Plane
	c   *kubeapi.Clientset
	dir string   // for files
	env []string // more of the schedulers'
	ip  string
}

// programs are what a cluster is scheduled and looked at with.
var programs = shared.Programs{Plain: []string{"muster", "muster-kube"}}

func TestMain(m *testing.M) {
	code := m.Run()
	planes.End()
	browser.Close()
	programs.Remove()
	os.Exit(code)
}

// planes are the control planes of the tests, each of one test at a time.
var planes controlplane.Planes

// newStage takes a cluster and registers the API.
func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{T: t, dir: t.TempDir(), ip: ownAddress(t)}
	// nothing here routes Services' addresses
	s.p = planes.Take(t, controlplane.Options{Controllers: true, Args: []string{"--enable-aggregator-routing"}})
	s.c = s.p.Client()
	s.register()
	return s
}

// ownAddress is an address of this machine that a Service may lead to, which
// loopback's may not.
func ownAddress(t *testing.T) string {
	t.Helper()
	list, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range list {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && n.IP.IsGlobalUnicast() {
			return n.IP.String()
		}
	}
	t.Skip("this machine has no address but loopback's")
	return ""
}

// in is the stage of a sub-test.
func (s *stage) in(t *testing.T) *stage {
	sub := *s
	sub.T, sub.p = t, s.p.For(t)
	return &sub
}

// create makes objects.
func (s *stage) create(list ...runtime.Object) {
	s.Helper()
	for _, o := range list {
		var err error
		ctx, opt := s.Context(), metav1.CreateOptions{}
		switch o := o.(type) {
		case *v1.Node:
			_, err = s.c.CoreV1().Nodes().Create(ctx, o, opt)
		case *v1.Namespace:
			_, err = s.c.CoreV1().Namespaces().Create(ctx, o, opt)
		case *v1.Pod:
			_, err = s.c.CoreV1().Pods(o.Namespace).Create(ctx, o, opt)
		case *v1.Service:
			_, err = s.c.CoreV1().Services(o.Namespace).Create(ctx, o, opt)
		case *v1.ServiceAccount:
			_, err = s.c.CoreV1().ServiceAccounts(o.Namespace).Create(ctx, o, opt)
		case *rbacv1.ClusterRole:
			_, err = s.c.RbacV1().ClusterRoles().Create(ctx, o, opt)
		case *rbacv1.ClusterRoleBinding:
			_, err = s.c.RbacV1().ClusterRoleBindings().Create(ctx, o, opt)
		case *rbacv1.RoleBinding:
			_, err = s.c.RbacV1().RoleBindings(o.Namespace).Create(ctx, o, opt)
		default:
			err = fmt.Errorf("%T", o)
		}
		if err != nil {
			s.Fatal(err)
		}
	}
}

// register registers the API as docs/guide/kubernetes.md has it.
func (s *stage) register() {
	s.create(&v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "muster-view"},
		Spec: v1.ServiceSpec{Ports: []v1.ServicePort{{Port: 443, Protocol: v1.ProtocolTCP}}}})
	body := fmt.Sprintf(`{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService","metadata":{"name":%q},"spec":{"group":%q,"version":%q,
		"groupPriorityMinimum":1000,"versionPriority":15,"service":{"namespace":"kube-system","name":"muster-view","port":443}}}`, front.Service, front.Group, front.Version)
	err := s.c.Discovery().RESTClient().Post().AbsPath("/apis/apiregistration.k8s.io/v1/apiservices").SetHeader(
		"Content-Type", "application/json").Body([]byte(body)).Do(s.Context()).Error()
	if err != nil {
		s.Fatal(err)
	}
	s.create(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "muster-view"},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{front.Group}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch"}}}})
}

// let lets a user look.
func (s *stage) let(subject rbacv1.Subject) {
	s.create(&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "view-" + subject.Name},
		Subjects: []rbacv1.Subject{subject},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "muster-view"}})
}

// start starts a scheduler; the function that it returns kills it.
func (s *stage) start(args ...string) (kill func()) {
	s.Helper()
	args = append([]string{"--kubeconfig", s.p.Kubeconfig, "--listen", "none", "--log-level", "debug",
		"--api-listen", s.ip + ":0"}, args...)
	c := exec.Command(programs.Path(s, "muster-kube"), args...)
	c.Stderr, c.Env = s.Output(), append(os.Environ(), s.env...)
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		s.Fatal(err)
	}
	done := make(chan struct{})
	go func() { _ = c.Wait(); close(done) }()
	kill = func() { _ = c.Process.Kill(); <-done }
	s.Cleanup(kill)
	return kill
}

// muster runs the command line as a user does.
func (s *stage) muster(kubeconfig string, args ...string) (string, error) {
	s.Helper()
	args = append([]string{"--kubeconfig", kubeconfig, "--context", "test"}, args...)
	c := exec.CommandContext(s.Context(), programs.Path(s, "muster"), args...)
	c.Env = append(os.Environ(), "MUSTER_HOST=http://203.0.113.1:1", "TMPDIR="+s.dir)
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	err := c.Run()
	return out.String(), err
}

// must asks until the answer holds all that is wanted.
func (s *stage) must(kubeconfig string, args []string, wants ...string) (out string) {
	s.Helper()
	defer func() {
		if s.Failed() {
			s.Logf("it said last: %s", out)
		}
	}()
	s.p.Wait(fmt.Sprintf("muster %s says %q", strings.Join(args, " "), wants), func(context.Context) bool {
		var err error
		out, err = s.muster(kubeconfig, args...)
		if err != nil {
			s.Logf("muster %s: %v: %s", strings.Join(args, " "), err, out)
		}
		return err == nil && !slices.ContainsFunc(wants, func(w string) bool { return !strings.Contains(out, w) })
	})
	return out
}

func in(namespace string, pods ...*v1.Pod) (list []runtime.Object) {
	for _, p := range pods {
		p.Namespace = namespace
		list = append(list, p)
	}
	return list
}

func namespace(name string) *v1.Namespace {
	return &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// TestLook looks at a cluster as people do: through its API server, with the
// programs as they are built.
func TestLook(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.create(controlplane.Node("n1", 8, nil), controlplane.Node("n2", 8, nil), namespace("vision"), namespace("speech"))
	kill := s.start()
	ann := s.p.User("ann")
	s.let(rbacv1.Subject{Kind: "User", APIGroup: rbacv1.GroupName, Name: "ann"})
	s.create(&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "vision", Name: "ann"},
		Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: "ann"}},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"}})
	s.create(in("vision", controlplane.Gang("train", 2, 8, map[string]string{"!muster.sh/run-time": "2h"})...)...)
	s.must(ann, []string{"queue"}, "vision/train", "running", "n1,n2")
	s.create(in("speech", controlplane.Pod("late", 4, nil))...)
	s.must(ann, []string{"queue"}, "speech/late", "pending", "needs 4 GPUs")
	for _, f := range []struct {
		name string
		test func(s *stage, ann string)
	}{{"verbs", verbs}, {"rights", rights}, {"direct", direct}, {"hangup", hangup}, {"dashboard", board}} {
		t.Run(f.name, func(t *testing.T) { f.test(s.in(t), ann) })
	}
	t.Run("leader", func(t *testing.T) { leader(s.in(t), ann, kill) })
}

// verbs: what looks at one machine looks at a cluster.
func verbs(s *stage, ann string) {
	s.must(ann, []string{"why", "speech/late"}, "needs 4 GPUs on one node", "job 1 vision/train", "expected")
	s.must(ann, []string{"why", "train"}, "running on n1, n2", "expected to end", "as was stated")
	s.must(ann, []string{"show", "train"}, `"name": "train-1"`, `"node": "n2"`, `"gpu_hours"`)
	s.must(ann, []string{"queue", "--user", "speech"}, "speech/late")
	s.must(ann, []string{"nodes"}, "n1", "H100", "8", "1")
	s.must(ann, []string{"nodes", "--gpus"}, "n2", "0%")
	s.must(ann, []string{"queues"}, "default", "16")
	s.must(ann, []string{"usage"}, "vision", "speech", "leads since")
	s.must(ann, []string{"usage", "--by", "job"}, "vision/train")
	s.must(ann, []string{"defrag", "late"},
		"speech/late (4 GPUs): no move would help: it needs 4 GPUs, 0 suitable ones are free", "nothing was changed")
	s.must(ann, []string{"defrag", "--compact=nodes"}, "no node is emptied while a job waits for room")
	for _, c := range []struct{ args, want string }{{"why nothing/here", "no job is called nothing/here"},
		{"why 99", "no such job"}, {"queue --mine", "--user NAMESPACE"}, {"cancel 1", "kubectl"},
		{"defrag --apply", "cannot create resource"}, {"defrag 99", "no such job"}, {"usage --since x", "since"}} {
		if out, err := s.muster(ann, strings.Fields(c.args)...); err == nil || !strings.Contains(out, c.want) {
			s.Errorf("muster %s: %v %s", c.args, err, out)
		}
	}
	left, err := filepath.Glob(filepath.Join(s.dir, "muster-cluster-*"))
	if err != nil {
		s.Fatal(err)
	}
	s.p.Wait("the folders of sockets are gone", func(context.Context) bool {
		return !slices.ContainsFunc(left, func(dir string) bool { _, err := os.Stat(dir); return err == nil })
	})
}

// hangup: a terminal that is closed takes the folder of the socket away with
// whoever had it made.
func hangup(s *stage, ann string) {
	dir := filepath.Join(s.dir, "closed")
	if err := os.Mkdir(dir, 0o700); err != nil {
		s.Fatal(err)
	}
	theirs, ours, err := os.Pipe()
	if err != nil {
		s.Fatal(err)
	}
	c := exec.CommandContext(s.Context(), programs.Path(s, "muster-kube"), "proxy", "--kubeconfig", ann,
		"--context", "test", "--socket", filepath.Join(dir, "s"))
	c.ExtraFiles = []*os.File{theirs}
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		s.Fatal(err)
	}
	_ = theirs.Close()
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		s.Errorf("%q, %v", line, err)
	}
	if err := c.Process.Signal(syscall.SIGHUP); err != nil {
		s.Error(err)
	}
	_ = ours.Close()
	if err := c.Wait(); err != nil {
		s.Error(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		s.Errorf("the folder is still there: %v", err)
	}
}

// token is a ServiceAccount's.
func (s *stage) token(namespace, name string) string {
	s.create(&v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
	t, err := s.c.CoreV1().ServiceAccounts(namespace).CreateToken(s.Context(), name, &authenticationv1.TokenRequest{},
		metav1.CreateOptions{})
	if err != nil {
		s.Fatal(err)
	}
	return t.Status.Token
}

// rights: somebody with a token looks as well as somebody with a certificate; who
// may not get a namespace's pods does not see them; who may not look is told what
// they lack.
func rights(s *stage, ann string) {
	ci := s.p.Bearer("ci", s.token("speech", "ci"))
	account := rbacv1.Subject{Kind: "ServiceAccount", Namespace: "speech", Name: "ci"}
	if out, err := s.muster(ci, "queue"); err == nil || !strings.Contains(out, "system:serviceaccount:speech:ci") ||
		!strings.Contains(out, front.Group) {
		s.Errorf("somebody without rights: %v %s", err, out)
	}
	s.let(account)
	if out := s.must(ci, []string{"show", "late"}, `"state": "pending"`, `"user": "speech"`); strings.Contains(out,
		`"tasks": [`) {
		s.Errorf("pods of a namespace whose pods they may not get: %s", out)
	}
	s.create(&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "speech", Name: "ci"},
		Subjects: []rbacv1.Subject{account},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"}})
	s.must(ci, []string{"show", "late"}, `"name": "late"`, `"state": "waiting"`)
	if out := s.must(ci, []string{"show", "train"}, `"state": "running"`); strings.Contains(out, "train-0") {
		s.Errorf("pods of another namespace: %s", out)
	}
	s.must(ann, []string{"show", "train"}, `"state": "running"`)
}

// direct: without the API server between, only a token counts, whatever else a
// request says of itself.
func direct(s *stage, ann string) {
	var slice string
	s.p.Wait("the leader's address is known", func(ctx context.Context) bool {
		l, err := s.c.DiscoveryV1().EndpointSlices("kube-system").Get(ctx, "muster-view-leader", metav1.GetOptions{})
		if err != nil {
			return false
		}
		slice = fmt.Sprintf("https://%s:%d", l.Endpoints[0].Addresses[0], *l.Ports[0].Port)
		return true
	})
	tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer tr.CloseIdleConnections()
	ask := func(tr *http.Transport, method, path string, header ...string) (int, string) {
		s.Helper()
		req, err := http.NewRequestWithContext(s.Context(), method, slice+path, nil)
		if err != nil {
			s.Fatal(err)
		}
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		resp, err := (&http.Client{Transport: tr}).Do(req)
		if err != nil {
			s.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			s.Fatal(err)
		}
		return resp.StatusCode, string(text)
	}
	own := "Bearer " + s.token("vision", "page")
	cert, err := tls.LoadX509KeyPair(strings.Replace(ann, "kubeconfig-ann", "user-ann.crt", 1),
		strings.Replace(ann, "kubeconfig-ann", "user-ann.key", 1))
	if err != nil {
		s.Fatal(err)
	}
	stranger := &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{cert}}}
	defer stranger.CloseIdleConnections()
	for _, c := range []struct {
		what   string
		tr     *http.Transport
		method string
		path   string
		header []string
		code   int
		want   string
	}{
		{"nobody", tr, "GET", "/v1/jobs", nil, 401, "unknown caller"},
		{"headers of the proxy without its certificate", tr, "GET", "/v1/jobs",
			[]string{"X-Remote-User", "ann", "X-Remote-Group", "system:masters"}, 401, "unknown caller"},
		{"... with somebody's own certificate", stranger, "GET", front.Base + "/jobs",
			[]string{"X-Remote-User", "admin", "X-Remote-Group", "system:masters"}, 401, "certificate"},
		{"a made-up token", tr, "GET", "/v1/jobs", []string{"Authorization", "Bearer x"}, 401,
			"does not know the token"},
		{"a token without rights", tr, "GET", "/v1/jobs", []string{"Authorization", own}, 403,
			"system:serviceaccount:vision:page"},
		{"the page", tr, "GET", "/", nil, 200, "<title>Muster</title>"},
		{"health", tr, "GET", "/readyz", nil, 200, ""},
		{"moves without rights", tr, "POST", "/v1/moves", []string{"Authorization", own}, 403, "may not create moves"},
		{"... called a watch", tr, "POST", "/v1/moves?watch=true", []string{"Authorization", own}, 403,
			"may not create moves"},
		{"a change", tr, "POST", "/v1/jobs/1/cancel", []string{"Authorization", own}, 501, "kubectl"},
	} {
		if code, text := ask(c.tr, c.method, c.path, c.header...); code != c.code || !strings.Contains(text, c.want) {
			s.Errorf("%s: %d %s", c.what, code, text)
		}
	}
	s.let(rbacv1.Subject{Kind: "ServiceAccount", Namespace: "vision", Name: "page"})
	s.p.Wait("a token with rights is let in", func(context.Context) bool {
		code, text := ask(tr, "GET", "/v1/jobs", "Authorization", own)
		return code == 200 && strings.Contains(text, "vision/train")
	})
	if code, text := ask(tr, "GET", "/v1/nothing", "Authorization", own); code != 404 {
		s.Errorf("no such route: %d %s", code, text)
	}
}

// leader: when the scheduler that leads is killed, the API server asks the next.
func leader(s *stage, ann string, kill func()) {
	s.start()
	s.must(ann, []string{"queue"}, "vision/train")
	kill()
	s.must(ann, []string{"queue"}, "vision/train", "running", "speech/late", "pending")
	if err := s.c.CoreV1().Pods("vision").DeleteCollection(s.Context(), metav1.DeleteOptions{},
		metav1.ListOptions{}); err != nil {
		s.Fatal(err)
	}
	s.must(ann, []string{"queue", "--all"}, "vision/train", "failed", "speech/late", "running")
	s.must(ann, []string{"why", "vision/train"}, "failed")
}

// board: the dashboard shows the cluster to the browser that has the link, to
// nobody else, and offers no buttons that would do nothing.
func board(s *stage, ann string) {
	c := exec.Command(programs.Path(s, "muster"), "--kubeconfig", ann, "dashboard", "--no-open")
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = c.Process.Signal(syscall.SIGTERM); _ = c.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		s.Fatal(err)
	}
	link := strings.TrimSpace(line)
	base := link[:strings.Index(link, "/login")]
	for path, code := range map[string]int{"/v1/jobs": 401, "/login?code=x": 403, "/": 200} {
		resp, err := http.Get(base + path)
		if err != nil {
			s.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != code {
			s.Errorf("%s without the link: %d", path, resp.StatusCode)
		}
	}
	b := browser.Open(s.T)
	b.Look(1280, 900, "light")
	b.Do(chromedp.Navigate(link))
	b.Await("the overview",
		`document.querySelector("h1")?.textContent === "Overview" && document.querySelector("#live.on")`)
	has := func(sel, text string) string {
		return fmt.Sprintf(`[...document.querySelectorAll(%q)].some(e => e.textContent.includes(%q))`, sel, text)
	}
	b.Await("two nodes and who holds them",
		`document.querySelectorAll(".gpu").length === 2 && `+has(".gpu", "vision/train")+" && "+has(".sub", "2 nodes"))
	b.Await("who is next", has(".slim td", "speech/late"))
	b.Await("no way to submit", `getComputedStyle(document.querySelector('nav a[href="/submit"]')).display === "none"`)
	b.Shoot("cluster-overview")
	b.Do(chromedp.Navigate(base + "/jobs/1"))
	b.Await("its pods", has("th", "train-0")+" && "+has(".head .state", "running"))
	b.Await("no buttons", `document.querySelectorAll("main .acts button").length === 0`)
	b.Do(chromedp.Navigate(base + "/jobs/2"))
	b.Await("why it waits", has(".why", "needs 4 GPUs")+" && "+has(".why a", "job 1"))
	b.Shoot("cluster-job")
	b.Do(chromedp.Navigate(base + "/usage"))
	b.Await("what was used", has("th", "vision"))
	s.create(in("speech", controlplane.Pod("blink", 99, nil))...)
	b.Do(chromedp.Navigate(base + "/jobs"))
	b.Await("what comes while one looks", has("tr", "speech/blink"))
	b.Clean(base, "data:")
	if err := s.c.CoreV1().Pods("speech").Delete(s.Context(), "blink", metav1.DeleteOptions{}); err != nil {
		s.Fatal(err)
	}
}
