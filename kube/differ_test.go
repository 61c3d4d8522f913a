package kube

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/muster-gpu/muster/internal/controlplane"
	"github.com/muster-gpu/muster/internal/shared"
)

// TestDifferential asks the real kube-scheduler and Muster about the same pods on
// the same random clusters: does some node fit? Where Muster binds, the node must
// be one that kube-scheduler takes, too.
func TestDifferential(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.p.Scheduler()
	rounds := differentialRounds(t)
	b.shelf()
	b.maker()
	b.sub("displace", testDisplace)
	b.sub("lift", testLift)
	b.sub("prefer", testPrefer)
	_, stop := b.schedule()
	defer stop()
	var yes, no int
	for seed := range rounds {
		r := rand.New(rand.NewPCG(uint64(seed), 0x646966666572))
		b.world(r)
		y, n := b.compare(r, seed)
		yes, no = yes+y, no+n
		b.clear()
	}
	t.Logf("%d pods fit, %d did not; both schedulers agreed", yes, no)
	if yes < max(2, 5*rounds/2) || no < max(2, 5*rounds/2) {
		t.Errorf("%d pods fit and %d did not: the generator has lost its balance", yes, no)
	}
}

// differentialRounds is on how many clusters a comparison is made.
func differentialRounds(t *testing.T) int {
	t.Helper()
	return shared.Soaking(t, 1)
}

// oracle makes kube-scheduler's copy of a pod.
func oracle(p *v1.Pod, name string) *v1.Pod {
	o := p.DeepCopy()
	o.Name, o.Spec.SchedulerName = name, "default-scheduler"
	return o
}

// compare asks about pods one after the other, each alone on the cluster.
func (b *bench) compare(r *rand.Rand, seed int) (yes, no int) {
	b.Helper()
	var refused []*v1.Pod
	for i := range 14 {
		p := randomPod(r, fmt.Sprintf("probe-%d-%d", seed, i))
		fits := b.judged(oracle(p, p.Name+"-k"))
		if !fits { // it may not have heard yet of all that is there: of volumes that are free again, of nodes
			fits = b.judged(oracle(p, p.Name+"-k2"))
		}
		if !fits {
			refused = append(refused, p)
			continue
		}
		yes++
		b.create(p)
		node := ""
		b.wait("Muster binds "+p.Name+" as kube-scheduler did "+asText(p), func() bool {
			node = b.podIn(p).Spec.NodeName
			return node != ""
		})
		b.gone(p)
		pinned := oracle(p, p.Name+"-at")
		pin(pinned, node)
		b.create(pinned)
		b.wait(fmt.Sprintf("kube-scheduler binds %s to %s, as Muster did: %s", p.Name, node, asText(p)), func() bool {
			return b.podIn(pinned).Spec.NodeName != ""
		})
		b.gone(pinned)
	}
	b.create(refused...) // all at once: none of them gets a place
	for _, p := range refused {
		b.wait("Muster says why "+p.Name+" waits", func() bool {
			now := b.podIn(p)
			if now.Spec.NodeName != "" {
				b.Fatalf("Muster bound %s to %s, where kube-scheduler finds no node: %s", p.Name, now.Spec.NodeName,
					asText(p))
			}
			return condition(now).Status == v1.ConditionFalse
		})
	}
	return yes, len(refused)
}

// judged is what kube-scheduler says about a pod, which is gone afterwards.
func (b *bench) judged(p *v1.Pod) (fits bool) {
	b.Helper()
	b.create(p)
	b.wait("kube-scheduler judges "+p.Name, func() bool {
		now := b.podIn(p)
		fits = now.Spec.NodeName != ""
		return fits || condition(now).Status == v1.ConditionFalse
	})
	b.gone(p)
	return fits
}

func (b *bench) podIn(p *v1.Pod) *v1.Pod {
	b.Helper()
	now, err := b.c.CoreV1().Pods(p.Namespace).Get(b.ctx, p.Name, metav1.GetOptions{})
	if err != nil {
		b.Fatal(err)
	}
	return now
}

// gone deletes a pod and frees the volumes that were given to it.
func (b *bench) gone(p *v1.Pod) {
	b.Helper()
	if err := b.c.CoreV1().Pods(p.Namespace).Delete(b.ctx, p.Name,
		metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}); err != nil {
		b.Fatal(err)
	}
	for _, v := range p.Spec.Volumes {
		if c := v.PersistentVolumeClaim; c != nil && strings.HasPrefix(c.ClaimName, "late") {
			b.freshClaim(c.ClaimName)
		}
	}
}

func pin(p *v1.Pod, node string) {
	req := v1.NodeSelectorRequirement{Key: "metadata.name", Operator: v1.NodeSelectorOpIn, Values: []string{node}}
	if p.Spec.Affinity == nil {
		p.Spec.Affinity = &v1.Affinity{}
	}
	if p.Spec.Affinity.NodeAffinity == nil {
		p.Spec.Affinity.NodeAffinity = &v1.NodeAffinity{}
	}
	a := p.Spec.Affinity.NodeAffinity
	if a.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		a.RequiredDuringSchedulingIgnoredDuringExecution = &v1.NodeSelector{
			NodeSelectorTerms: []v1.NodeSelectorTerm{{}}}
	}
	for i := range a.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		t := &a.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[i]
		t.MatchFields = append(t.MatchFields, req)
	}
}

func asText(p *v1.Pod) string {
	s := p.Spec.DeepCopy()
	text, err := json.Marshal([]any{p.Namespace, p.Labels, s})
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// world makes six nodes in three zones and pods on them.
func (b *bench) world(r *rand.Rand) {
	b.Helper()
	b.attachments(r)
	b.capacities(r)
	for i := range 6 {
		n := controlplane.Node(fmt.Sprintf("n%d", i), []int{0, 2, 4}[r.IntN(3)],
			map[string]string{"zone": fmt.Sprintf("z%d", i%3), "size": strconv.Itoa(r.IntN(4))})
		if r.IntN(3) > 0 {
			n.Labels["rack"] = fmt.Sprintf("r%d", r.IntN(2))
		}
		if r.IntN(4) == 0 {
			n.Spec.Taints = []v1.Taint{
				{Key: "only", Value: "x",
					Effect: []v1.TaintEffect{v1.TaintEffectNoSchedule, v1.TaintEffectNoExecute,
						v1.TaintEffectPreferNoSchedule}[r.IntN(3)]}}
		}
		n.Spec.Unschedulable = r.IntN(8) == 0
		for _, key := range []string{v1.LabelTopologyZone, v1.LabelFailureDomainBetaZone, "topology.gke.io/zone"} {
			if r.IntN(2) == 0 {
				n.Labels[key] = fmt.Sprintf("z%d", i%3)
			}
		}
		size := n.Status.Allocatable
		size[v1.ResourceCPU] = *resource.NewQuantity(int64(4+r.IntN(8)), resource.DecimalSI)
		size[v1.ResourceEphemeralStorage] = resource.MustParse([]string{"10Gi", "100Gi"}[r.IntN(2)])
		if r.IntN(2) == 0 {
			size["example.com/hca"] = resource.MustParse("2")
		}
		if r.IntN(4) == 0 {
			size[v1.ResourcePods] = resource.MustParse("2")
		}
		if r.IntN(2) == 0 {
			n.Status.DeclaredFeatures = []string{"RestartAllContainersOnContainerExits"}
		}
		if _, err := b.c.CoreV1().Nodes().Create(b.ctx, n, metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	b.nodesReady()
	for i := range 8 {
		p := randomPod(r, fmt.Sprintf("there-%d", i))
		p.Spec.NodeName, p.Spec.SchedulerName = fmt.Sprintf("n%d", r.IntN(6)), "other"
		p.Spec.TopologySpreadConstraints = nil
		p.Spec.Volumes = slices.DeleteFunc(p.Spec.Volumes, func(v v1.Volume) bool {
			return v.PersistentVolumeClaim != nil && !slices.Contains(disks, v.PersistentVolumeClaim.ClaimName)
		})
		p.Spec.Containers[0].VolumeMounts = nil
		delete(p.Spec.Containers[0].Resources.Requests, v1.ResourceEphemeralStorage)
		b.create(p)
	}
}

// unready reports whether KWOK has not yet said that the node is ready.
func unready(n *v1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == v1.NodeReady {
			return c.Status != v1.ConditionTrue
		}
	}
	return true
}

var apps = []string{"a", "b", "c"}

func randomPod(r *rand.Rand, name string) *v1.Pod {
	p := controlplane.Pod(name, []int{0, 0, 1, 2, 4}[r.IntN(5)],
		map[string]string{"app": apps[r.IntN(3)], "rev": strconv.Itoa(r.IntN(2))})
	if r.IntN(4) == 0 {
		p.Namespace = "elsewhere"
	}
	s := &p.Spec
	s.Containers[0].Resources.Requests[v1.ResourceCPU] = *resource.NewQuantity(int64(1+r.IntN(3)), resource.DecimalSI)
	if r.IntN(2) == 0 {
		s.Tolerations = append(s.Tolerations, v1.Toleration{Key: "only", Operator: v1.TolerationOpExists})
	}
	for _, add := range []func(*rand.Rand, *v1.Pod){
		addTerms, addTerms, addSpreads, addPorts, addOther, addNodes, addVolumes, addMade, addFeature} {
		if r.IntN(4) == 0 {
			add(r, p)
		}
	}
	return p
}

func randomSelector(r *rand.Rand) *metav1.LabelSelector {
	switch r.IntN(5) {
	case 0:
		return &metav1.LabelSelector{}
	case 1:
		return &metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: "app", Operator: metav1.LabelSelectorOpNotIn, Values: []string{apps[r.IntN(3)]}}}}
	}
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": apps[r.IntN(3)]}}
}

func randomKey(r *rand.Rand) string { return []string{v1.LabelHostname, "zone", "rack"}[r.IntN(3)] }

func addTerms(r *rand.Rand, p *v1.Pod) {
	t := v1.PodAffinityTerm{LabelSelector: randomSelector(r), TopologyKey: randomKey(r)}
	switch r.IntN(4) {
	case 0:
		t.Namespaces = []string{"elsewhere"}
	case 1:
		t.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "x"}}
	case 2:
		t.MatchLabelKeys = []string{"rev"}
	}
	if p.Spec.Affinity == nil {
		p.Spec.Affinity = &v1.Affinity{}
	}
	if r.IntN(2) == 0 {
		p.Spec.Affinity.PodAntiAffinity = &v1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{t}}
	} else {
		p.Spec.Affinity.PodAffinity = &v1.PodAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{t}}
	}
}

// addFeature has a pod need a kubelet that can restart all of it.
func addFeature(_ *rand.Rand, p *v1.Pod) {
	c := &p.Spec.Containers[0]
	c.RestartPolicy = ptr.To(v1.ContainerRestartPolicyNever)
	c.RestartPolicyRules = []v1.ContainerRestartRule{{Action: v1.ContainerRestartRuleActionRestartAllContainers,
		ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn,
			Values: []int32{42}}}}
}

func addSpreads(r *rand.Rand, p *v1.Pod) {
	for i, key := range []string{"zone", v1.LabelHostname} {
		if r.IntN(2) == 0 {
			continue
		}
		c := v1.TopologySpreadConstraint{MaxSkew: int32(1 + r.IntN(2)), TopologyKey: key,
			WhenUnsatisfiable: v1.DoNotSchedule, LabelSelector: randomSelector(r)}
		if r.IntN(3) == 0 {
			c.MinDomains = ptr.To(int32(1 + r.IntN(7)))
		}
		if r.IntN(3) == 0 {
			c.NodeAffinityPolicy = ptr.To(v1.NodeInclusionPolicyIgnore)
		}
		if r.IntN(3) == 0 {
			c.NodeTaintsPolicy = ptr.To(v1.NodeInclusionPolicyHonor)
		}
		if i == 0 && r.IntN(3) == 0 {
			c.MatchLabelKeys = []string{"rev"}
		}
		p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, c)
	}
}

func addPorts(r *rand.Rand, p *v1.Pod) {
	port := v1.ContainerPort{ContainerPort: 80, HostPort: int32(8080 + r.IntN(2)),
		HostIP: []string{"", "127.0.0.1", "10.0.0.1"}[r.IntN(3)]}
	port.Protocol = []v1.Protocol{v1.ProtocolTCP, v1.ProtocolUDP}[r.IntN(2)]
	p.Spec.Containers[0].Ports = []v1.ContainerPort{port}
}

func addOther(r *rand.Rand, p *v1.Pod) {
	q := &p.Spec.Containers[0].Resources
	if r.IntN(2) == 0 {
		n := *resource.NewQuantity(int64(1+r.IntN(2)), resource.DecimalSI)
		if q.Limits == nil {
			q.Limits = v1.ResourceList{}
		}
		q.Limits["example.com/hca"], q.Requests["example.com/hca"] = n, n
		return
	}
	q.Requests[v1.ResourceEphemeralStorage] = resource.MustParse([]string{"5Gi", "50Gi", "500Gi"}[r.IntN(3)])
}

func addNodes(r *rand.Rand, p *v1.Pod) {
	if r.IntN(2) == 0 {
		p.Spec.NodeSelector = map[string]string{"zone": fmt.Sprintf("z%d", r.IntN(3))}
		return
	}
	if p.Spec.Affinity == nil {
		p.Spec.Affinity = &v1.Affinity{}
	}
	req := []v1.NodeSelectorRequirement{
		{Key: "size", Operator: v1.NodeSelectorOpGt, Values: []string{strconv.Itoa(r.IntN(3))}},
		{Key: "rack", Operator: v1.NodeSelectorOpDoesNotExist},
		{Key: "zone", Operator: v1.NodeSelectorOpNotIn, Values: []string{"z0", "z1"}},
	}[r.IntN(3)]
	p.Spec.Affinity.NodeAffinity = &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{
		NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{req}}}}}
}

func addVolumes(r *rand.Rand, p *v1.Pod) {
	if r.IntN(3) == 0 {
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: "inline", VolumeSource: randomDisk(r)})
		return
	}
	if p.Namespace != "default" {
		return
	}
	if r.IntN(2) == 0 {
		for _, i := range r.Perm(len(disks))[:1+r.IntN(2)] {
			using(p, disks[i])
		}
		return
	}
	using(p, []string{"in-z1", "late", "late-csi", "nowhere", "absent"}[r.IntN(5)])
}

// randomDisk is a disk that a pod names itself, of a driver that was part of
// Kubernetes; vol-0 is also a claim's.
func randomDisk(r *rand.Rand) v1.VolumeSource {
	read := r.IntN(2) == 0
	switch r.IntN(5) {
	case 0:
		return v1.VolumeSource{GCEPersistentDisk: &v1.GCEPersistentDiskVolumeSource{PDName: "pd", ReadOnly: read}}
	case 1:
		return v1.VolumeSource{
			ISCSI: &v1.ISCSIVolumeSource{TargetPortal: "10.0.0.1:3260", IQN: "iqn.2026-01.com.example:storage",
				ReadOnly: read}}
	case 2:
		return v1.VolumeSource{
			RBD: &v1.RBDVolumeSource{CephMonitors: []string{[]string{"a", "b"}[r.IntN(2)], "c"}[:1+r.IntN(2)],
				RBDImage: "image", RBDPool: "rbd", ReadOnly: read}}
	}
	return v1.VolumeSource{
		AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{VolumeID: fmt.Sprintf("vol-%d", r.IntN(2))}}
}

// disks are claims that are bound to volumes which any node can attach, unless its
// labels say otherwise: the first is for one pod at a time, the fourth is of a driver
// that has to be on the node, those after it are of drivers that were part of Kubernetes.
var disks = []string{"disk-0", "disk-1", "disk-2", "disk-3", "ebs-0", "ebs-1", "pd", "zones"}

// attachments says how many volumes each node attaches, and which it has attached.
func (b *bench) attachments(r *rand.Rand) {
	b.Helper()
	if err := b.c.StorageV1().CSINodes().DeleteCollection(b.ctx, metav1.DeleteOptions{},
		metav1.ListOptions{}); err != nil {
		b.Fatal(err)
	}
	if err := b.c.StorageV1().VolumeAttachments().DeleteCollection(b.ctx, metav1.DeleteOptions{},
		metav1.ListOptions{}); err != nil {
		b.Fatal(err)
	}
	for i := range 6 {
		limits, name := map[string]int32{}, fmt.Sprintf("n%d", i)
		for _, driver := range []string{csi, csiThere, "ebs.csi.aws.com", "pd.csi.storage.gke.io"} {
			if k := r.IntN(5); k < 4 {
				limits[driver] = int32(k) - 1 // -1: it says no number
			}
		}
		if r.IntN(5) > 0 {
			c := csiNode(name, limits)
			c.Annotations = map[string]string{
				v1.MigratedPluginsAnnotationKey: []string{"", "kubernetes.io/gce-pd",
					"kubernetes.io/aws-ebs,kubernetes.io/gce-pd"}[r.IntN(3)]}
			if _, err := b.c.StorageV1().CSINodes().Create(b.ctx, c, metav1.CreateOptions{}); err != nil {
				b.Fatal(err)
			}
		}
		if r.IntN(3) == 0 {
			volume := "v-" + append(disks, "spare")[r.IntN(len(disks)+1)]
			va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("va-%d", i)},
				Spec: storagev1.VolumeAttachmentSpec{Attacher: b.driverOf(volume), NodeName: name,
					Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume}}}
			if _, err := b.c.StorageV1().VolumeAttachments().Create(b.ctx, va, metav1.CreateOptions{}); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// csiThere is a driver whose pods go only where it is.
const csiThere = "there.example.com"

func (b *bench) driverOf(volume string) string {
	if volume == "v-disk-3" {
		return csiThere
	}
	return csi
}

// shelf makes claims: one that is bound to a volume in zone z1, two that are bound
// where their pod goes, to a volume of node n2 or n3, one of a class that binds
// at once and that no driver serves, and those of disks.
func (b *bench) shelf() {
	b.Helper()
	if _, err := b.c.CoreV1().Namespaces().Create(b.ctx,
		&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "elsewhere", Labels: map[string]string{"team": "x"}}},
		metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	late := storagev1.VolumeBindingWaitForFirstConsumer
	for _, c := range []*storagev1.StorageClass{
		{ObjectMeta: metav1.ObjectMeta{Name: "local"}, Provisioner: "kubernetes.io/no-provisioner",
			VolumeBindingMode: &late},
		{ObjectMeta: metav1.ObjectMeta{Name: "csi"}, Provisioner: csi, VolumeBindingMode: &late,
			AllowedTopologies: []v1.TopologySelectorTerm{
				// it makes none anywhere
				{MatchLabelExpressions: []v1.TopologySelectorLabelRequirement{
					{Key: "zone", Values: []string{"none"}}}}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "made"}, Provisioner: csiMaker, VolumeBindingMode: &late},
		{ObjectMeta: metav1.ObjectMeta{Name: "unserved"}, Provisioner: "example.com/nobody"},
	} {
		if _, err := b.c.StorageV1().StorageClasses().Create(b.ctx, c, metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	for _, name := range []string{csiThere, "ebs.csi.aws.com"} {
		there := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: storagev1.CSIDriverSpec{PreventPodSchedulingIfMissing: ptr.To(true)}}
		if _, err := b.c.StorageV1().CSIDrivers().Create(b.ctx, there, metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	maker := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: csiMaker},
		Spec: storagev1.CSIDriverSpec{StorageCapacity: ptr.To(true)}}
	if _, err := b.c.StorageV1().CSIDrivers().Create(b.ctx, maker, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	b.volume("v-z1", "manual", "zone", "z1")
	b.claimVolume("in-z1", "manual", "v-z1")
	b.claimVolume("nowhere", "unserved", "")
	b.freshClaim("late")
	b.freshClaim("late-csi")
	b.freshClaim("late-small")
	b.freshClaim("late-large")
	b.volume("v-spare", "manual", "", "")
	for i, name := range disks {
		mode := v1.ReadWriteMany
		if i == 0 {
			mode = v1.ReadWriteOncePod
		}
		key, zone := "", ""
		if name == "pd" {
			key, zone = v1.LabelTopologyZone, "z1"
		}
		b.volume("v-"+name, "manual", key, zone, mode)
		b.claimVolume(name, "manual", "v-"+name, mode)
	}
	for _, name := range append(disks, "in-z1") {
		b.wait("the claim "+name+" is bound", func() bool {
			c, err := b.c.CoreV1().PersistentVolumeClaims("default").Get(b.ctx, name, metav1.GetOptions{})
			return err == nil && c.Status.Phase == v1.ClaimBound
		})
	}
	b.wait("the ServiceAccount of the other namespace is there", func() bool {
		_, err := b.c.CoreV1().ServiceAccounts("elsewhere").Get(b.ctx, "default", metav1.GetOptions{})
		return err == nil
	})
}

// volume makes a volume for the nodes with a label, or without a key for all; of
// class local a folder of the node, else one of a driver.
func (b *bench) volume(name, class, key, value string, modes ...v1.PersistentVolumeAccessMode) {
	b.Helper()
	v := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.PersistentVolumeSpec{StorageClassName: class,
			Capacity: v1.ResourceList{v1.ResourceStorage: resource.MustParse("10Gi")}, AccessModes: modesOr(modes),
			PersistentVolumeReclaimPolicy: v1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource: v1.PersistentVolumeSource{
				CSI: &v1.CSIPersistentVolumeSource{Driver: b.driverOf(name), VolumeHandle: name}}}}
	switch {
	case strings.HasPrefix(name, "v-ebs-"):
		v.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{
			AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-" + name[len("v-ebs-"):]}}
	case name == "v-pd":
		v.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{
			GCEPersistentDisk: &v1.GCEPersistentDiskVolumeSource{PDName: "pd"}}
	case name == "v-zones":
		v.Labels = map[string]string{v1.LabelFailureDomainBetaZone: "z0__z2"}
	case class == "local":
		v.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: "/data"}}
	}
	if key != "" {
		v.Spec.NodeAffinity = &v1.VolumeNodeAffinity{
			Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
				MatchExpressions: []v1.NodeSelectorRequirement{
					{Key: key, Operator: v1.NodeSelectorOpIn, Values: []string{value}}}}}}}
	}
	if _, err := b.c.CoreV1().PersistentVolumes().Create(b.ctx, v, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
}

func modesOr(modes []v1.PersistentVolumeAccessMode) []v1.PersistentVolumeAccessMode {
	if len(modes) > 0 {
		return modes
	}
	return []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}
}

func (b *bench) claimVolume(name, class, volume string, modes ...v1.PersistentVolumeAccessMode) {
	b.Helper()
	size := "5Gi"
	if name == "late-large" {
		size = "20Gi"
	}
	c := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: v1.PersistentVolumeClaimSpec{
			StorageClassName: &class, VolumeName: volume, AccessModes: modesOr(modes),
			Resources: v1.VolumeResourceRequirements{
				Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse(size)}}}}
	if _, err := b.c.CoreV1().PersistentVolumeClaims("default").Create(b.ctx, c, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
}

// freshClaim makes the claim again that waits for its first consumer, and the
// volumes that it can have.
func (b *bench) freshClaim(name string) {
	b.Helper()
	class := map[string]string{"late": "local", "late-csi": "csi", "late-small": "made", "late-large": "made"}[name]
	now := metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}
	_ = b.c.CoreV1().PersistentVolumeClaims("default").Delete(b.ctx, name, now)
	b.wait("the old claim is gone", func() bool {
		_, err := b.c.CoreV1().PersistentVolumeClaims("default").Get(b.ctx, name, metav1.GetOptions{})
		return err != nil
	})
	if class == "made" {
		b.claimVolume(name, class, "")
		return
	}
	for _, n := range []string{"n2", "n3"} {
		_ = b.c.CoreV1().PersistentVolumes().Delete(b.ctx, class+"-"+n, now)
		b.wait("the old volume is gone", func() bool {
			_, err := b.c.CoreV1().PersistentVolumes().Get(b.ctx, class+"-"+n, metav1.GetOptions{})
			return err != nil
		})
		b.volume(class+"-"+n, class, v1.LabelHostname, n)
	}
	b.wait("the volumes are available", func() bool {
		for _, n := range []string{"n2", "n3"} {
			v, err := b.c.CoreV1().PersistentVolumes().Get(b.ctx, class+"-"+n, metav1.GetOptions{})
			if err != nil || v.Status.Phase != v1.VolumeAvailable {
				return false
			}
		}
		return true
	})
	b.claimVolume(name, class, "")
}

// nodesReady waits until every node is.
func (b *bench) nodesReady() {
	b.Helper()
	b.wait("the nodes are ready", func() bool {
		list, err := b.c.CoreV1().Nodes().List(b.ctx, metav1.ListOptions{})
		for i := range list.Items {
			if unready(&list.Items[i]) {
				return false
			}
		}
		return err == nil
	})
}
