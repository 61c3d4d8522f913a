package kube

import (
	"context"
	"encoding/json"
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/kube/patch"
	"github.com/muster-gpu/muster/kube/power"
	"github.com/muster-gpu/muster/kube/retry"
	rule "github.com/muster-gpu/muster/power"
)

// setPower writes how far a node is: on its way off it is cordoned, and when it is back it is not. A node that was
// changed by another writer meanwhile is not cordoned: it is looked at again.
func (d *Driver) setPower(n *node, to string, at time.Time) {
	n.power.asked, n.power.since, n.power.busy, n.power.late, d.nodesDirty = to, at, true, false, true
	notes := map[string]any{AnnotationPower: at.UTC().Format(time.RFC3339)}
	meta := map[string]any{"uid": n.obj.UID, "labels": map[string]string{LabelPower: to}, "annotations": notes}
	change := map[string]any{"metadata": meta}
	switch to {
	case power.Suspending:
		meta["resourceVersion"] = n.obj.ResourceVersion
		notes[AnnotationPowerSize], notes[AnnotationPowerBy] = power.SizeText(n.obj), d.opt.Scheduler
		change["spec"] = map[string]any{"unschedulable": true}
	case power.On:
		n.power.ours, n.power.cut = false, false
		notes[AnnotationPowerSize], notes[AnnotationPowerBy] = nil, nil
		change["spec"] = map[string]any{"unschedulable": nil}
	}
	text := patch.JSON(change)
	name := n.obj.Name
	d.opt.Log.Info("power", "node", name, "to", to)
	d.do(func(ctx context.Context) {
		d.crash("kube-power-" + to)
		_, err := d.opt.Client.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, text, metav1.PatchOptions{})
		d.inbox.Put(func() { d.powerSet(n, to, err) })
	})
}

// powerSet books what became of a label.
func (d *Driver) powerSet(n *node, to string, err error) {
	n.power.busy, d.power.at = false, 0
	if err == nil {
		return
	}
	if n.power.asked == to {
		n.power.asked, d.nodesDirty = "", true
	}
	if apierrors.IsForbidden(err) {
		n.power.again = d.opt.Now().Add(powerCall)
	}
	if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		d.opt.Log.Warn("a node cannot be labelled", "label", LabelPower, "to", to, "error", err)
		d.power.at = d.now.Add(powerLook) // it is tried again
	}
}

// switchOff calls the program, then says that the node is off: were it the other way round, a scheduler after this one
// would not know that the program is still to be called.
func (d *Driver) switchOff(n *node, program string, at time.Time) {
	if program == "" {
		d.setPower(n, power.Off, at)
		return
	}
	n.power.busy, n.power.cut = true, true
	name, uid := n.obj.Name, n.obj.UID
	d.do(func(ctx context.Context) {
		err := d.program(ctx, program, name)
		d.crash("kube-power-cut")
		d.inbox.Put(func() {
			if n.power.busy = false; err != nil {
				d.opt.Log.Error("suspend_program failed; the node counts as off", "node", name, "error", err)
			}
			if n.obj != nil && n.obj.UID == uid {
				d.setPower(n, power.Off, d.opt.Now())
			}
		})
	})
}

// switchOn calls the program that switches a node on.
func (d *Driver) switchOn(n *node, program string, at time.Time) {
	if n.power.called = at; program == "" {
		return
	}
	n.power.busy = true
	name := n.obj.Name
	d.do(func(ctx context.Context) {
		err := d.program(ctx, program, name)
		d.inbox.Put(func() {
			if n.power.busy = false; err != nil {
				d.opt.Log.Error("resume_program failed; it is called again", "node", name, "error", err)
			}
		})
	})
}

// The meters are kept in a ConfigMap, so that a scheduler after this one knows the cluster's weeks.

func (d *Driver) powerMap() string { return d.opt.Scheduler + "-power" }

// loadPower reads the meters; what cannot be read is learnt again.
func (d *Driver) loadPower(ctx context.Context) {
	if len(d.power.groups) == 0 || d.opt.Namespace == "" {
		return
	}
	var m *v1.ConfigMap
	get := func(ctx context.Context) (err error) {
		m, err = d.opt.Client.CoreV1().ConfigMaps(d.opt.Namespace).Get(ctx, d.powerMap(), metav1.GetOptions{})
		return err
	}
	err := retry.UntilAnswered(ctx, d.opt.Log, "what is known of the nodes' weeks?", get)
	if err != nil {
		if !apierrors.IsNotFound(err) {
			d.opt.Log.Warn("what is known of the nodes' weeks cannot be read", "error", err)
		}
		return
	}
	for i := range d.power.groups {
		g := &d.power.groups[i]
		text := m.Data[configKey(g.name())]
		if text == "" {
			continue
		}
		err := json.Unmarshal([]byte(text), &g.meter)
		if err == nil {
			err = g.meter.Check()
		}
		if err != nil {
			d.opt.Log.Warn("what is known of the nodes' weeks is not understood; it is learnt again", "configmap",
				d.powerMap(), "key", configKey(g.name()), "error", err)
			g.meter = rule.Meter{}
		}
	}
}

// configKey makes a key of a ConfigMap of a text.
func configKey(text string) string {
	key := []byte(text)
	for i, c := range key {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '.' {
			key[i] = '_'
		}
	}
	return string(key)
}

// storePower writes the meters, one request at a time.
func (d *Driver) storePower() {
	if d.opt.Namespace == "" || d.power.storing {
		return
	}
	data := map[string]string{}
	for i := range d.power.groups {
		g := &d.power.groups[i]
		text := patch.JSON(&g.meter)
		data[configKey(g.name())] = string(text)
	}
	d.power.storing = true
	d.do(func(ctx context.Context) {
		err := d.storeNow(ctx, data)
		d.inbox.Put(func() {
			if d.power.storing = false; err != nil && ctx.Err() == nil {
				d.opt.Log.Warn("what is known of the nodes' weeks cannot be kept", "error", err)
			}
		})
	})
}

func (d *Driver) storeNow(ctx context.Context, data map[string]string) error {
	maps.DeleteFunc(data, func(k, _ string) bool { return k == "" })
	list := d.opt.Client.CoreV1().ConfigMaps(d.opt.Namespace)
	m := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: d.powerMap(), Namespace: d.opt.Namespace}, Data: data}
	_, err := list.Update(ctx, m, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = list.Create(ctx, m, metav1.CreateOptions{})
	}
	return err
}
