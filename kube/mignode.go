package kube

import (
	"context"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/kube/amount"
	"github.com/muster-gpu/muster/kube/gpus"
	"github.com/muster-gpu/muster/kube/mig"
	"github.com/muster-gpu/muster/kube/patch"
	"github.com/muster-gpu/muster/kube/power"
)

// A node of which no pod has a GPU can be partitioned otherwise, by what goes by its label nvidia.com/mig.config:
// NVIDIA's mig-manager. How far a node is with that, its label and its annotation say, so that a scheduler after this
// one goes on. On which GPU of a node a pod is, only its kubelet knows: so a node is changed as a whole, and never
// while a pod is there.

// LabelMIG says on a node how far it is, AnnotationMIG what it is to be and for which gangs (mig.Note as JSON).
const (
	LabelMIG      = Prefix + "mig"
	AnnotationMIG = Prefix + "mig-plan"
)

// What the label says. A node without it is as it is.
const (
	migClosed   = "closed"   // cordoned: nothing starts there any more, and what is there leaves
	migChanging = "changing" // mig.config was written, and its success is waited for
)

// What mig-manager says of a node (label nvidia.com/mig.config.state).
const (
	migSuccess   = "success"
	migFailed    = "failed"
	migPending   = "pending"
	migRebooting = "rebooting"
)

// MIG is a rule for some nodes.
type MIG struct {
	Selector             map[string]string // labels of the nodes that may be partitioned otherwise
	Space, Map           string            // the ConfigMap that says what each configuration makes of a node
	Configs              []string          // those that may be chosen; none: all of the map
	After, Keep, Timeout time.Duration     // how long a gang waits before, a node stays as it is, and is waited for
}

// nodeMIG is what a node is about.
type nodeMIG struct {
	rule  int             // 1 + of the rules; 0: it may not be changed
	step  string          // its label, or what is being written
	note  mig.Note        // ... and its annotation
	asked bool            // these are being written, or were and have yet to be seen
	since time.Time       // ... and since when
	busy  bool            // a request is on its way
	again time.Time       // before this, nothing is asked for: the API server refused it
	raw   v1.ResourceList // what the node says that it has
	stays bool            // shut until the engine was renewed: it believes what the node was to have
}

// seeMIG finds the rule of a node that changed, and how far it is.
func (d *Driver) seeMIG(n *node) {
	m := &n.mig
	if m.rule = 0; d.loanOf(n) < 0 {
		m.rule = 1 + slices.IndexFunc(d.opt.MIG, func(r MIG) bool { return gpus.Selects(r.Selector, n.obj.Labels) })
	}
	step, note := n.obj.Labels[LabelMIG], mig.Read(n.obj.Annotations[AnnotationMIG])
	if m.asked && step == m.step && note.Since.Equal(m.note.Since) {
		m.asked = false
	}
	if !m.asked {
		m.step = step
		d.migNoted(n, note)
	}
	if m.step != "" {
		d.mig.under[n.obj.Name], d.mig.at = n, 0
	} else {
		delete(d.mig.under, n.obj.Name)
	}
}

// ours reports whether this scheduler changes a node: of another one's it leaves the hands.
func (d *Driver) ours(n *node) bool { return n.mig.note.By == d.opt.Scheduler }

// shut reports whether nothing starts on a node because it is to be partitioned.
func (m *nodeMIG) shut() bool { return m.step == migClosed || m.step == migChanging || m.stays }

// asPartitioned is a node as it is or, while it is being partitioned, with what it will have: the device plugin is
// restarted meanwhile, and offers nothing.
func (n *node) asPartitioned(obj *v1.Node) *v1.Node {
	n.mig.raw = obj.Status.Allocatable
	if obj.Labels[LabelMIG] != migChanging {
		return obj
	}
	if note := mig.Read(obj.Annotations[AnnotationMIG]); note.Offer != nil {
		return mig.Offering(obj, note.Offer)
	}
	return obj
}

// migOffer is what a list says of GPUs and slices.
func (d *Driver) migOffer(list v1.ResourceList) config.MIGOffer {
	q := list[mig.Whole]
	o := config.MIGOffer{Whole: int(min(amount.Count(&q), 1<<16)), Slices: d.gpus.Slices(list)}
	if o.Slices == nil {
		o.Slices = map[string]int{}
	}
	return o
}

// migGPUs is how many GPUs a node has, in slices or not; 0: it is not known. Slices alone do not tell: it is what
// makes of its configuration what it has, or what was noted if some configuration makes what it has of so many (it may
// have lost one since), or what a label says.
func (d *Driver) migGPUs(n *node, m *cluster.GPUModel) int {
	have := d.migOffer(n.mig.raw)
	if len(have.Slices) == 0 {
		return have.Whole
	}
	if f := d.mig.maps[d.opt.MIG[n.mig.rule-1].key()]; f != nil && f.configs != nil {
		makes := func(name string) bool {
			o, err := f.configs.Offer(name, m, n.mig.note.GPUs)
			return err == nil && o.Equal(have)
		}
		if n.mig.note.GPUs > 0 && slices.ContainsFunc(f.configs.Names(), makes) {
			return n.mig.note.GPUs
		}
		for gpus := have.Whole + 1; gpus <= cluster.MaxGPUsPerNode; gpus++ {
			if o, err := f.configs.Offer(n.obj.Labels[d.opt.Labels.Config], m, gpus); err == nil && o.Equal(have) {
				return gpus
			}
		}
	}
	gpus := 0
	if _, err := fmt.Sscan(n.obj.Labels[d.opt.Labels.Count], &gpus); err != nil || gpus < 0 ||
		gpus > cluster.MaxGPUsPerNode {
		return 0
	}
	return gpus
}

// hasGPUs reports whether a pod has, or will have, anything of a node's GPUs.
func (d *Driver) hasGPUs(p *pod) bool {
	if p.over() {
		return false
	}
	return d.gpus.Asked(p.obj)
}

// migUsers lists the pods on a node that have GPUs.
func (d *Driver) migUsers(n *node) (list []*pod) {
	for p := range n.pods {
		if d.hasGPUs(p) {
			list = append(list, p)
		}
	}
	slices.SortFunc(list, podOrder)
	return list
}

// migEmpty reports whether no pod has a GPU of a node, or is on the way there: neither by the pods, nor in the engine's
// books.
func (d *Driver) migEmpty(n *node) bool {
	return len(d.migUsers(n)) == 0 && !d.mig.held[n.obj.Name]
}

// setMIG writes how far a node is. A node that another writer changed since is left as it is, and looked at again.
func (d *Driver) setMIG(n *node, to string, note mig.Note) {
	now := d.opt.Now()
	note.By, note.Since = d.opt.Scheduler, now.UTC().Truncate(time.Second)
	text := patch.JSON(note)
	labels := map[string]any{LabelMIG: to}
	spec := map[string]any{}
	switch to {
	case migClosed:
		spec["unschedulable"] = true
	case migChanging: // what was said of the one before says nothing of this one
		labels[d.opt.Labels.Config], labels[d.opt.Labels.State] = note.Config, nil
	default:
		labels[LabelMIG], spec["unschedulable"] = nil, nil
	}
	change := patch.JSON(map[string]any{"spec": spec,
		"metadata": map[string]any{"uid": n.obj.UID, "resourceVersion": n.obj.ResourceVersion,
			"labels": labels, "annotations": map[string]string{AnnotationMIG: string(text)}}})
	m := &n.mig
	d.migNoted(n, note)
	m.step, m.asked, m.since, m.busy = to, true, now, true
	if d.nodesDirty = true; to != "" {
		d.mig.under[n.obj.Name] = n
	}
	name := n.obj.Name
	d.opt.Log.Info("partitioning", "node", name, "to", to, "config", note.Config, "for", note.For)
	d.do(func(ctx context.Context) {
		err := error(nil)
		if to == migChanging {
			err = d.nobodyThere(ctx, name)
		}
		d.crash("kube-mig-" + to)
		if err == nil {
			_, err = d.opt.Client.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, change, metav1.PatchOptions{})
		}
		d.inbox.Put(func() { d.migSet(n, to, err) })
	})
}

// nobodyThere asks the API server itself whether a pod has a GPU of a node: what is watched may lag behind. The node
// is cordoned by then.
func (d *Driver) nobodyThere(ctx context.Context, node string) error {
	list, err := d.opt.Client.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	if err != nil {
		return err
	}
	for i := range list.Items {
		p := &list.Items[i]
		if p.Status.Phase != v1.PodSucceeded && p.Status.Phase != v1.PodFailed && d.gpus.Asked(p) {
			return fmt.Errorf("pod %s/%s has a GPU there", p.Namespace, p.Name)
		}
	}
	return nil
}

// migSet books what became of a label.
func (d *Driver) migSet(n *node, to string, err error) {
	m := &n.mig
	m.busy, d.mig.at = false, 0
	if err == nil || n.obj == nil {
		return
	}
	m.asked, d.nodesDirty = false, true
	d.seeMIG(n)
	if apierrors.IsForbidden(err) {
		m.again = d.opt.Now().Add(power.AskAgain)
	}
	if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		d.opt.Log.Warn("a node cannot be labelled", "node", n.obj.Name, "label", LabelMIG, "to", to, "error", err)
	}
	d.mig.at = d.now.Add(migRoundEvery) // it is tried again
}
