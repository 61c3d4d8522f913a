// Package mig partitions nodes otherwise for gangs that wait: which slices fit together on GPUs, for which gangs which
// nodes are changed, and how far nodes are with that. What is to be written, it tells a Writer.
package mig

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/kube/amount"
	"github.com/muster-gpu/muster/kube/gpus"
	"github.com/muster-gpu/muster/kube/patch"
)

// A node of which no pod has a GPU can be partitioned otherwise, by what goes by its label nvidia.com/mig.config:
// NVIDIA's mig-manager. How far a node is with that, its label and its annotation say, so that a scheduler after this
// one goes on. On which GPU of a node a pod is, only its kubelet knows: so a node is changed as a whole, and never
// while a pod is there.

// Rule is a rule for some nodes.
type Rule struct {
	Selector             map[string]string // labels of the nodes that may be partitioned otherwise
	Space, Map           string            // the ConfigMap that says what each configuration makes of a node
	Configs              []string          // those that may be chosen; none: all of the map
	After, Keep, Timeout time.Duration     // how long a gang waits before, a node stays as it is, and is waited for
}

// Key is the ConfigMap that says what is made of nodes.
func (r *Rule) Key() string { return r.Space + "/" + r.Map }

const (
	tendEvery = time.Second     // between two looks at nodes on their way
	lookEvery = 2 * time.Second // between two looks at which gangs wait
	lookSoon  = 50 * time.Millisecond
	stray     = 15 * time.Minute // a node of no rule that is being changed is waited for
	labelLag  = 30 * time.Second // so long at most a label that was written is not seen yet
	askAgain  = time.Minute      // until what was refused is asked for again
	mapKey    = "config.yaml"
)

// Writer writes what it is told, apart from the loop; what became of it, it says in the loop, by done.
type Writer interface {
	// PatchNode changes a node; to is the label that it sets, and before Changing no pod may have a GPU there.
	PatchNode(name string, change []byte, to string, done func(error))
	Event(obj *v1.Node, kind, reason, text string)
	MapEvent(obj *v1.ConfigMap, kind, reason, text string)
}

// Options are what the room is told once.
type Options struct {
	Rules       []Rule
	Scheduler   string
	Labels      gpus.Labels
	GPUs        *gpus.Names
	Now         func() time.Time
	LoopTime    func() cluster.Time // as of the loop's last turn
	Changed     func()              // a node's state may be another
	Partitioned func(outcome string)
	Log         *slog.Logger
	Writer      Writer
}

// Room is what is known of nodes that may be partitioned otherwise.
type Room struct {
	opt         Options
	nodes       map[string]*Node   // by name
	maps        map[string]*ways   // by namespace/name
	under       map[string]*Node   // nodes that are on their way, by name
	forGang     map[string][]*Node // nodes with a gang in their note, by the gang's name; nil: to be made again
	at          cluster.Time       // of the next round
	lookAt      cluster.Time       // when it is looked next which gangs wait
	said        map[string]bool    // what was logged of configurations
	packed      map[string][][]cluster.Instance
	mapsVersion int // counts changes of the maps
}

// ways is a ConfigMap that says what configurations make of a node.
type ways struct {
	configs *config.MIGConfigs // nil: it cannot be read
	hash    string
	object  *v1.ConfigMap
}

// New takes the rules over.
func New(opt Options) *Room {
	return &Room{opt: opt, nodes: map[string]*Node{}, maps: map[string]*ways{}, under: map[string]*Node{},
		said: map[string]bool{}, packed: map[string][][]cluster.Instance{}}
}

// See finds the rule of a node that changed, and how far it is; lent: it is of none.
func (r *Room) See(n *Node, obj *v1.Node, lent bool) {
	n.obj, n.lent = obj, lent
	r.nodes[obj.Name] = n
	r.seeAgain(n)
}

func (r *Room) seeAgain(n *Node) {
	if n.rule = 0; !n.lent {
		n.rule = 1 + slices.IndexFunc(r.opt.Rules, func(x Rule) bool { return gpus.Selects(x.Selector, n.obj.Labels) })
	}
	step, note := n.obj.Labels[Label], read(n.obj.Annotations[Annotation])
	if n.asked && step == n.step && note.Since.Equal(n.note.Since) {
		n.asked = false
	}
	if !n.asked {
		n.step = step
		r.noted(n, note)
	}
	if n.step != "" {
		r.under[n.obj.Name], r.at = n, 0
	} else {
		delete(r.under, n.obj.Name)
	}
}

// Gone forgets a node that was deleted.
func (r *Room) Gone(name string, n *Node) {
	*n = Node{busy: n.busy}
	delete(r.nodes, name)
	delete(r.under, name)
}

// MapChanged reads a ConfigMap. While it cannot be read no node is changed by it.
func (r *Room) MapChanged(obj *v1.ConfigMap, gone bool) {
	key := obj.Namespace + "/" + obj.Name
	text, ok := obj.Data[mapKey]
	for _, other := range obj.Data {
		if !ok && len(obj.Data) == 1 {
			text, ok = other, true
		}
	}
	m, err := &ways{object: obj, hash: hash(text)}, error(nil)
	if m.configs, err = config.ReadMIGConfigs(text); gone || !ok {
		m.configs, err = nil, fmt.Errorf("it is not there, or has no %s", mapKey)
	}
	if r.maps[key] = m; err != nil {
		r.opt.Log.Error("what nodes can be partitioned into cannot be read: none is", "configmap", key, "error", err)
		r.opt.Writer.MapEvent(obj, v1.EventTypeWarning, "NotUnderstood", err.Error())
	}
	r.lookAt, r.at, r.said = 0, 0, map[string]bool{}
	r.mapsVersion++
}

func hash(text string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text))
	return fmt.Sprintf("%016x", h.Sum64())
}

// Next is when nodes are looked at next.
func (r *Room) Next() cluster.Time {
	if len(r.opt.Rules) == 0 && len(r.under) == 0 {
		return cluster.Never
	}
	return r.at
}

// after is how long a gang waits before a node is changed: the least of the rules.
func (r *Room) after() (least time.Duration) {
	least = cluster.MaxDuration
	for i := range r.opt.Rules {
		least = min(least, r.opt.Rules[i].After)
	}
	return least
}

// Tend looks after the nodes that are on their way, and reports whether it is to be looked now for which gangs others
// are to be changed. The engine has to have heard everything first: a gang that starts in its next step anyway waits
// for no node.
func (r *Room) Tend(now cluster.Time, order []string, heard func() bool) (look bool) {
	r.at = now.Add(tendEvery)
	at := time.Unix(0, int64(now))
	for _, name := range order {
		if n := r.under[name]; n != nil && n.obj != nil && r.ours(n) && !n.busy && !at.Before(n.again) {
			r.tend(n, at)
		}
	}
	if now < r.lookAt {
		return false
	}
	look = heard()
	for _, n := range r.under {
		look = look && n.step != "" // it is being opened
	}
	if !look {
		r.at = now.Add(lookSoon)
	}
	return look && len(r.opt.Rules) > 0
}

// Looked says that it was looked which gangs wait, and for how long. What that costs grows with the cluster: it may
// take a twentieth of the time.
func (r *Room) Looked(now cluster.Time, took time.Duration) {
	every := lookEvery // more often where gangs wait less
	for i := range r.opt.Rules {
		every = min(every, max(r.opt.Rules[i].After/4, 100*time.Millisecond))
	}
	r.lookAt = now.Add(max(every, 20*took))
}

// EachUnder names the nodes that are on their way.
func (r *Room) EachUnder(f func(name string)) {
	for name := range r.under {
		f(name)
	}
}

// underway lists the nodes that are on their way by this scheduler, in order.
func (r *Room) underway(order []string) (list []*Node) {
	for _, name := range order {
		if n := r.under[name]; n != nil && n.obj != nil && n.step != "" && r.ours(n) && n.note.Offer != nil {
			list = append(list, n)
		}
	}
	return list
}

// ours reports whether this scheduler changes a node: of another one's it leaves the hands.
func (r *Room) ours(n *Node) bool { return n.note.By == r.opt.Scheduler }

// tend looks after a node: it is opened when it is done, or cannot be.
func (r *Room) tend(n *Node, at time.Time) {
	if n.asked {
		if at.Sub(n.since) > labelLag {
			n.asked = false // what was seen since counts
			r.opt.Changed()
			r.seeAgain(n)
		}
		return
	}
	label, state := n.obj.Labels[r.opt.Labels.Config], n.obj.Labels[r.opt.Labels.State]
	switch n.step {
	case Closed:
		switch {
		case n.rule == 0:
			r.reopen(n, "dropped", "no rule selects it any more")
		case label != n.note.From:
			r.reopen(n, "dropped", "another writer set "+r.opt.Labels.Config+": "+cmp.Or(label, "none"))
		case !n.obj.Spec.Unschedulable:
			r.reopen(n, "dropped", "it was uncordoned")
		case n.note.Offer == nil || n.note.Config == "":
			r.reopen(n, "dropped", "its annotation "+Annotation+" cannot be read")
		}
	case Changing:
		expiry := stray
		if n.rule > 0 {
			expiry = r.opt.Rules[n.rule-1].Timeout
		}
		switch have := r.offer(n.raw); {
		case label != n.note.Config:
			r.reopen(n, "dropped", "another writer set "+r.opt.Labels.Config+": "+cmp.Or(label, "none"))
		case state == stateSuccess && n.note.Offer != nil && have.Equal(*n.note.Offer):
			r.reopen(n, "done", "")
		case state == stateFailed:
			r.reopen(n, "failed", fmt.Sprintf("mig-manager says failed (label %s)", r.opt.Labels.State))
		case at.Sub(n.note.Since) > expiry:
			r.reopen(n, "late", fmt.Sprintf("after %s its state is %q, and it offers %s of %s",
				cluster.FormatDuration(expiry), state, cmp.Or(have.Text(), "nothing"), n.note.Offer.Text()))
		}
	}
}

// reopen lets a node be used as it is. What it could not be brought to, is not tried there again until another writer
// labels it, or the map is another.
func (r *Room) reopen(n *Node, outcome, why string) {
	note := n.note
	switch outcome {
	case "failed", "late":
		f := r.failures(n)
		if f == nil {
			f = &Failures{Map: r.mapHash(n), Why: map[string]string{}}
		}
		f.Label = n.obj.Labels[r.opt.Labels.Config]
		f.Why[note.Config] = why
		note.Failed = f
		r.opt.Log.Error("a node could not be partitioned; it is used as it is", "node", n.obj.Name, "config",
			note.Config, "why", why)
		r.opt.Writer.Event(n.obj, v1.EventTypeWarning, "NotPartitioned",
			fmt.Sprintf("it is not %s: %s", note.Config, why))
	case "done":
		if note.Failed = r.failures(n); note.Failed != nil {
			note.Failed.Label = note.Config
		}
		r.opt.Writer.Event(n.obj, v1.EventTypeNormal, "Partitioned",
			fmt.Sprintf("it is %s: %s", note.Config, note.Offer.Text()))
		note.For = nil
	default:
		r.opt.Log.Warn("a node is not partitioned after all", "node", n.obj.Name, "config", note.Config, "why", why)
		note.For = nil
		if n.step == Closed { // nothing was changed
			note.Config = ""
		}
	}
	note.Offer, note.From, note.Tier = nil, "", ""
	r.opt.Partitioned(outcome)
	r.set(n, "", note)
	r.lookAt = 0
}

// set writes how far a node is. A node that another writer changed since is left as it is, and looked at again.
func (r *Room) set(n *Node, to string, note Note) {
	now := r.opt.Now()
	note.By, note.Since = r.opt.Scheduler, now.UTC().Truncate(time.Second)
	text := patch.JSON(note)
	labels := map[string]any{Label: to}
	spec := map[string]any{}
	switch to {
	case Closed:
		spec["unschedulable"] = true
	case Changing: // what was said of the one before says nothing of this one
		labels[r.opt.Labels.Config], labels[r.opt.Labels.State] = note.Config, nil
	default:
		labels[Label], spec["unschedulable"] = nil, nil
	}
	change := patch.JSON(map[string]any{"spec": spec,
		"metadata": map[string]any{"uid": n.obj.UID, "resourceVersion": n.obj.ResourceVersion,
			"labels": labels, "annotations": map[string]string{Annotation: string(text)}}})
	r.noted(n, note)
	n.step, n.asked, n.since, n.busy = to, true, now, true
	r.opt.Changed()
	if to != "" {
		r.under[n.obj.Name] = n
	}
	r.opt.Log.Info("partitioning", "node", n.obj.Name, "to", to, "config", note.Config, "for", note.For)
	r.opt.Writer.PatchNode(n.obj.Name, change, to, func(err error) { r.written(n, to, err) })
}

// written books what became of a label.
func (r *Room) written(n *Node, to string, err error) {
	n.busy, r.at = false, 0
	if err == nil || n.obj == nil {
		return
	}
	n.asked = false
	r.opt.Changed()
	r.seeAgain(n)
	if apierrors.IsForbidden(err) {
		n.again = r.opt.Now().Add(askAgain)
	}
	if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		r.opt.Log.Warn("a node cannot be labelled", "node", n.obj.Name, "label", Label, "to", to, "error", err)
	}
	r.at = r.opt.LoopTime().Add(tendEvery) // it is tried again
}

func (r *Room) mapHash(n *Node) string {
	if n.rule == 0 {
		return ""
	}
	if m := r.maps[r.opt.Rules[n.rule-1].Key()]; m != nil {
		return m.hash
	}
	return ""
}

// failures are what a node could not be brought to; nil: nothing that still counts.
func (r *Room) failures(n *Node) *Failures {
	f := n.note.Failed
	if f == nil || f.Why == nil || f.Map != r.mapHash(n) ||
		n.step == "" && f.Label != n.obj.Labels[r.opt.Labels.Config] {
		return nil
	}
	return f
}

// Told says which nodes are being partitioned for a gang, and which could not be; "": none. users is how many pods have
// GPUs of a node.
func (r *Room) Told(gang string, users func(node string) int) string {
	if len(r.opt.Rules) == 0 {
		return ""
	}
	if r.forGang == nil {
		r.forGang = r.nodesForGangs()
	}
	var list []string
	for _, n := range r.forGang[gang] {
		if n.obj == nil || !slices.Contains(n.note.For, gang) { // it is gone, and may be another now
			continue
		}
		name, since := n.obj.Name, n.note.Since.UTC().Format("15:04")
		switch f := r.failures(n); {
		case n.step == Closed:
			text := fmt.Sprintf("node %s is being partitioned as %s for it: closed since %s UTC", name, n.note.Config,
				since)
			if k := users(name); k > 0 {
				text += fmt.Sprintf(", %d pods still there", k)
			}
			list = append(list, strings.Replace(text, ", 1 pods", ", 1 pod", 1))
		case n.step == Changing:
			list = append(list, fmt.Sprintf("node %s is being partitioned as %s for it: since %s UTC", name,
				n.note.Config, since))
		case f != nil && f.Why[n.note.Config] != "":
			list = append(list, fmt.Sprintf("node %s could not be partitioned as %s for it: %s; it is not tried there again until its %s is changed",
				name, n.note.Config, f.Why[n.note.Config], r.opt.Labels.Config))
		}
	}
	return strings.Join(list, "; ")
}

// nodesForGangs lists the nodes that are for a gang, by its name; of the nodes by name.
func (r *Room) nodesForGangs() map[string][]*Node {
	forGang := map[string][]*Node{}
	for _, name := range slices.Sorted(maps.Keys(r.nodes)) {
		n := r.nodes[name]
		for i, gang := range n.note.For {
			if !slices.Contains(n.note.For[:i], gang) {
				forGang[gang] = append(forGang[gang], n)
			}
		}
	}
	return forGang
}

// noted has another note be known of a node.
func (r *Room) noted(n *Node, note Note) {
	if !slices.Equal(n.note.For, note.For) {
		r.forGang = nil
	}
	n.note = note
}

// whole is how many GPUs a node has that are not partitioned.
func (r *Room) whole(n *Node) int { return r.offer(n.raw).Whole }

// offer is what a list says of GPUs and slices.
func (r *Room) offer(list v1.ResourceList) config.MIGOffer {
	q := list[Whole]
	o := config.MIGOffer{Whole: int(min(amount.Count(&q), 1<<16)), Slices: r.opt.GPUs.Slices(list)}
	if o.Slices == nil {
		o.Slices = map[string]int{}
	}
	return o
}

// mostPacked bounds what is remembered of pack.
const mostPacked = 1000

// Pack puts slices together on as few GPUs as could have them, and remembers it: nodes are mostly partitioned alike.
func (r *Room) Pack(model *cluster.GPUModel, count map[string]int, most int) [][]cluster.Instance {
	key := fmt.Sprint(model.Name, count, most)
	devices, ok := r.packed[key]
	if !ok {
		devices = pack(model, count, most)
		if len(r.packed) == mostPacked {
			clear(r.packed)
		}
		r.packed[key] = devices
	}
	return devices
}
