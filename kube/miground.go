package kube

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/kube/gpus"
	"github.com/muster-gpu/muster/kube/mig"
	"github.com/muster-gpu/muster/kube/power"
)

// partitioning is what is known of nodes that may be partitioned otherwise.
type partitioning struct {
	maps    map[string]*migMap // by namespace/name
	under   map[string]*node   // nodes that are on their way, by name
	forGang map[string][]*node // nodes with a gang in their note, by the gang's name; nil: to be made again
	held    map[string]bool    // nodes of which the engine holds GPUs, by name: as of the present round
	at      cluster.Time       // of the next round
	lookAt  cluster.Time       // when it is looked next which gangs wait
	said    map[string]bool    // what was logged of configurations
	tried   map[*gang]cluster.Time
	work    int64                           // what may still be counted in this look
	packed  map[string][][]cluster.Instance // mig.go
}

// migMap is a ConfigMap that says what configurations make of a node.
type migMap struct {
	configs *config.MIGConfigs // nil: it cannot be read
	hash    string
	object  *v1.ConfigMap
}

func (r *MIG) key() string { return r.Space + "/" + r.Map }

// name is what a rule is called: its nodes' labels.
func (r *MIG) name() string { return gpus.SelectorText(r.Selector) }

const (
	migRoundEvery = time.Second     // between two looks at nodes on their way
	migLook       = 2 * time.Second // between two looks at which gangs wait
	migSoon       = 50 * time.Millisecond
	migStray      = 15 * time.Minute
	migRetry      = 15 * time.Second // until a gang is looked at again for which nothing could be found
	migConfig     = "config.yaml"
)

func (d *Driver) initMIG() {
	d.mig = partitioning{maps: map[string]*migMap{}, under: map[string]*node{}, said: map[string]bool{},
		tried: map[*gang]cluster.Time{}, packed: map[string][][]cluster.Instance{}}
}

// watchMIG watches the ConfigMaps of the rules. One that may not be read is said once, and scheduling goes on.
func (d *Driver) watchMIG(ctx context.Context) error {
	var seen []string
	for i := range d.opt.MIG {
		r := &d.opt.MIG[i]
		if slices.Contains(seen, r.key()) {
			continue
		}
		seen = append(seen, r.key())
		f := informers.NewSharedInformerFactoryWithOptions(d.opt.Client, 0, informers.WithNamespace(r.Space),
			informers.WithTransform(trim),
			informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.FieldSelector = "metadata.name=" + r.Map }))
		d.workers.Go(func() {
			<-ctx.Done()
			f.Shutdown()
		})
		in := f.Core().V1().ConfigMaps().Informer()
		said := false
		err := in.SetWatchErrorHandler(func(_ *cache.Reflector, err error) {
			if !said && apierrors.IsForbidden(err) {
				said = true
				d.opt.Log.Error("what nodes can be partitioned into may not be read: none is", "configmap", r.key(),
					"error", err)
			}
		})
		if err != nil {
			return err
		}
		w := watched{in, func(_, obj any) { d.onMIGMap(obj, false) }, func(obj any) { d.onMIGMap(obj, true) }}
		if _, err := in.AddEventHandler(w.handler()); err != nil {
			return err
		}
		f.Start(ctx.Done())
	}
	return nil
}

func (d *Driver) onMIGMap(obj any, gone bool) {
	if m, ok := obj.(*v1.ConfigMap); ok {
		d.inbox.Put(func() { d.migMapChanged(m, gone) })
	}
}

// migMapChanged reads a ConfigMap. While it cannot be read no node is changed by it.
func (d *Driver) migMapChanged(obj *v1.ConfigMap, gone bool) {
	key := obj.Namespace + "/" + obj.Name
	text, ok := obj.Data[migConfig]
	for _, other := range obj.Data {
		if !ok && len(obj.Data) == 1 {
			text, ok = other, true
		}
	}
	m, err := &migMap{object: obj, hash: migHash(text)}, error(nil)
	if m.configs, err = config.ReadMIGConfigs(text); gone || !ok {
		m.configs, err = nil, fmt.Errorf("it is not there, or has no %s", migConfig)
	}
	if d.mig.maps[key] = m; err != nil {
		d.opt.Log.Error("what nodes can be partitioned into cannot be read: none is", "configmap", key, "error", err)
		d.notices.Event(obj, v1.EventTypeWarning, "NotUnderstood", err.Error())
	}
	d.mig.lookAt, d.mig.at, d.mig.said = 0, 0, map[string]bool{}
	clear(d.mig.tried)
}

func migHash(text string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text))
	return fmt.Sprintf("%016x", h.Sum64())
}

// nextMIG is when nodes are looked at next.
func (d *Driver) nextMIG() cluster.Time {
	if len(d.opt.MIG) == 0 && len(d.mig.under) == 0 {
		return cluster.Never
	}
	return d.mig.at
}

// migRound looks after nodes that are on their way, and for which gangs others are to be changed.
func (d *Driver) migRound(now cluster.Time) {
	if now < d.nextMIG() {
		return
	}
	d.mig.at = now.Add(migRoundEvery)
	d.mig.held = map[string]bool{}
	for _, b := range d.eng.Beliefs() {
		for i := range b.Allocs {
			if a := &b.Allocs[i]; a.GPUs != 0 {
				d.mig.held[d.order[a.Node]] = true
			}
		}
	}
	at := time.Unix(0, int64(now))
	for _, name := range d.order {
		if n := d.mig.under[name]; n != nil && n.obj != nil && d.ours(n) && !n.mig.busy && !at.Before(n.mig.again) {
			d.migNode(n, at)
		}
	}
	// The engine has to have heard everything first: a gang that starts in its next step anyway waits for no node.
	heard := d.stale == "" && !d.nodesDirty && !d.queues.Dirty() && len(d.dirty) == 0 && len(d.queued) == 0
	for _, n := range d.mig.under {
		heard = heard && n.mig.step != "" // it is being opened
	}
	if !heard && now >= d.mig.lookAt {
		d.mig.at = now.Add(migSoon)
	}
	if heard && now >= d.mig.lookAt && len(d.opt.MIG) > 0 {
		d.lookMIG(now)
		// What it costs grows with the cluster: it may take a twentieth of the time.
		d.mig.lookAt = now.Add(max(d.migEvery(), 20*d.clock().Sub(now)))
	}
}

// migEvery is how often it is looked which gangs wait: more often where they wait less.
func (d *Driver) migEvery() time.Duration {
	every := migLook
	for i := range d.opt.MIG {
		every = min(every, max(d.opt.MIG[i].After/4, 100*time.Millisecond))
	}
	return every
}

// bringOn has a closed node changed if it is empty, else preempts the gangs there. It comes after each look that finds
// it needed, never before one: those for which it was closed may be gone, or served elsewhere.
func (d *Driver) bringOn(k migKept) {
	switch n := k.n; {
	case d.opt.Now().Before(n.mig.again):
	case d.migEmpty(n):
		d.setMIG(n, migChanging, n.mig.note)
	default:
		d.dismissMIG(k)
	}
}

// migNode looks after a node: it is opened when it is done, or cannot be.
func (d *Driver) migNode(n *node, at time.Time) {
	m := &n.mig
	if m.asked {
		if at.Sub(m.since) > power.LabelLag {
			m.asked, d.nodesDirty = false, true // what was seen since counts
			d.seeMIG(n)
		}
		return
	}
	label, state := n.obj.Labels[d.opt.Labels.Config], n.obj.Labels[d.opt.Labels.State]
	switch m.step {
	case migClosed:
		switch {
		case m.rule == 0:
			d.reopen(n, "dropped", "no rule selects it any more")
		case label != m.note.From:
			d.reopen(n, "dropped", "another writer set "+d.opt.Labels.Config+": "+cmp.Or(label, "none"))
		case !n.obj.Spec.Unschedulable:
			d.reopen(n, "dropped", "it was uncordoned")
		case m.note.Offer == nil || m.note.Config == "":
			d.reopen(n, "dropped", "its annotation "+AnnotationMIG+" cannot be read")
		}
	case migChanging:
		expiry := migStray
		if m.rule > 0 {
			expiry = d.opt.MIG[m.rule-1].Timeout
		}
		switch have := d.migOffer(m.raw); {
		case label != m.note.Config:
			d.reopen(n, "dropped", "another writer set "+d.opt.Labels.Config+": "+cmp.Or(label, "none"))
		case state == migSuccess && m.note.Offer != nil && have.Equal(*m.note.Offer):
			d.reopen(n, "done", "")
		case state == migFailed:
			d.reopen(n, "failed", fmt.Sprintf("mig-manager says failed (label %s)", d.opt.Labels.State))
		case at.Sub(m.note.Since) > expiry:
			d.reopen(n, "late", fmt.Sprintf("after %s its state is %q, and it offers %s of %s",
				cluster.FormatDuration(expiry), state, cmp.Or(have.Text(), "nothing"), m.note.Offer.Text()))
		}
	}
}

// reopen lets a node be used as it is. What it could not be brought to, is not tried there again until another writer
// labels it, or the map is another.
func (d *Driver) reopen(n *node, outcome, why string) {
	note := n.mig.note
	switch outcome {
	case "failed", "late":
		f := d.failures(n)
		if f == nil {
			f = &mig.Failures{Map: d.mapHash(n), Why: map[string]string{}}
		}
		f.Label = n.obj.Labels[d.opt.Labels.Config]
		f.Why[note.Config] = why
		note.Failed = f
		d.opt.Log.Error("a node could not be partitioned; it is used as it is", "node", n.obj.Name, "config",
			note.Config, "why", why)
		d.notices.Event(n.obj, v1.EventTypeWarning, "NotPartitioned", fmt.Sprintf("it is not %s: %s", note.Config, why))
	case "done":
		if note.Failed = d.failures(n); note.Failed != nil {
			note.Failed.Label = note.Config
		}
		d.notices.Event(n.obj, v1.EventTypeNormal, "Partitioned",
			fmt.Sprintf("it is %s: %s", note.Config, note.Offer.Text()))
		note.For = nil
	default:
		d.opt.Log.Warn("a node is not partitioned after all", "node", n.obj.Name, "config", note.Config, "why", why)
		note.For = nil
		if n.mig.step == migClosed { // nothing was changed
			note.Config = ""
		}
	}
	note.Offer, note.From, note.Tier = nil, "", ""
	d.opt.Observe.Partitioned(outcome)
	d.setMIG(n, "", note)
	d.mig.lookAt = 0
}

func (d *Driver) mapHash(n *node) string {
	if n.mig.rule == 0 {
		return ""
	}
	if m := d.mig.maps[d.opt.MIG[n.mig.rule-1].key()]; m != nil {
		return m.hash
	}
	return ""
}

// failures are what a node could not be brought to; nil: nothing that still counts.
func (d *Driver) failures(n *node) *mig.Failures {
	f := n.mig.note.Failed
	if f == nil || f.Why == nil || f.Map != d.mapHash(n) ||
		n.mig.step == "" && f.Label != n.obj.Labels[d.opt.Labels.Config] {
		return nil
	}
	return f
}

// migTold says which nodes are being partitioned for a gang, and which could not be; "": none.
func (d *Driver) migTold(g *gang) string {
	if len(d.opt.MIG) == 0 {
		return ""
	}
	if d.mig.forGang == nil {
		d.mig.forGang = d.nodesForGangs()
	}
	var list []string
	for _, n := range d.mig.forGang[g.name] {
		if n.obj == nil || !slices.Contains(n.mig.note.For, g.name) { // it is gone, and may be another now
			continue
		}
		m, name := &n.mig, n.obj.Name
		since := m.note.Since.UTC().Format("15:04")
		switch f := d.failures(n); {
		case m.step == migClosed:
			text := fmt.Sprintf("node %s is being partitioned as %s for it: closed since %s UTC", name, m.note.Config,
				since)
			if k := len(d.migUsers(n)); k > 0 {
				text += fmt.Sprintf(", %d pods still there", k)
			}
			list = append(list, strings.Replace(text, ", 1 pods", ", 1 pod", 1))
		case m.step == migChanging:
			list = append(list, fmt.Sprintf("node %s is being partitioned as %s for it: since %s UTC", name,
				m.note.Config, since))
		case f != nil && f.Why[m.note.Config] != "":
			list = append(list, fmt.Sprintf("node %s could not be partitioned as %s for it: %s; it is not tried there again until its %s is changed",
				name, m.note.Config, f.Why[m.note.Config], d.opt.Labels.Config))
		}
	}
	return strings.Join(list, "; ")
}

// nodesForGangs lists the nodes that are for a gang, by its name; of the nodes by name.
func (d *Driver) nodesForGangs() map[string][]*node {
	forGang := map[string][]*node{}
	for _, name := range slices.Sorted(maps.Keys(d.nodes)) {
		n := d.nodes[name]
		for i, gang := range n.mig.note.For {
			if !slices.Contains(n.mig.note.For[:i], gang) {
				forGang[gang] = append(forGang[gang], n)
			}
		}
	}
	return forGang
}

// migNoted has another note be known of a node.
func (d *Driver) migNoted(n *node, note mig.Note) {
	if !slices.Equal(n.mig.note.For, note.For) {
		d.mig.forGang = nil
	}
	n.mig.note = note
}

// besides adds to what a gang waits for which nodes are being partitioned for it.
func (d *Driver) besides(g *gang, text string) string {
	more := d.migTold(g)
	switch {
	case more == "":
		return text
	case text == "":
		return more
	}
	return text + "; " + more
}
