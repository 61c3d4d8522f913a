package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/bits"
	"reflect"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/quota"
)

// Queue objects: watched where the cluster knows them, a change of them is a
// change of the engine's tree, and what becomes of them is written into their
// status: not more often than people look, and only what changed.
const (
	statusEvery = 2 * time.Second
	statusPart  = 50               // ... and at most a fiftieth of the time goes into it
	statusAgain = 10 * time.Second // a status that was written and is not seen yet
)

// watchQueues watches Queue objects, from now on or from when their definition
// is there.
func (d *Driver) watchQueues(ctx context.Context) ([]cache.InformerSynced, error) {
	if d.opt.Dynamic == nil {
		return nil, nil
	}
	var served bool
	err := d.untilAnswered(ctx, "are there Queue objects?", func(ctx context.Context) (err error) {
		served, err = d.servesQueues(ctx)
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case served:
		synced, err := d.informQueues(ctx)
		return []cache.InformerSynced{synced}, err
	}
	d.opt.Log.Info("the cluster has no Queue objects (" + QueueResource.GroupVersion().String() + " is not served): the configuration's queues count")
	d.workers.Go(func() {
		tick := time.NewTicker(cmp.Or(d.opt.Rescan, time.Minute))
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if served, err := d.servesQueues(ctx); err == nil && served {
				if _, err := d.informQueues(ctx); err != nil {
					d.opt.Log.Error("Queue objects cannot be watched", "error", err)
				}
				return
			}
		}
	})
	return nil, nil
}

// servesQueues asks whether there are Queue objects. That they are there and may
// not be read is an error: an informer would wait for ever.
func (d *Driver) servesQueues(ctx context.Context) (bool, error) {
	_, err := d.opt.Dynamic.Resource(QueueResource).List(ctx, metav1.ListOptions{Limit: 1})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("queues.%s cannot be listed: %w", QueueResource.Group, err)
	}
	return true, nil
}

func (d *Driver) informQueues(ctx context.Context) (cache.InformerSynced, error) {
	in := dynamicinformer.NewFilteredDynamicInformer(d.opt.Dynamic, QueueResource, "", 0, cache.Indexers{}, nil).Informer()
	put := func(obj any, gone bool) {
		if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = last.Obj
		}
		if u, ok := obj.(*unstructured.Unstructured); ok {
			d.inbox.Put(func() { d.queueChanged(u, gone) })
		}
	}
	reg, err := in.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(obj any) { put(obj, false) },
		UpdateFunc: func(_, obj any) { put(obj, false) }, DeleteFunc: func(obj any) { put(obj, true) }})
	if err != nil {
		return nil, err
	}
	d.workers.Go(func() { in.RunWithContext(ctx) })
	return reg.HasSynced, nil
}

// queueChanged books a Queue object as it is now.
func (d *Driver) queueChanged(u *unstructured.Unstructured, gone bool) {
	old := d.queueObjects[u.GetName()]
	if gone {
		delete(d.queueObjects, u.GetName())
		delete(d.tree.specs, u.GetName()) // another of that name begins anew
		d.queuesAt = d.queuesAt || old != nil
		return
	}
	o, err := queueObjectOf(u)
	if err != nil {
		d.opt.Log.Error("a Queue object cannot be read", "queue", u.GetName(), "error", err)
		return
	}
	if d.queueObjects[o.name] = o; old == nil || o.generation != old.generation || !o.created.Equal(old.created) {
		d.queuesAt = true
	} else {
		o.sent, o.sentAt = old.sent, old.sentAt
	}
	d.statusAt = true
}

// retree finds the queues that count now, and says so where they are others.
func (d *Driver) retree() {
	d.queuesAt = false
	was := d.tree
	for name, text := range was.specs { // what is in force need not have been written yet
		if o := d.queueObjects[name]; o != nil {
			o.inForce = text
		}
	}
	d.tree = mergeQueues(d.opt.Rules.Spec.Queues, d.queueObjects, d.opt.DefaultQueue)
	if len(d.tree.over) > 0 && !slices.Equal(was.over, d.tree.over) {
		d.opt.Log.Info("queues of the configuration file for which a Queue object counts", "queues", d.tree.over)
	}
	if name := d.opt.DefaultQueue; name != "" && len(d.tree.list) > 0 && !d.tree.has(name) && (was == nil || was.has(name) || len(was.list) == 0) {
		d.opt.Log.Warn("there is no queue of the name of default_queue: pods that name none have to wait", "queue", name)
	}
	for _, name := range slices.Sorted(maps.Keys(d.tree.bad)) {
		if was.bad[name] != d.tree.bad[name] {
			d.opt.Log.Warn("a Queue object cannot be used", "queue", name, "why", d.tree.bad[name], "an earlier spec counts", d.tree.rules[name] != nil)
		}
	}
}

// queueEvents tell the engine that the tree is another. Gangs that wait are
// looked at again: what kept them out may be gone, or there may be something now.
func (d *Driver) queueEvents() []engine.Event {
	d.retree()
	d.statusAt = true
	for _, g := range d.gangs {
		if g.phase <= waiting {
			g.refusedFor = nil
			d.touch(g)
			g.since(d.now, d.opt.TellAfter) // what it waits for may be something else now
		}
	}
	fitted := d.fitQueues()
	if sameQueues(fitted, d.fitted) {
		return nil
	}
	d.fitted = fitted
	return []engine.Event{{Type: engine.QueueChanged, Queues: fitted}}
}

func sameQueues(a, b []cluster.Queue) bool {
	return slices.EqualFunc(a, b, func(a, b cluster.Queue) bool { return reflect.DeepEqual(a, b) })
}

// fitQueues fits the tree to the cluster: to all nodes that there are, and where
// the engine would refuse that because too many of them are down, to the others.
func (d *Driver) fitQueues() []cluster.Queue {
	all, up := 0, 0
	for _, n := range d.observed(d.engineNodes()).Nodes {
		all += n.GPUs
		if n.State != cluster.Down {
			up += n.GPUs - bits.OnesCount64(n.Bad)
		}
	}
	list := scaled(d.tree.list, all)
	if _, err := quota.New(list, int64(up)*cluster.Whole); err != nil {
		d.refit = true // when a node comes back
		return scaled(d.tree.list, up)
	}
	d.refit = false
	return list
}

// admits says whether a gang may be in its queue.
func (d *Driver) admits(j *cluster.Job) error {
	return d.tree.admits(cmp.Or(j.Queue, "default"), j.User, j.Tier)
}

// queueCount is what is counted of a queue's gangs.
type queueCount struct {
	running, pending int
	gpus             cluster.Milli // that pending ones ask for
	oldest           time.Time
}

// countQueues counts gangs by queue, those of queues below included.
func (d *Driver) countQueues() map[string]*queueCount {
	own := map[string]*queueCount{}
	for _, g := range d.gangs {
		var first *pod
		name, gpus := "", cluster.Milli(0)
		pending := g.waits()
		switch {
		case g.spec != nil:
			name = g.spec.Queue
		default:
			for _, p := range g.pods {
				if first == nil || podOrder(p, first) < 0 {
					first = p
				}
			}
			if first == nil {
				continue
			}
			name = d.queueOf(g, first.obj)
		}
		if !pending && g.phase < starting {
			continue
		}
		oldest := time.Time{}
		for _, p := range g.pods {
			gpus += p.request.Milli()
			if at := p.obj.CreationTimestamp.Time; oldest.IsZero() || at.Before(oldest) {
				oldest = at
			}
		}
		name = cmp.Or(name, "default")
		if own[name] == nil {
			own[name] = &queueCount{}
		}
		own[name].add(pending, gpus, oldest)
	}
	sum := map[string]*queueCount{}
	for name, c := range own {
		for _, at := range d.tree.path(name) {
			if sum[at] == nil {
				sum[at] = &queueCount{}
			}
			sum[at].running += c.running
			sum[at].pending += c.pending
			sum[at].gpus += c.gpus
			if c.pending > 0 && (sum[at].oldest.IsZero() || c.oldest.Before(sum[at].oldest)) {
				sum[at].oldest = c.oldest
			}
		}
	}
	return sum
}

func (c *queueCount) add(pending bool, gpus cluster.Milli, oldest time.Time) {
	if !pending {
		c.running++
		return
	}
	c.pending++
	c.gpus += gpus
	if c.oldest.IsZero() || oldest.Before(c.oldest) {
		c.oldest = oldest
	}
}

// nextStatus is when queues are to be looked at.
func (d *Driver) nextStatus() cluster.Time {
	if !d.statusAt {
		return cluster.Never
	}
	return d.statusOf.Add(max(d.opt.StatusEvery, statusPart*d.statusTook))
}

// writeStatus tells metrics how queues are, and writes into Queue objects what
// became of them, if it is time and if that is news.
func (d *Driver) writeStatus(now cluster.Time) {
	if now < d.nextStatus() {
		return
	}
	began := d.opt.Now()
	defer func() { d.statusTook = d.opt.Now().Sub(began) }()
	d.statusAt, d.statusOf = false, now
	counts, figures := d.countQueues(), []QueueFigures{}
	for _, u := range d.eng.QueueUse() {
		f := QueueFigures{Name: u.Spec.Name, Parent: u.Spec.Parent, Guarantee: u.Spec.Guarantee, Used: u.Used}
		if c := counts[f.Name]; c != nil {
			f.Running, f.Pending, f.PendingGPUs, f.Oldest = c.running, c.pending, c.gpus, c.oldest
		}
		figures = append(figures, f)
	}
	d.opt.Observe.Queues(figures)
	if d.opt.Tell == nil {
		return
	}
	total := cluster.Milli(0)
	for _, n := range d.eng.Nodes() {
		if n.State != cluster.Down {
			total += cluster.Milli(n.GPUs) * cluster.Whole
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.queueObjects)) {
		o, f := d.queueObjects[name], QueueFigures{}
		if i := slices.IndexFunc(figures, func(f QueueFigures) bool { return f.Name == name }); i >= 0 {
			f = figures[i]
		}
		s := d.statusFor(o, &f, total, now)
		if sameStatus(&s, &o.status) {
			continue
		}
		if sameStatus(&s, &o.sent) && now < o.sentAt.Add(statusAgain) || d.told.full(1) {
			d.statusAt = true
			continue
		}
		o.sent, o.sentAt = s, now
		d.told.status(d.opt.Dynamic, name, &s)
	}
}

func inGPUs(m cluster.Milli) float64 { return float64(m) / float64(cluster.Whole) }

// statusFor is the status of a Queue object as it should be.
func (d *Driver) statusFor(o *queueObject, f *QueueFigures, total cluster.Milli, now cluster.Time) queueStatus {
	s := queueStatus{Guarantee: inGPUs(f.Guarantee), Used: inGPUs(f.Used), Borrowed: inGPUs(max(0, f.Used-f.Guarantee)), Share: "0%",
		Running: f.Running, Pending: f.Pending, PendingGPUs: inGPUs(f.PendingGPUs), Observed: o.generation, InForce: d.tree.specs[o.name]}
	if total > 0 {
		s.Share = fmt.Sprintf("%d%%", (f.Used*100+total/2)/total)
	}
	if f.Pending > 0 {
		s.OldestPending = &metav1.Time{Time: f.Oldest.UTC()}
	}
	at := metav1.NewTime(time.Unix(0, int64(now)).UTC().Truncate(time.Second))
	s.Conditions = slices.Clone(o.status.Conditions)
	set := func(kind string, status metav1.ConditionStatus, reason, text string) {
		meta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: text,
			ObservedGeneration: o.generation, LastTransitionTime: at})
	}
	why, q := d.tree.bad[o.name], d.tree.rules[o.name]
	switch {
	case why == "":
		set(queueReady, metav1.ConditionTrue, "InForce", "the spec is in force")
	case q != nil:
		set(queueReady, metav1.ConditionFalse, "Unusable", why+". The spec that was in force before still is (status.inForce).")
	default:
		set(queueReady, metav1.ConditionFalse, "Unusable", why)
	}
	switch {
	case q == nil || q.Guarantee == 0:
		meta.RemoveStatusCondition(&s.Conditions, queueGuaranteed)
	case f.Guarantee < q.Guarantee:
		set(queueGuaranteed, metav1.ConditionFalse, "ClusterTooSmall", fmt.Sprintf(
			"%s GPUs are guaranteed, %s of them count: all queues together are guaranteed more than the %s GPUs of the cluster",
			quota.FormatGPUs(q.Guarantee), quota.FormatGPUs(f.Guarantee), quota.FormatGPUs(total)))
	default:
		set(queueGuaranteed, metav1.ConditionTrue, "Kept", "the cluster has what all queues together are guaranteed")
	}
	return s
}

// sameStatus compares what is to be seen; a condition's time counts with its state only.
func sameStatus(a, b *queueStatus) bool {
	text := func(s *queueStatus) string {
		t := *s
		t.Conditions, t.OldestPending = nil, nil
		line, err := json.Marshal(t)
		if err != nil {
			panic(err) // of numbers and texts
		}
		var rest strings.Builder
		for _, c := range s.Conditions {
			fmt.Fprintf(&rest, " %s %s %s %s %d", c.Type, c.Status, c.Reason, c.Message, c.ObservedGeneration)
		}
		if s.OldestPending != nil {
			fmt.Fprint(&rest, s.OldestPending.Unix())
		}
		return string(line) + rest.String()
	}
	return text(a) == text(b)
}
