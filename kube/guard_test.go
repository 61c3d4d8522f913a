package kube

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/muster-gpu/muster/internal/controlplane"
	"github.com/muster-gpu/muster/internal/kubeapi"
	"github.com/muster-gpu/muster/kube/plans"
	"github.com/muster-gpu/muster/kube/retry"
)

// guard is an audit that never sleeps. It sees every state of the pods that the
// API server ever had while it was there, one after the other, and complains of
// a node that has given away more GPUs than it has, of a pod that moved, and of
// a gang that is bound by two plans at once.
type guard struct {
	b    *bench
	have map[string]int64 // GPUs of each node
	stop func()

	mu     sync.Mutex
	pods   map[types.UID]held1
	used   map[string]int64
	gangs  map[string]map[string]int // live pods by gang and plan
	first  map[types.UID]string      // where a pod was bound
	graces map[string]int64          // by pod's name: seconds that it was given to end
	ended  map[types.UID]bool        // pods that came to their end
	most   int64                     // GPUs that were in use at one time
	lists  int                       // how often it had to begin again
}

// held1 is what one pod holds.
type held1 struct {
	node, gang, plan string
	gpus             int64
}

// guard begins to watch. Nodes are those of have, by name, with their GPUs.
func (b *bench) guard(have map[string]int64) *guard {
	b.Helper()
	ctx, cancel := context.WithCancel(b.ctx)
	g := &guard{b: b, have: have, pods: map[types.UID]held1{}, used: map[string]int64{},
		gangs: map[string]map[string]int{},
		first: map[types.UID]string{}, graces: map[string]int64{}, ended: map[types.UID]bool{}}
	c, done := b.p.Client(), make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			g.follow(ctx, c)
			retry.Pause(ctx, 20*time.Millisecond)
		}
	}()
	g.stop = sync.OnceFunc(func() {
		cancel()
		<-done
	})
	b.Cleanup(g.stop)
	return g
}

// follow lists the pods and then sees each change, until that breaks.
func (g *guard) follow(ctx context.Context, c *kubeapi.Clientset) {
	list, err := c.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	g.mu.Lock()
	g.lists++
	clear(g.pods)
	clear(g.used)
	clear(g.gangs)
	for i := range list.Items {
		g.book(&list.Items[i], false)
	}
	g.check()
	g.mu.Unlock()
	w, err := c.CoreV1().Pods("default").Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		return
	}
	defer w.Stop()
	for ev := range w.ResultChan() {
		p, ok := ev.Object.(*v1.Pod)
		if !ok {
			return // an error: begin again
		}
		g.mu.Lock()
		g.book(p, ev.Type == watch.Deleted)
		g.check()
		g.mu.Unlock()
	}
}

// book changes the books by what a pod holds now.
func (g *guard) book(p *v1.Pod, gone bool) {
	if was, ok := g.pods[p.UID]; ok {
		delete(g.pods, p.UID)
		g.count(was, -1)
	}
	if s := p.DeletionGracePeriodSeconds; s != nil && *s > 0 && g.graces[p.Name] == 0 {
		g.graces[p.Name] = *s
	}
	if was := g.first[p.UID]; was != "" && was != p.Spec.NodeName {
		g.b.Errorf("pod %s was on %s and is on %q", p.Name, was, p.Spec.NodeName)
	}
	g.first[p.UID] = p.Spec.NodeName
	if p.Status.Phase == v1.PodSucceeded {
		g.ended[p.UID] = true
	}
	if gone || !live(p) {
		return
	}
	q := p.Spec.Containers[0].Resources.Limits["nvidia.com/gpu"]
	h := held1{p.Spec.NodeName, p.Labels[LabelGang], p.Annotations[AnnotationPlan], q.Value()}
	g.pods[p.UID] = h
	g.count(h, 1)
}

func (g *guard) count(h held1, by int) {
	g.used[h.node] += int64(by) * h.gpus
	if h.gang == "" || h.plan == "" {
		return
	}
	if g.gangs[h.gang] == nil {
		g.gangs[h.gang] = map[string]int{}
	}
	if g.gangs[h.gang][h.plan] += by; g.gangs[h.gang][h.plan] == 0 {
		delete(g.gangs[h.gang], h.plan)
	}
}

// check looks at one state of the cluster.
func (g *guard) check() {
	sum := int64(0)
	for n, k := range g.used {
		sum += k
		if k > g.have[n] {
			g.b.Errorf("node %s has %d GPUs, and at one time %d were given away", n, g.have[n], k)
			g.have[n] = k // say it once
		}
	}
	g.most = max(g.most, sum)
	for gang, plans := range g.gangs {
		repairs := map[int]bool{}
		for text := range plans {
			repairs[repairs1(text)] = true
		}
		if len(plans) > len(repairs) { // a repaired gang has a plan for each time
			g.b.Errorf("gang %s was bound by two plans at a time: %q", gang, slices.Sorted(maps.Keys(plans)))
			delete(g.gangs, gang)
		}
	}
}

// repairs1 is how many repairs a plan has seen.
func repairs1(text string) int {
	p := plans.Of(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{AnnotationPlan: text}}})
	if p == nil {
		return 0
	}
	return p.Repair
}

// over counts the pods that came to their end.
func (g *guard) over() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.ended)
}

// grace is how many seconds a pod was given to end; 0: it was not asked to.
func (g *guard) grace(pod string) int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.graces[pod]
}

// crew keeps gangs, as their owners do: it makes their pods, makes those again
// that dropPlaceholder, and has them run to their end.
type crew struct {
	b    *bench
	list []*team
	made int // pods
	once map[string]bool
	// owner is the controller that the pods name; nil: none.
	owner []metav1.OwnerReference
}

// crewLabel says which of a crew's pods a pod is.
const crewLabel = "test.muster.sh/crew"

func (b *bench) crew() *crew { return &crew{b: b, once: map[string]bool{}} }

// team is one gang of a crew.
type team struct {
	name       string
	size, gpus int
	more       map[string]string
	done       bool // all of it has run
	dropped    bool // it is not wanted any more
}

func (c *crew) add(name string, size, gpus int, more map[string]string) *team {
	t := &team{name: name, size: size, gpus: gpus, more: more}
	c.list = append(c.list, t)
	return t
}

// tend looks after all gangs once and reports whether each has run to its end.
// The API server may be away: then it does what it can.
func (c *crew) tend() bool {
	list, err := c.b.c.CoreV1().Pods("default").List(c.b.ctx, metav1.ListOptions{})
	if err != nil {
		return false
	}
	pods := map[string]*v1.Pod{}
	for i := range list.Items {
		pods[list.Items[i].Labels[crewLabel]] = &list.Items[i]
	}
	all := true
	for _, t := range c.list {
		if !t.done {
			c.look(t, pods)
		}
		all = all && t.done
	}
	return all
}

// look makes what a gang lacks. One that has to begin again does so as a whole:
// those of its pods that had come to their end run again.
func (c *crew) look(t *team, pods map[string]*v1.Pod) {
	var missing, over, open []*v1.Pod
	there := 0
	for _, p := range controlplane.Gang(t.name, t.size, t.gpus, t.more) {
		p.Labels[crewLabel], p.OwnerReferences = p.Name, c.owner
		switch q := pods[p.Name]; {
		case q == nil:
			missing = append(missing, p)
			continue
		case q.Status.Phase == v1.PodSucceeded:
			over = append(over, q)
		case q.Status.Phase == v1.PodFailed && q.DeletionTimestamp == nil:
			c.remove(q)
		case t.dropped && q.DeletionTimestamp == nil:
			c.remove(q)
		case q.Spec.NodeName == "":
			open = append(open, q)
		}
		there++
	}
	switch {
	case t.dropped && there == len(over):
		t.done = true
	case t.dropped:
	case len(over) == t.size:
		t.done = true
	case len(missing) == 0 && len(over) > 0 && len(over)+len(open) == t.size &&
		slices.ContainsFunc(open, func(p *v1.Pod) bool {
			// made within the same second, perhaps
			return p.CreationTimestamp.After(over[0].Status.StartTime.Time) || strings.Contains(p.Name, "-again-")
		}):
		// they succeeded while the others left: these are another run, which waits for all of it
		for _, q := range over {
			c.remove(q)
		}
	case len(missing) > 0:
		for _, q := range over {
			c.remove(q)
		}
		if len(over) > 0 && len(missing)+len(over) < t.size {
			return // others of it still run: it begins again when they are over
		}
		for _, p := range missing {
			if c.once[p.Name] { // what plays the nodes takes a pod for an earlier one of its name
				p.Name = fmt.Sprintf("%s-again-%d", p.Name, c.made)
			}
			if _, err := c.b.c.CoreV1().Pods("default").Create(c.b.ctx, p, metav1.CreateOptions{}); err == nil {
				c.made++
				c.once[p.Labels[crewLabel]] = true
			}
		}
	}
}

func (c *crew) remove(p *v1.Pod) {
	if err := c.b.c.CoreV1().Pods("default").Delete(c.b.ctx, p.Name, *deleteOptions(p.UID, 0)); err != nil &&
		!apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		c.b.Logf("pod %s cannot be deleted now: %v", p.Name, err)
	}
}

func deleteOptions(uid types.UID, seconds int64) *metav1.DeleteOptions {
	return &metav1.DeleteOptions{GracePeriodSeconds: &seconds, Preconditions: &metav1.Preconditions{UID: &uid}}
}

// finish tends until all have run, and then says which have not, if any.
func (c *crew) finish() {
	c.b.Helper()
	c.b.wait("all gangs have run to their end: "+fmt.Sprint(len(c.list)), c.tend)
}

// holding counts the pods of a gang that hold something.
func (b *bench) holding(gang string) (n int) {
	list, err := b.c.CoreV1().Pods("default").List(b.ctx, metav1.ListOptions{LabelSelector: LabelGang + "=" + gang})
	if err != nil {
		return 0
	}
	for i := range list.Items {
		if live(&list.Items[i]) {
			n++
		}
	}
	return n
}
