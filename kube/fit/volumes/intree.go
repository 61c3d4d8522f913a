package volumes

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	csitranslation "k8s.io/csi-translation-lib"
	csiplugins "k8s.io/csi-translation-lib/plugins"
	"k8s.io/klog/v2"

	"github.com/muster-gpu/muster/kube/fit"
)

// Volumes whose drivers were part of Kubernetes once (in-tree) are served by CSI
// drivers now. They count for these, are where these say that they are, and one disk
// is not used twice on a node, all as kube-scheduler has it (NodeVolumeLimits,
// VolumeBinding, VolumeZone and VolumeRestrictions of 1.37).

var csiOf = csitranslation.New()

// migrated are the in-tree drivers that kube-scheduler translates. Those of vSphere
// and of Azure's file shares are not among them.
var migrated = []string{csiplugins.AWSEBSInTreePluginName, csiplugins.PortworxVolumePluginName,
	csiplugins.GCEPDInTreePluginName,
	csiplugins.AzureDiskInTreePluginName, csiplugins.CinderInTreePluginName}

// translation is a volume as its CSI driver has it.
type translation struct {
	from   *v1.PersistentVolume
	plugin string               // the in-tree driver
	csi    *v1.PersistentVolume // nil: it has no other form
}

// translated is the CSI form of a volume that has none itself.
func (all *Volumes) translated(v *v1.PersistentVolume) translation {
	if v.Spec.CSI != nil || !csiOf.IsPVMigratable(v) {
		return translation{}
	}
	t, ok := all.translations[v.Name]
	if ok && t.from == v {
		return t
	}
	t = translation{from: v}
	if name, err := csiOf.GetInTreePluginNameFromSpec(v, nil); err == nil && slices.Contains(migrated, name) {
		if c, err := csiOf.TranslateInTreePVToCSI(klog.Background(), v); err == nil && c.Spec.CSI != nil {
			t.plugin, t.csi = name, c
		}
	}
	all.translations[v.Name] = t
	return t
}

// inlineOf lists the volumes that a pod names without a claim, and that are attached
// or are for one pod.
func inlineOf(obj *v1.Pod) (list []*v1.Volume) {
	for i := range obj.Spec.Volumes {
		if v := &obj.Spec.Volumes[i]; csiOf.IsInlineMigratable(v) || v.ISCSI != nil || v.RBD != nil {
			list = append(list, v)
		}
	}
	return list
}

// inlineAttachable is what the CSI driver of a volume that a pod names calls it;
// false: it is none that is attached.
func inlineAttachable(v *v1.Volume, namespace string) (attachable, bool) {
	name, err := csiOf.GetInTreePluginNameFromSpec(nil, v)
	if err != nil || !slices.Contains(migrated, name) {
		return attachable{}, false
	}
	c, err := csiOf.TranslateInTreeInlineVolumeToCSI(klog.Background(), v, namespace)
	if err != nil || c == nil || c.Spec.CSI == nil {
		return attachable{}, false
	}
	return attachable{c.Spec.CSI.Driver, c.Spec.CSI.VolumeHandle}, true
}

// provisioner is the CSI driver that makes the volumes of a class; false: those that
// it makes are not counted.
func provisioner(name string) (driver string, inTree, ok bool) {
	if !csiOf.IsMigratableIntreePluginByName(name) {
		return name, false, true
	}
	driver, err := csiOf.GetCSINameFromInTreeName(name)
	return driver, true, err == nil && slices.Contains(migrated, name)
}

// reachableFrom reports whether a bound volume can be used on a node: by its node
// affinity, that of its CSI form where the node's in-tree driver was replaced, and by
// the zone and region in its labels.
func (all *Volumes) reachableFrom(v *v1.PersistentVolume, n *v1.Node) bool {
	at := v
	if t := all.translated(v); t.csi != nil && all.replaced(t.plugin, n.Name) {
		at = t.csi
	}
	return admits(at, n.Labels) && inZone(v.Labels, n.Labels)
}

// replaced reports whether a node says that it has a CSI driver instead of an in-tree
// one.
func (all *Volumes) replaced(plugin, node string) bool {
	c := all.csiNodes[node]
	return c != nil && slices.Contains(strings.Split(c.Annotations[v1.MigratedPluginsAnnotationKey], ","), plugin)
}

// zoneLabels of a volume are to be those of its node; a label of the older kind may
// be met by the newer one.
var zoneLabels = []struct{ key, newer string }{
	{v1.LabelFailureDomainBetaZone, v1.LabelTopologyZone}, {v1.LabelFailureDomainBetaRegion, v1.LabelTopologyRegion},
	{v1.LabelTopologyZone, v1.LabelTopologyZone}, {v1.LabelTopologyRegion, v1.LabelTopologyRegion}}

// inZone reports whether a node is in the zone and region of a volume, by their labels;
// a node without any such label is in all.
func inZone(labels, node map[string]string) bool {
	some, all := false, true
	for _, l := range zoneLabels {
		_, has := node[l.key]
		some = some || has
		text, ok := labels[l.key]
		if !ok {
			continue
		}
		values := strings.Split(text, "__") // of a volume in several zones
		for i := range values {
			values[i] = strings.TrimSpace(values[i])
		}
		if slices.Contains(values, "") {
			continue // not a list of zones: it says nothing
		}
		at, ok := node[l.key]
		if !ok {
			at, ok = node[l.newer]
		}
		all = all && ok && slices.Contains(values, at)
	}
	return all || !some
}

// sameDisk reports whether two pods cannot be on one node because both name the same
// disk and one of them writes to it.
func sameDisk(a, b []*v1.Volume) bool {
	return slices.ContainsFunc(a, func(x *v1.Volume) bool {
		return slices.ContainsFunc(b, func(y *v1.Volume) bool { return conflicts(x, y) })
	})
}

func conflicts(x, y *v1.Volume) bool {
	switch {
	case x.GCEPersistentDisk != nil && y.GCEPersistentDisk != nil:
		a, b := x.GCEPersistentDisk, y.GCEPersistentDisk
		return a.PDName == b.PDName && !(a.ReadOnly && b.ReadOnly)
	case x.AWSElasticBlockStore != nil && y.AWSElasticBlockStore != nil:
		return x.AWSElasticBlockStore.VolumeID == y.AWSElasticBlockStore.VolumeID
	case x.ISCSI != nil && y.ISCSI != nil:
		a, b := x.ISCSI, y.ISCSI
		return a.IQN == b.IQN && !(a.ReadOnly && b.ReadOnly)
	case x.RBD != nil && y.RBD != nil:
		a, b := x.RBD, y.RBD
		same := slices.ContainsFunc(a.CephMonitors, func(m string) bool { return slices.Contains(b.CephMonitors, m) })
		return same && a.RBDPool == b.RBDPool && a.RBDImage == b.RBDImage && !(a.ReadOnly && b.ReadOnly)
	}
	return false
}

// limitDisks closes nodes on which a disk of the pod is in use.
func (all *Volumes) limitDisks(l *fit.Look, p *fit.Neighbour) {
	inline := of(p).inline
	if len(inline) == 0 {
		return
	}
	l.Each(func(q *fit.Neighbour) {
		if n, ok := fit.Of[need](q); ok && sameDisk(inline, n.inline) {
			l.Shut(q.Where, "a disk of its is in use")
		}
	})
}
