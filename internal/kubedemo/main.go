// Command kubedemo is make kube-demo: a real control plane on this machine, with nodes simulated by KWOK, on
// which Muster is installed from deploy/ and schedules a team's worth of work.
package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/internal/controlplane"
	"github.com/muster-gpu/muster/internal/controlplane/binaries"
	"github.com/muster-gpu/muster/internal/kubeapi"
)

//go:embed work.yaml
var work string

//go:embed more.yaml
var more string

//go:embed queues.yaml
var queues string

// nodes of the demo, in two NVLink domains.
const nodes, gpus, perDomain = 8, 8, 4

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	h := &host{ctx: ctx}
	defer h.end()
	root, err := binaries.Root(ctx)
	if err != nil {
		h.Fatal(err)
	}
	d := &demo{Host: h, root: root, program: filepath.Join(root, "muster-kube"), out: os.Stdout}
	d.run()
	d.stay()
}

// host ends what was started when the program ends.
type host struct {
	ctx  context.Context
	ends []func()
}

func (h *host) Helper()                         {}
func (h *host) Context() context.Context        { return h.ctx }
func (h *host) Logf(format string, args ...any) { fmt.Printf(format+"\n", args...) }
func (h *host) Cleanup(f func())                { h.ends = append(h.ends, f) }

func (h *host) end() {
	for i := range slices.Backward(h.ends) {
		h.ends[i]()
	}
	h.ends = nil
}

// Fatal ends the program; after Ctrl-C silently.
func (h *host) Fatal(args ...any) {
	failed := h.ctx.Err() == nil
	if failed {
		fmt.Fprintln(os.Stderr, append([]any{"kube-demo:"}, args...)...)
	}
	h.end()
	if failed {
		os.Exit(1)
	}
	os.Exit(0)
}

func (h *host) Fatalf(format string, args ...any) { h.Fatal(fmt.Sprintf(format, args...)) }

// demo is the state of the demo.
type demo struct {
	controlplane.Host
	root    string // of the repository
	program string // muster-kube
	out     io.Writer
	p       *controlplane.Plane
	c       *kubeapi.Clientset
	dir     string // for files that live as long as the demo
}

// run runs the demo.
func (d *demo) run() {
	d.say("A control plane of this machine: etcd, kube-apiserver, kube-controller-manager, and KWOK, which plays nodes and kubelets.",
		"The first time they are built from their Go modules, which takes some ten minutes of two processors.")
	d.p = controlplane.Start(d, controlplane.Options{Controllers: true})
	d.c = d.p.Client()
	d.dir = filepath.Dir(d.p.Kubeconfig)
	for i := range nodes {
		n := controlplane.Node(fmt.Sprintf("gpu-%d", i+1), gpus,
			map[string]string{"nvidia.com/gpu.clique": fmt.Sprintf("nvl-%d", i/perDomain+1)})
		if _, err := d.c.CoreV1().Nodes().Create(d.Context(), n, metav1.CreateOptions{}); err != nil {
			d.Fatal(err)
		}
	}
	d.show("kubectl", "get", "nodes", "-L", "nvidia.com/gpu.product,nvidia.com/gpu.clique")
	d.install()
	d.say("A team's work: pretraining that must stay inside one NVLink domain, services, and single GPUs that give way to anybody.")
	d.apply(work)
	d.p.Wait("the first of it runs", func(context.Context) bool {
		out, err := d.try("kubectl", "get", "queues", "-o", "jsonpath={.items[*].status.used}")
		return err == nil && out == "16 4 32"
	})
	d.say("And more than fits:")
	d.apply(more)
	d.settled()
	d.look()
}

// roomy is a limit of queue research with which its waiting work starts.
const roomy = 44

// stay keeps the demo running until Ctrl-C.
func (d *demo) stay() {
	d.say("It runs until Ctrl-C. In a second terminal:",
		"  export KUBECONFIG="+d.p.Kubeconfig+" PATH=\"$PATH:"+filepath.Dir(d.p.Program("kubectl"))+"\"",
		"  ./muster --context test top              # or queue, nodes, usage",
		"  ./muster --context test dashboard        # the same in a browser",
		"  kubectl get queues -w",
		fmt.Sprintf("  kubectl edit queue research       # to a limit of %d, for example: jobs that wait for it start at once", roomy),
		"  kubectl -n lab delete job sweep   # its GPUs go to the next job",
		"  kubectl get events -A | grep Scheduling")
	<-d.Context().Done()
	fmt.Fprintln(d.out)
}

// install installs Muster from deploy/ and starts the scheduler.
func (d *demo) install() {
	d.say("Muster is installed as in docs/guide/kubernetes.md: the definition of queues, an account with its rights, a Deployment.")
	d.show("kubectl", "apply", "--server-side", "-k", "deploy/base")
	d.p.Wait("queues are served", func(context.Context) bool {
		_, err := d.try("kubectl", "get", "queues")
		return err == nil
	})
	d.apply(queues)
	d.say("There are no real kubelets here, so the Deployment's pods cannot run. Instead, the same program runs outside the cluster, with the",
		"arguments and the configuration of the Deployment, and with a token of its ServiceAccount: it has exactly the rights that deploy/ gives.")
	d.scheduler()
}

// scheduler starts muster-kube as the Deployment would.
func (d *demo) scheduler() {
	const namespace = "muster-system"
	hours := int64(24 * 3600)
	token, err := d.c.CoreV1().ServiceAccounts(namespace).CreateToken(d.Context(), "muster",
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &hours}},
		metav1.CreateOptions{})
	if err != nil {
		d.Fatal(err)
	}
	conf, err := d.c.CoreV1().ConfigMaps(namespace).Get(d.Context(), "muster", metav1.GetOptions{})
	if err != nil {
		d.Fatal(err)
	}
	deployment, err := d.c.AppsV1().Deployments(namespace).Get(d.Context(), "muster", metav1.GetOptions{})
	if err != nil {
		d.Fatal(err)
	}
	kubeconfig, file := d.file("muster.kubeconfig", d.p.KubeconfigFor(token.Status.Token)),
		d.file("muster.yaml", []byte(conf.Data["muster.yaml"]))
	address, api := d.address(), d.address()
	d.route(api)
	args := []string{"--kubeconfig", kubeconfig}
	for _, a := range deployment.Spec.Template.Spec.Containers[0].Args {
		args = append(args, strings.NewReplacer("/etc/muster/muster.yaml", file, "=:9095", "="+address, "=:8443",
			"="+api, "$(POD_NAMESPACE)", namespace).Replace(a))
	}
	log, err := os.Create(filepath.Join(d.dir, "muster-kube.log"))
	if err != nil {
		d.Fatal(err)
	}
	c := exec.Command(d.program, args...)
	c.Stdout, c.Stderr = log, log
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true} // Ctrl-C is for this program only
	if err := c.Start(); err != nil {
		d.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	d.Cleanup(func() {
		_ = c.Process.Signal(syscall.SIGTERM)
		if err := <-ended; err != nil {
			d.Logf("muster-kube: %v", err)
		}
	})
	fmt.Fprintf(d.out, "$ muster-kube %s\n", strings.Join(args, " "))
	d.p.Wait("the scheduler leads", func(context.Context) bool {
		select {
		case err := <-ended:
			text, _ := os.ReadFile(log.Name())
			ended <- err
			d.Fatalf("the scheduler ended: %v\n%s", err, text)
		default:
		}
		return d.leads(address)
	})
}

// route lets the API server find the scheduler: Services are not routed here, so the Service becomes a name.
func (d *demo) route(api string) {
	_, port, err := net.SplitHostPort(api)
	if err != nil {
		d.Fatal(err)
	}
	for _, args := range [][]string{{"-n", "muster-system", "delete", "service", "muster-view"},
		{"-n", "muster-system", "create", "service", "externalname", "muster-view", "--external-name", "localhost"},
		{"patch", "apiservice", "v1.view.muster.sh", "--type", "merge", "-p",
			`{"spec":{"service":{"port":` + port + `}}}`}} {
		if out, err := d.try(append([]string{"kubectl"}, args...)...); err != nil {
			d.Fatalf("%v: %s", err, out)
		}
	}
}

// leads reports whether the scheduler says that it leads.
func (d *demo) leads(address string) bool {
	req, err := http.NewRequestWithContext(d.Context(), http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		d.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	var text bytes.Buffer
	_, err = text.ReadFrom(resp.Body)
	return err == nil && strings.Contains(text.String(), "muster_kube_leading 1")
}

// settled waits until what can run runs, and what waits says why.
func (d *demo) settled() {
	d.p.Wait("what fits runs, and the rest knows why it waits", func(context.Context) bool {
		list, err := d.c.CoreV1().Pods("").List(d.Context(), metav1.ListOptions{})
		told, waits := 0, 0
		for i := range list.Items {
			p := &list.Items[i]
			if p.Spec.SchedulerName != "muster" || p.Spec.NodeName != "" {
				continue
			}
			waits++
			if slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool {
				return c.Type == v1.PodScheduled && c.Message != ""
			}) {
				told++
			}
		}
		out, _ := d.try("kubectl", "get", "queues", "product", "research", "-o",
			"jsonpath={.items[*].status.used} {.items[*].status.pending}")
		return err == nil && waits > 0 && told == waits && out == "12 33 0 1"
	})
}

// muster is a command of muster against the cluster.
func (d *demo) muster(args ...string) []string {
	return append([]string{"muster", "--context", "test"}, args...)
}

// look shows the present state.
func (d *demo) look() {
	d.show("kubectl", "get", "queues")
	d.show("kubectl", "get", "jobs,deployments", "-A", "--field-selector", "metadata.namespace!=muster-system")
	d.say("Muster's own commands ask the cluster through its API server, as your user there:")
	d.p.Wait("the API server knows the scheduler's address", func(context.Context) bool {
		_, err := d.try(d.muster("queue")...)
		return err == nil
	})
	d.show(d.muster("queue")...)
	d.show(d.muster("why", "research/ablation")...)
	d.say("Every waiting pod says why, too:")
	d.show("kubectl", "get", "pods", "-A", "-l", "muster.sh/queue", "--field-selector", "spec.nodeName=", "-o",
		`jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.name}: {.status.conditions[?(@.type=="PodScheduled")].message}{"\n"}{end}`)
}

func (d *demo) say(lines ...string) { fmt.Fprintln(d.out, "\n"+strings.Join(lines, "\n")) }

// show runs a command in the repository as if it had been typed.
func (d *demo) show(args ...string) {
	quoted := slices.Clone(args)
	for i, a := range quoted {
		if strings.ContainsAny(a, " *={}!") {
			quoted[i] = "'" + a + "'"
		}
	}
	fmt.Fprintln(d.out, "\n$ "+strings.Join(quoted, " "))
	out, err := d.try(args...)
	fmt.Fprint(d.out, out)
	if err != nil {
		d.Fatal(err)
	}
}

// try runs kubectl as an admin, or another program of the repository.
func (d *demo) try(args ...string) (string, error) {
	program := filepath.Join(filepath.Dir(d.program), args[0])
	if args[0] == "kubectl" {
		program = d.p.Program("kubectl")
	}
	c := exec.CommandContext(d.Context(), program, args[1:]...)
	c.Dir, c.Env = d.root, append(os.Environ(), "KUBECONFIG="+d.p.Kubeconfig)
	out, err := c.CombinedOutput()
	return string(out), err
}

func (d *demo) apply(text string) {
	c := exec.CommandContext(d.Context(), d.p.Program("kubectl"), "--kubeconfig", d.p.Kubeconfig, "apply", "-f", "-")
	c.Stdin = strings.NewReader(text)
	out, err := c.CombinedOutput()
	fmt.Fprint(d.out, string(out))
	if err != nil {
		d.Fatal(errors.Join(err, errors.New("kubectl apply")))
	}
}

func (d *demo) file(name string, data []byte) string {
	path := filepath.Join(d.dir, name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		d.Fatal(err)
	}
	return path
}

// address is an unused address of this machine.
func (d *demo) address() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		d.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
