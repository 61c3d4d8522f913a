package kube

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/controlplane"
	"github.com/muster-gpu/muster/kube/queues"
)

// kubectl runs kubectl as an admin and returns what it wrote.
func (b *bench) kubectl(args ...string) (string, error) {
	out, err := exec.CommandContext(b.ctx, b.p.Program("kubectl"),
		append([]string{"--kubeconfig", b.p.Kubeconfig}, args...)...).CombinedOutput()
	return string(out), err
}

// installQueues applies the definition of Queue objects that deploy/ has.
func (b *bench) installQueues(c dynamic.Interface) {
	b.Helper()
	if out, err := b.kubectl("apply", "--server-side", "-f", "../deploy/base/queues.yaml"); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	b.wait("Queue objects are served", func() bool {
		_, err := c.Resource(queues.Resource).List(b.ctx, metav1.ListOptions{})
		return err == nil
	})
}

// objects is a client for Queue objects.
func (b *bench) objects() dynamic.Interface {
	b.Helper()
	rc := rest.CopyConfig(b.p.Admin)
	rc.QPS = -1
	c, err := dynamic.NewForConfig(rc)
	if err != nil {
		b.Fatal(err)
	}
	return c
}

// queue makes a Queue object, or replaces its spec.
func (b *bench) queue(c dynamic.Interface, name, spec string) error {
	b.Helper()
	var fields map[string]any
	if err := json.Unmarshal([]byte(spec), &fields); err != nil {
		b.Fatal(err)
	}
	q := &unstructured.Unstructured{
		Object: map[string]any{"apiVersion": queues.Resource.GroupVersion().String(), "kind": "Queue",
			"metadata": map[string]any{"name": name}, "spec": fields}}
	if _, err := c.Resource(queues.Resource).Create(b.ctx, q, metav1.CreateOptions{}); err == nil ||
		!strings.Contains(err.Error(), "already exists") {
		return err
	}
	text, err := json.Marshal([]map[string]any{{"op": "replace", "path": "/spec", "value": fields}})
	if err != nil {
		b.Fatal(err)
	}
	_, err = c.Resource(queues.Resource).Patch(b.ctx, name, types.JSONPatchType, text, metav1.PatchOptions{})
	return err
}

// status is the status of a Queue object.
func (b *bench) status(c dynamic.Interface, name string) (s queues.Status) {
	b.Helper()
	u, err := c.Resource(queues.Resource).Get(b.ctx, name, metav1.GetOptions{})
	if err != nil {
		b.Fatal(err)
	}
	text, err := json.Marshal(u.Object["status"])
	if err != nil || json.Unmarshal(text, &s) != nil {
		b.Fatalf("%s, %v", text, err)
	}
	return s
}

func says(s *queues.Status, kind string, status metav1.ConditionStatus, text string) bool {
	return slices.ContainsFunc(s.Conditions, func(c metav1.Condition) bool {
		return c.Type == kind && c.Status == status && strings.Contains(c.Message, text)
	})
}

// Queue objects count from when they are known to the cluster, and at once: a limit that is raised lets a pod start, a
// guarantee is reclaimed, a spec that cannot be used is told and changes nothing,
// pods of other namespaces wait and say so; the status says what is used.
func testQueues(b *bench) {
	b.nodes(4, "n1", "n2")
	c := b.objects()
	file := []cluster.Queue{{Name: "night", Limit: cluster.Unlimited, Lend: cluster.Unlimited},
		{Name: "product", Guarantee: 8 * cluster.Whole, Limit: cluster.Unlimited, Lend: cluster.Unlimited}}
	_, stop := b.schedule(func(o *Options) {
		o.Dynamic, o.Rescan = c, 100*time.Millisecond
		o.Rules.Spec.Queues = file
	})
	b.installQueues(c)
	must := func(name, spec string) {
		b.Helper()
		if err := b.queue(c, name, spec); err != nil {
			b.Fatal(err)
		}
	}
	defer func() {
		_ = c.Resource(queues.Resource).DeleteCollection(b.ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	}()
	must("research", `{"guarantee": 4, "limit": 2000, "namespaces": ["default"]}`)
	must("product", `{"guarantee": 4, "limit": 4}`)
	must("closed", `{"namespaces": ["elsewhere-*"]}`)
	in := func(name, queue string, gpus int) *v1.Pod {
		return controlplane.Pod(name, gpus, map[string]string{LabelQueue: queue})
	}
	version := func(name string) string {
		u, err := c.Resource(queues.Resource).Get(b.ctx, name, metav1.GetOptions{})
		if err != nil {
			b.Fatal(err)
		}
		return u.GetResourceVersion()
	}
	b.create(in("r1", "research", 4), in("r2", "research", 4), in("wrong", "closed", 1), in("late", "later", 1))
	b.wait("research borrows everything", func() bool { return live(b.pod("r1")) && live(b.pod("r2")) })
	b.wait("its status says so", func() bool {
		s := b.status(c, "research")
		return s.Used == 8 && s.Borrowed == 4 && s.Share == "100%" && s.Running == 2 && s.Guarantee == 4 &&
			says(&s, queues.Ready, metav1.ConditionTrue, "") && says(&s, queues.Guaranteed, metav1.ConditionTrue, "")
	})
	b.wait("a pod of another namespace says why it waits", func() bool {
		return strings.Contains(condition(b.pod("wrong")).Message,
			"queue closed takes pods of elsewhere-*, this one's namespace is default")
	})
	b.wait("its queue counts it as waiting", func() bool { return b.status(c, "closed").Pending == 1 })
	b.wait("a pod without a queue says so", func() bool {
		return strings.Contains(condition(b.pod("late")).Message, `unknown queue "later"`)
	})
	before := version("closed")
	b.create(in("p1", "product", 4))
	b.wait("product gets back what it is guaranteed", func() bool { return live(b.pod("p1")) })
	b.create(in("p2", "product", 1))
	b.wait("product is at its limit, and says so in pod and queue", func() bool {
		s := b.status(c, "product")
		return s.Pending == 1 && s.PendingGPUs == 1 && s.OldestPending != nil &&
			strings.Contains(condition(b.pod("p2")).Message, "limit 4")
	})
	if now := version("closed"); now != before {
		b.Errorf("the status of a queue to which nothing happened was written: version %s, then %s", before, now)
	}
	must("product", `{"guarantee": 4, "parent": "nobody"}`)
	b.wait("a spec that cannot be used is told, and the one before counts", func() bool {
		s := b.status(c, "product")
		return says(&s, queues.Ready, metav1.ConditionFalse, `unknown parent "nobody"`) && s.Guarantee == 4 &&
			s.Used == 4
	})
	stop()
	_, stop = b.schedule(func(o *Options) { o.Dynamic = c })
	defer stop()
	must("later", `{"guarantee": 100}`)
	b.wait("a guarantee beyond the cluster is told", func() bool {
		s := b.status(c, "later")
		return says(&s, queues.Guaranteed, metav1.ConditionFalse, "100 GPUs are guaranteed") &&
			says(&s, queues.Ready, metav1.ConditionTrue, "")
	})
	b.wait("the next scheduler knows the spec that counts", func() bool {
		s := b.status(c, "product")
		return says(&s, queues.Ready, metav1.ConditionFalse, `unknown parent "nobody"`) &&
			s.InForce == `{"guarantee":4,"limit":4}`
	})
	must("later", `{"guarantee": 0}`)
	must("closed", `{"namespaces": ["default"]}`)
	must("product", `{"guarantee": 0}`)
	must("research", `{"guarantee": 0}`)
	now := int64(0)
	for _, name := range []string{"p1", "r1", "r2"} {
		_ = b.c.CoreV1().Pods("default").Delete(b.ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &now})
	}
	b.wait("what waited for a change of a queue runs", func() bool {
		return live(b.pod("wrong")) && live(b.pod("late")) && live(b.pod("p2"))
	})
	if err := c.Resource(queues.Resource).Delete(b.ctx, "later", metav1.DeleteOptions{}); err != nil {
		b.Fatal(err)
	}
	// The scheduler hears of queues and of pods on different ways: the first pods may still be taken.
	tries := 0
	b.wait("a queue that is gone takes none, and what runs goes on", func() bool {
		name := fmt.Sprintf("gone-%d", tries)
		if tries == 0 || live(b.pod(name)) {
			_ = b.c.CoreV1().Pods("default").Delete(b.ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &now})
			tries++
			b.create(in(fmt.Sprintf("gone-%d", tries), "later", 1))
			return false
		}
		return strings.Contains(condition(b.pod(name)).Message, `"later"`) && live(b.pod("late"))
	})
	b.table()
	b.refused(c)
}

// table is what kubectl shows first.
func (b *bench) table() {
	b.Helper()
	out, err := b.kubectl("get", "queues")
	head, _, _ := strings.Cut(out, "\n")
	if want := "NAME GUARANTEE USED SHARE RUNNING PENDING OLDEST WAITS READY"; err != nil ||
		strings.Join(strings.Fields(head), " ") != want {
		b.Errorf("kubectl get queues: %v\n%s", err, out)
	}
}

// refused are specs that the API server itself refuses, with words that help.
func (b *bench) refused(c dynamic.Interface) {
	b.Helper()
	for spec, want := range map[string]string{
		`{"guarantee": 4, "limit": 2}`:                           "guarantee is above limit",
		`{"guarantee": -1}`:                                      "should be greater than or equal to 0",
		`{"guarantee": 1, "reserve": 2}`:                         "reserve is above guarantee",
		`{"guarantee": 1, "lend": 2}`:                            "lend is above guarantee",
		`{"period": "30d"}`:                                      "period without budget",
		`{"budget": 10, "period": "a month"}`:                    "spec.period",
		`{"parent": "bad"}`:                                      "a queue is not its own parent",
		`{"tiers": ["urgent"]}`:                                  `supported values: "critical", "standard", "best-effort"`,
		`{"namespaces": ["*"]}`:                                  "spec.namespaces",
		`{"windows": [{"from": "22h", "to": "7h"}]}`:             "a window changes guarantee, limit or both",
		`{"windows": [{"from": "25h", "to": "7h", "limit": 1}]}`: "spec.windows[0].from",
		`{"weight": 1e9}`:                                        "spec.weight",
	} {
		if err := b.queue(c, "bad", spec); err == nil || !strings.Contains(err.Error(), want) {
			b.Errorf("%s: %v, want %s", spec, err, want)
		}
	}
	if err := b.queue(c, strings.Repeat("x", 64), `{}`); err == nil ||
		!strings.Contains(err.Error(), "at most 63 characters") {
		b.Errorf("a long name: %v", err)
	}
	good := `{"parent": "research", "guarantee": 0.5, "limit": 8.25, "lend": 0.5, "weight": 2, "noReclaim": true, "userGPUs": 4, "userJobs": 3, "maxJobs": 9,
		"budget": 1000, "period": "4w", "shares": 3, "priority": -1, "tiers": ["standard"], "namespaces": ["a", "b-*"],
		"windows": [{"days": ["mon-fri", "sun"], "from": "22h", "to": "07:00", "guarantee": 0.25}]}`
	if err := b.queue(c, "all", good); err != nil {
		b.Error(err)
	}
	b.wait("everything that a queue can say is understood", func() bool {
		s := b.status(c, "all")
		return len(s.Conditions) > 0
	})
	if s := b.status(c, "all"); !says(&s, queues.Ready, metav1.ConditionTrue, "") {
		b.Errorf("%+v", s.Conditions)
	}
}
