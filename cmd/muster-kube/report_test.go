package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/internal/controlplane"
	"github.com/muster-gpu/muster/kube"
)

// reporting is a cluster whose pods report. There is no kubelet here: the sidecar, as it is built, runs as a
// process of the test, with a token that the API server made for its pod and the audience, and the pod's
// annotation in its environment, as the kubelet would have it. That is all that is played.
type reporting struct {
	*stage
	ann, address string
	files        map[string]string // of pods
}

func newReporting(t *testing.T) *reporting {
	s := newStage(t)
	l, err := net.Listen("tcp", s.ip+":0")
	if err != nil {
		t.Fatal(err)
	}
	r := &reporting{s, s.p.User("ann"), l.Addr().String(), map[string]string{}}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	ann := rbacv1.Subject{Kind: "User", APIGroup: rbacv1.GroupName, Name: "ann"}
	s.let(ann)
	s.create(&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "ann"},
		Subjects: []rbacv1.Subject{ann},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"}})
	return r
}

// lead starts a scheduler at the address that is the same for each.
func (r *reporting) lead(args ...string) (kill func()) {
	r.Helper()
	return r.start(append([]string{"--api-listen", r.address, "--api-secret", "muster-authority"}, args...)...)
}

// example is the job of examples/kubernetes/report.yaml.
func (r *reporting) example() *batchv1.Job {
	r.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "examples", "kubernetes", "report.yaml"))
	if err != nil {
		r.Fatal(err)
	}
	j := &batchv1.Job{}
	if err := yaml.UnmarshalStrict(text, j); err != nil {
		r.Fatal(err)
	}
	j.Namespace = "default"
	j.Spec.Template.Spec.Tolerations = controlplane.Spec(8).Tolerations // no kubelet says that its node is ready
	return j
}

// pod is one that reports.
func (r *reporting) pod(name string, gpus int, more map[string]string) *v1.Pod {
	p := controlplane.Pod(name, gpus, more)
	p.Spec.Volumes = r.example().Spec.Template.Spec.Volumes
	return p
}

// runs waits until a pod runs.
func (r *reporting) runs(name string) (p *v1.Pod) {
	r.Helper()
	r.p.Wait(name+" runs", func(ctx context.Context) bool {
		var err error
		p, err = r.c.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		return err == nil && p.Status.Phase == v1.PodRunning
	})
	return p
}

// token is what the kubelet asks for, for a pod.
func (r *reporting) token(p *v1.Pod, audience string) string {
	r.Helper()
	hour := int64(3600)
	t, err := r.c.CoreV1().ServiceAccounts("default").CreateToken(r.Context(), "default",
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			Audiences: []string{audience}, ExpirationSeconds: &hour,
			BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: p.Name,
				UID: p.UID}}}, metav1.CreateOptions{})
	if err != nil {
		r.Fatal(err)
	}
	return t.Status.Token
}

// sidecar starts the sidecar of a pod.
func (r *reporting) sidecar(p *v1.Pod) (end func()) {
	r.Helper()
	dir := r.TempDir()
	file, token := filepath.Join(dir, "progress"), filepath.Join(dir, "token")
	r.files[p.Name] = file
	if err := os.WriteFile(token, []byte(r.token(p, api.ReportAudience)), 0o600); err != nil {
		r.Fatal(err)
	}
	c := exec.Command(programs.Path(r, "muster-kube"), "report", "--to", "https://"+r.address,
		"--token", token, "--every", "1s")
	c.Env = append(os.Environ(), "MUSTER_PROGRESS="+file, "MUSTER_REPORT_CA="+p.Annotations[kube.AnnotationSum])
	c.Stderr = r.Output()
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		r.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- c.Wait() }()
	r.Cleanup(func() { _ = c.Process.Kill() })
	return func() {
		r.Helper()
		if err := c.Process.Signal(syscall.SIGTERM); err != nil {
			r.Error(err)
		}
		if err := <-done; err != nil {
			r.Errorf("the sidecar ends with %v", err)
		}
	}
}

// writes appends a line to a pod's progress file.
func (r *reporting) writes(pod, format string, args ...any) {
	r.Helper()
	f, err := os.OpenFile(r.files[pod], os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = fmt.Fprintf(f, format+"\n", args...)
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		r.Fatal(err)
	}
}

// works has a pod's job take steps until something is so.
func (r *reporting) works(pod string, from *int, steps int, what string, so func(ctx context.Context) bool) {
	r.Helper()
	r.p.Wait(what, func(ctx context.Context) bool {
		*from++
		r.writes(pod, `{"step": %d, "steps": %d, "samples_per_s": 12.5, "metric": {"loss": %g}}`, *from, steps,
			1/float64(*from))
		return so(ctx)
	})
}

// says reports whether muster's answer holds all that is wanted.
func (r *reporting) says(args []string, wants ...string) func(context.Context) bool {
	return func(context.Context) bool {
		out, err := r.muster(r.ann, args...)
		for _, w := range wants {
			if err != nil || !strings.Contains(out, w) {
				return false
			}
		}
		return true
	}
}

// TestReport has pods report their progress. By it e-las takes the GPUs of one that has hardly begun, which
// without it would keep them; the end of another is predicted, and predicted again when the scheduler was killed.
func TestReport(t *testing.T) {
	t.Parallel()
	r := newReporting(t)
	conf := filepath.Join(r.dir, "kube.yaml")
	if err := os.WriteFile(conf, []byte("policy: e-las:beta=0.001,T0=1s\nmin_runtime: 0s\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	kill := r.lead("--config", conf)
	r.create(controlplane.Node("n1", 8, nil))
	r.create(r.pod("long", 8, nil))
	long := r.runs("long")
	r.create(controlplane.Pod("next", 8, nil))
	r.must(r.ann, []string{"why", "next"}, "default/long")
	began := time.Now()
	r.p.Wait("e-las leaves who reports nothing where it is", func(context.Context) bool {
		return time.Since(began) > 3*time.Second
	})
	r.must(r.ann, []string{"why", "next"}, "default/long")
	end, step := r.sidecar(long), 0
	r.works("long", &step, 1_000_000, "next gets the GPUs of who has hardly begun", func(ctx context.Context) bool {
		p, err := r.c.CoreV1().Pods("default").Get(ctx, "next", metav1.GetOptions{})
		return err == nil && p.Status.Phase == v1.PodRunning
	})
	end()

	r.create(controlplane.Node("n2", 8, nil))
	if _, err := r.c.BatchV1().Jobs("default").Create(t.Context(), r.example(), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	train := ""
	r.p.Wait("the example has a pod", func(ctx context.Context) bool {
		list, err := r.c.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "job-name=train"})
		if err == nil && len(list.Items) == 1 {
			train = list.Items[0].Name
		}
		return train != ""
	})
	end, step = r.sidecar(r.runs(train)), 0
	r.works(train, &step, 5000, "its end is predicted",
		r.says([]string{"why", train}, "expected to end", "by its progress"))
	r.must(r.ann, []string{"show", train}, `"end_by": "progress"`, `"samples_per_s": 12.5`, `"loss"`)
	r.must(r.ann, []string{"perf", "measured"}, "resnet50", "12.5 samples/s in 1 run")
	kill()
	r.lead("--config", conf)
	r.works(train, &step, 5000, "its end is predicted by the next scheduler",
		r.says([]string{"why", train}, "by its progress"))
	r.writes(train, `{"checkpoint": "/ckpt/7", "finished": true}`)
	end()
	r.must(r.ann, []string{"show", train}, `"checkpoint": "/ckpt/7"`)
}

// A pod reports for itself, with a token that was made for that; all else is refused, and says what would be right.
func TestReportRefused(t *testing.T) {
	t.Parallel()
	r := newReporting(t)
	r.lead("--listen", "127.0.0.1:0")
	r.create(controlplane.Node("n1", 8, nil))
	r.create(r.pod("one", 4, nil), r.pod("two", 4, nil))
	one, two := r.runs("one"), r.runs("two")
	// not before: the API server's times are whole seconds, and of one second any may be first
	r.create(r.pod("waits", 8, nil))
	waits, err := r.c.CoreV1().Pods("default").Get(t.Context(), "waits", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	side, err := (&reportFlags{file: "none", to: "https://" + r.address, sum: one.Annotations[kube.AnnotationSum],
		every: time.Second}).reporter(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := side.trust(); err != nil {
		t.Fatal(err)
	}
	forged := func(token string) string { // two's, in whose middle one stands
		a, b := strings.Split(token, "."), strings.Split(r.token(one, api.ReportAudience), ".")
		return a[0] + "." + b[1] + "." + a[2]
	}
	post := func(token, body string) (code int, text string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, side.to, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		res, err := side.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		var p struct{ Detail string }
		_ = json.NewDecoder(res.Body).Decode(&p)
		return res.StatusCode, p.Detail
	}
	const fine = `{"lines": 1, "progress": {"step": 7, "steps": 10}}`
	for _, c := range []struct {
		name, token, body string
		code              int
		text              string
	}{
		{"no token", "x", fine, 401, "audience muster"},
		{"for another", r.token(one, "https://kubernetes.default.svc.cluster.local"), fine, 401,
			"audience muster"},
		{"forged", forged(r.token(two, api.ReportAudience)), fine, 401, "audience muster"},
		{"of one that waits", r.token(waits, api.ReportAudience), fine, 404, "default/waits"},
		{"no number", r.token(one, api.ReportAudience), `{"lines": 1, "progress": {"step": -1}}`, 422,
			"progress.step: -1 is not between 0 and 1e+15"},
		{"at once again", r.token(one, api.ReportAudience), fine, 429, "default/one"},
		{"of another", r.token(two, api.ReportAudience), fine, 204, ""},
	} {
		if code, text := post(c.token, c.body); code != c.code || !strings.Contains(text, c.text) {
			t.Errorf("%s: %d %q, not %d %q", c.name, code, text, c.code, c.text)
		}
	}
	r.must(r.ann, []string{"show", "two"}, `"step": 7`)
	if out, err := r.muster(r.ann, "show", "one"); err != nil || strings.Contains(out, `"step": 7`) {
		t.Errorf("what two reported counts for one: %v %s", err, out)
	}
	long := strings.Repeat(" ", api.MaxReport) + fine
	if r.p.Wait("it may report again", func(context.Context) bool {
		code, _ := post(r.token(one, api.ReportAudience), long)
		return code == 413
	}); t.Failed() {
		return
	}
}
