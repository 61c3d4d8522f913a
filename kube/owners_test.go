package kube

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/controlplane"
	"github.com/muster-gpu/muster/internal/shared"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/gangs"
	"github.com/muster-gpu/muster/kube/queues"
)

// The controllers of these kinds do not run here. Their definitions are made
// again, with the real group, version and kind and nothing else; objects and pods
// are as the real controllers make them: labels and annotations as of JobSet
// v0.8, LeaderWorkerSet v0.6, training operator v1.8, MPI operator v0.6, KubeRay
// 1.4, Kueue v0.19, Volcano v1.16 and KAI v0.17.

// crd defines a kind.
func crd(k *gangs.Kind, wide bool) *unstructured.Unstructured {
	scope := "Namespaced"
	if wide {
		scope = "Cluster"
	}
	var versions []any
	for i, v := range k.Versions {
		versions = append(versions,
			map[string]any{"name": v, "served": true, "storage": i == 0, "schema": map[string]any{
				"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}})
	}
	return &unstructured.Unstructured{
		Object: map[string]any{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
			"metadata": map[string]any{"name": k.String()},
			"spec": map[string]any{"group": k.Group, "scope": scope, "versions": versions,
				"names": map[string]any{"plural": k.Resource, "singular": strings.ToLower(k.Name), "kind": k.Name,
					"listKind": k.Name + "List"}}}}
}

// clusterWide reports whether objects of a kind have no namespace.
func clusterWide(k *gangs.Kind) bool { return k == kueuePriorityKind || k == gangs.TopologyKind }

func (b *bench) dynamic(change ...func(*rest.Config)) dynamic.Interface {
	b.Helper()
	rc := rest.CopyConfig(b.p.Admin)
	rc.QPS = -1
	for _, f := range change {
		f(rc)
	}
	c, err := dynamic.NewForConfig(rc)
	if err != nil {
		b.Fatal(err)
	}
	return c
}

func (b *bench) define(kinds ...*gangs.Kind) {
	b.Helper()
	crds := b.dynamic().Resource(
		schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
			Resource: "customresourcedefinitions"})
	for _, k := range kinds {
		if _, err := crds.Create(b.ctx, crd(k, clusterWide(k)), metav1.CreateOptions{}); err != nil &&
			!apierrors.IsAlreadyExists(err) {
			b.Fatal(err)
		}
	}
	for _, k := range kinds {
		b.wait(k.String()+" is served", func() bool {
			if _, err := b.dynamic().Resource(gvr(k)).List(b.ctx, metav1.ListOptions{}); err != nil {
				return false
			}
			list, err := b.c.Discovery().ServerGroups() // by which the scheduler knows; it may take longer
			return err == nil && slices.ContainsFunc(list.Groups, func(g metav1.APIGroup) bool {
				return g.Name == k.Group &&
					slices.ContainsFunc(g.Versions, func(v metav1.GroupVersionForDiscovery) bool {
						return v.Version == k.Versions[0]
					})
			})
		})
	}
}

type object = map[string]any

// object creates an object of a kind and returns how its pods refer to it.
func (b *bench) object(k *gangs.Kind, name string, meta, rest object) []metav1.OwnerReference {
	b.Helper()
	o := &unstructured.Unstructured{Object: object{"apiVersion": k.Group + "/" + k.Versions[0], "kind": k.Name}}
	for key, v := range rest {
		o.Object[key] = v
	}
	all := object{"name": name}
	for key, v := range meta {
		all[key] = v
	}
	o.Object["metadata"] = all
	var c dynamic.ResourceInterface = b.dynamic().Resource(gvr(k))
	if !clusterWide(k) {
		o.SetNamespace("default")
		c = b.dynamic().Resource(gvr(k)).Namespace("default")
	}
	o, err := c.Create(b.ctx, o, metav1.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = c.Delete(context.Background(), name, metav1.DeleteOptions{}) })
	yes := true
	return []metav1.OwnerReference{
		{APIVersion: o.GetAPIVersion(), Kind: k.Name, Name: name, UID: o.GetUID(), Controller: &yes}}
}

// job creates a Job that its controller leaves alone, as one that is made by
// another's test: its pods are made by hand.
func (b *bench) job(name string, of []metav1.OwnerReference, pods int,
	labels map[string]string) []metav1.OwnerReference {
	b.Helper()
	n, yes, other := int32(pods), true, "test.muster.sh/nobody"
	spec := controlplane.Spec(1)
	j, err := b.c.BatchV1().Jobs("default").Create(b.ctx,
		&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, OwnerReferences: of},
			Spec: batchv1.JobSpec{Parallelism: &n, Completions: &n, ManagedBy: &other,
				Template: v1.PodTemplateSpec{Spec: spec}}}, metav1.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = b.c.BatchV1().Jobs("default").Delete(context.Background(), name, metav1.DeleteOptions{}) })
	return []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: name, UID: j.UID, Controller: &yes}}
}

// owned is a pod of one GPU; more as for controlplane.Pod.
func owned(name string, of []metav1.OwnerReference, more map[string]string) *v1.Pod {
	p := controlplane.Pod(name, 1, more)
	p.OwnerReferences = of
	return p
}

// bound counts the pods of these names that hold their GPU.
func (b *bench) bound(pods []*v1.Pod) (n int) {
	b.Helper()
	for _, p := range pods {
		if live(b.pod(p.Name)) {
			n++
		}
	}
	return n
}

// kindOfGang makes an object and the pods of one gang of it; the last but
// extra is what it needs, the others follow.
type kindOfGang struct {
	name  string
	make  func(*bench) []*v1.Pod
	extra int
}

func jobSetPods(b *bench) (pods []*v1.Pod) {
	of := b.object(jobSetKind, "js", nil, object{"spec": object{"replicatedJobs": []any{
		object{"name": "driver", "replicas": int64(1),
			"template": object{"spec": object{"parallelism": int64(1), "completions": int64(1)}}},
		object{"name": "workers", "replicas": int64(2),
			"template": object{"spec": object{"parallelism": int64(2), "completions": int64(2)}}}}}})
	for _, j := range []struct {
		part        string
		index, pods int
		of          string
	}{{"driver", 0, 1, "1"}, {"workers", 0, 2, "2"}, {"workers", 1, 2, "2"}} {
		name := fmt.Sprintf("js-%s-%d", j.part, j.index)
		labels := map[string]string{jobSetName: "js", jobSetReplicated: j.part, jobSetReplicas: j.of,
			"jobset.sigs.k8s.io/job-index": fmt.Sprint(j.index)}
		ref := b.job(name, of, j.pods, labels)
		for i := range j.pods {
			pods = append(pods, owned(fmt.Sprintf("%s-%d", name, i), ref, labels))
		}
	}
	return pods
}

// A TrainJob makes a JobSet of its own name; what depends on another step comes
// later and is a gang by itself.
func trainJobPods(b *bench) (pods []*v1.Pod) {
	train := b.object(trainJobKind, "tj", object{"labels": object{LabelQueue: "research"}},
		object{"spec": object{"trainer": object{"numNodes": int64(3)}}})
	train[0].Controller = nil
	up := []any{object{"apiVersion": train[0].APIVersion, "kind": "TrainJob", "name": "tj", "uid": string(train[0].UID),
		"controller": true}}
	of := b.object(jobSetKind, "tj", object{"ownerReferences": up}, object{"spec": object{"replicatedJobs": []any{
		object{"name": "dataset-initializer", "replicas": int64(1), "template": object{"spec": object{}}},
		object{"name": "node", "replicas": int64(1),
			"dependsOn": []any{object{"name": "dataset-initializer", "status": "Complete"}},
			"template":  object{"spec": object{"parallelism": int64(3), "completions": int64(3)}}}}}})
	labels := map[string]string{jobSetName: "tj", jobSetReplicated: "node", jobSetReplicas: "1",
		"jobset.sigs.k8s.io/job-index": "0"}
	ref := b.job("tj-node-0", of, 3, labels)
	for i := range 3 {
		pods = append(pods, owned(fmt.Sprintf("tj-node-0-%d", i), ref, labels))
	}
	return pods
}

func lwsPods(b *bench) (pods []*v1.Pod) {
	b.object(lwsKind, "lws", nil,
		object{"spec": object{"replicas": int64(1), "startupPolicy": "LeaderCreated",
			"leaderWorkerTemplate": object{"size": int64(3)}}})
	for i := range 3 { // of StatefulSets, which are left out: their controller does run here
		name := "lws-0"
		if i > 0 {
			name = fmt.Sprintf("lws-0-%d", i)
		}
		pods = append(pods, owned(name, nil, map[string]string{lwsName: "lws", lwsGroup: "0", lwsWorker: fmt.Sprint(i),
			"leaderworkerset.sigs.k8s.io/group-key": "689ce1b5", "!" + lwsSize: "3"}))
	}
	return pods
}

func kubeflowPods(k *gangs.Kind, field string, min int64, extra int, specs object) kindOfGang {
	return kindOfGang{k.Name, func(b *bench) (pods []*v1.Pod) {
		policy := object{}
		if min > 0 {
			policy["schedulingPolicy"] = object{"minAvailable": min}
		}
		name := strings.ToLower(k.Name)
		of := b.object(k, name, nil, object{"spec": object{field: specs, "runPolicy": policy}})
		for _, kind := range []string{"Master", "Launcher", "PS", "Worker"} {
			spec, ok := specs[kind].(object)
			if !ok {
				continue
			}
			for i := range spec["replicas"].(int64) {
				low, ref := strings.ToLower(kind), of
				labels := map[string]string{kubeflowJob: name, kubeflowType: low,
					"training.kubeflow.org/replica-index": fmt.Sprint(i)}
				if kind == "Launcher" { // the MPI operator starts it by a Job
					ref = b.job(name+"-launcher", of, 1, nil)
					labels = map[string]string{kubeflowJob: name, kubeflowRole: low}
				}
				pods = append(pods, owned(fmt.Sprintf("%s-%s-%d", name, low, i), ref, labels))
			}
		}
		return pods
	}, extra}
}

func rayPods(b *bench) (pods []*v1.Pod) {
	of := b.object(rayClusterKind, "ray", nil,
		object{"spec": object{"enableInTreeAutoscaling": true, "workerGroupSpecs": []any{
			object{"groupName": "gpu", "replicas": int64(4), "minReplicas": int64(2), "maxReplicas": int64(8),
				"numOfHosts": int64(1)}}}})
	pods = append(pods, owned("ray-head", of,
		map[string]string{rayCluster: "ray", rayType: "head", rayGroup: "headgroup", "ray.io/is-ray-node": "yes"}))
	for i := range 4 {
		pods = append(pods, owned(fmt.Sprintf("ray-worker-%d", i), of,
			map[string]string{rayCluster: "ray", rayType: "worker", rayGroup: "gpu", "ray.io/is-ray-node": "yes"}))
	}
	return pods
}

func kueuePods(*bench) (pods []*v1.Pod) {
	for i := range 3 {
		pods = append(pods, owned(fmt.Sprintf("kueue-%d", i), nil,
			map[string]string{kueueGroupName: "grp", "!" + kueueGroupSize: "3"}))
	}
	return pods
}

func volcanoPods(b *bench) (pods []*v1.Pod) {
	b.object(volcanoKind, "vpg", nil, object{"spec": object{"minMember": int64(3), "queue": "default"}})
	for i := range 4 {
		pods = append(pods, owned(fmt.Sprintf("volcano-%d", i), nil, map[string]string{"!" + volcanoGroupNameK: "vpg"}))
	}
	return pods
}

func kaiPods(b *bench) (pods []*v1.Pod) {
	b.object(kaiKind, "kpg", nil,
		object{"spec": object{
			"subGroups": []any{object{"name": "decode", "minMember": int64(2)},
				object{"name": "prefill", "minMember": int64(1)}}}})
	for i, sub := range []string{"decode", "decode", "prefill"} {
		pods = append(pods, owned(fmt.Sprintf("kai-%d", i), nil,
			map[string]string{"!" + kaiGroupName: "kpg", kaiSubGroup: sub}))
	}
	return pods
}

// Each kind of gang starts as a whole when it is complete, and not before; what
// it does not need follows.
func testOwners(b *bench) {
	b.define(jobSetKind, trainJobKind, lwsKind, pyTorchKind, tfKind, mpiKind, rayClusterKind, volcanoKind, kaiKind)
	b.nodes(4, "n1", "n2")
	_, stop := b.schedule(func(o *Options) {
		o.Dynamic = b.dynamic()
		o.Rules.Spec.Queues = []cluster.Queue{{Name: "default", Limit: cluster.Unlimited, Lend: cluster.Unlimited},
			{Name: "research", Limit: cluster.Unlimited, Lend: cluster.Unlimited}}
	})
	defer stop()
	for _, k := range []kindOfGang{{"JobSet", jobSetPods, 0}, {"TrainJob", trainJobPods, 0},
		{"LeaderWorkerSet", lwsPods, 0},
		kubeflowPods(pyTorchKind, "pytorchReplicaSpecs", 3, 1,
			object{"Master": object{"replicas": int64(1)}, "Worker": object{"replicas": int64(3)}}),
		kubeflowPods(tfKind, "tfReplicaSpecs", 0, 0,
			object{"PS": object{"replicas": int64(1)}, "Worker": object{"replicas": int64(2)}}),
		kubeflowPods(mpiKind, "mpiReplicaSpecs", 0, 0,
			object{"Launcher": object{"replicas": int64(1)}, "Worker": object{"replicas": int64(2)}}),
		{"RayCluster", rayPods, 2}, {"Kueue", kueuePods, 0}, {"Volcano", volcanoPods, 1}, {"KAI", kaiPods, 0}} {
		b.Run(k.name, func(t *testing.T) {
			b.under(t).whole(k)
		})
	}
}

// whole starts a gang but for one pod, and sees that nothing of it starts; then
// the last one comes, but there is room for all but one; then there is room.
func (b *bench) whole(k kindOfGang) {
	pods := k.make(b)
	need := len(pods) - k.extra
	probe := func(name string, gpus int) { // what came before it was seen when it is bound
		b.create(controlplane.Pod(name, gpus, nil))
		b.wait(name+" is bound", func() bool { return live(b.pod(name)) })
	}
	b.create(pods[:need-1]...)
	probe("probe", 8-need+1-4*((8-need+1)/4)) // whatever is no multiple of a node
	if n := b.bound(pods[:need-1]); n != 0 {
		b.Fatalf("%d of %d pods are bound; one is missing", n, need-1)
	}
	if n := (8 - need + 1) / 4; n > 0 {
		probe("filler", 4)
	}
	b.create(pods[need-1:]...)
	probe("later", 0)
	if n := b.bound(pods); n != 0 {
		b.Fatalf("%d of %d pods are bound; there is room for %d", n, len(pods), need-1)
	}
	now := int64(0)
	for _, name := range []string{"probe", "filler", "later"} {
		_ = b.c.CoreV1().Pods("default").Delete(b.ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &now})
	}
	b.wait("all of it is bound", func() bool { return b.bound(pods) == len(pods) })
	plan := b.pod(pods[0].Name).Annotations[AnnotationPlan]
	same := 0
	for _, p := range pods {
		if b.pod(p.Name).Annotations[AnnotationPlan] == plan {
			same++
		}
	}
	if same != need {
		b.Errorf("%d pods were bound by one plan; the gang needs %d", same, need)
	}
	for _, p := range pods {
		_ = b.c.CoreV1().Pods("default").Delete(b.ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: &now})
	}
	b.wait("it is gone", func() bool { return len(b.pods()) == 0 })
}

// look runs a function where the driver's state belongs, and waits for it.
func (b *bench) look(d *Driver, f func()) {
	b.Helper()
	done := make(chan struct{})
	d.inbox.Put(func() { f(); close(done) })
	select {
	case <-done:
	case <-b.ctx.Done():
		b.Fatal("the driver does not answer")
	}
}

// change changes an object.
func (b *bench) change(k *gangs.Kind, name string, f func(o object)) {
	b.Helper()
	c := b.dynamic().Resource(gvr(k)).Namespace("default")
	b.wait(name+" is changed", func() bool {
		o, err := c.Get(b.ctx, name, metav1.GetOptions{})
		if err != nil {
			b.Fatal(err)
		}
		f(o.Object)
		_, err = c.Update(b.ctx, o, metav1.UpdateOptions{})
		return err == nil
	})
}

// A RayCluster runs with more workers than it needs; the scheduler that follows
// knows them as what they are. When it is suspended and its pods begin to go, all
// of them go. Pods of what is suspended wait, and start when it is resumed.
func testSuspend(b *bench) {
	b.define(rayClusterKind)
	b.nodes(4, "n1", "n2")
	read := func(o *Options) { o.Dynamic = b.dynamic() }
	_, stop := b.schedule(read)
	pods := rayPods(b)
	b.create(pods...)
	b.wait("the cluster runs with all workers", func() bool { return b.bound(pods) == len(pods) })
	stop()
	d, stop := b.schedule(read)
	defer stop()
	b.wait("the next scheduler is ready", d.Ready)
	more := *pods[len(pods)-1]
	more.Name = "ray-worker-4"
	b.create(&more)
	b.wait("another worker is bound", func() bool { return live(b.pod(more.Name)) })
	b.look(d, func() {
		g := d.gangs["ray/default/ray"]
		if g == nil || g.Phase != gang.Running || len(g.Places) != 3 || d.singletons[g.Key] != 3 {
			b.Errorf("the gang is not what it was: %+v, and %d alone", g, d.singletons["ray/default/ray"])
		}
	})
	b.change(rayClusterKind, "ray", func(o object) { o["spec"].(object)["suspend"] = true })
	b.look(d, func() {}) // most likely it knows by now; if not, the pod below is just a lost one until it does
	if err := b.c.CoreV1().Pods("default").Delete(b.ctx, "ray-head", metav1.DeleteOptions{}); err != nil {
		b.Fatal(err)
	}
	b.wait("all of it has left", func() bool { return len(b.pods()) == 0 })
	b.create(pods[:3]...)
	b.wait("it says that it is suspended", func() bool {
		return strings.Contains(condition(b.pod("ray-head")).Message,
			"RayCluster default/ray is suspended (spec.suspend)")
	})
	if n := b.bound(pods[:3]); n != 0 {
		b.Errorf("%d pods of what is suspended are bound", n)
	}
	b.change(rayClusterKind, "ray", func(o object) { o["spec"].(object)["suspend"] = false })
	b.wait("it runs again", func() bool { return b.bound(pods[:3]) == 3 })
}

// Workers of a RayService that Muster scales come and go one by one: what those had that are gone, others get.
func testRayServed(b *bench) {
	b.define(rayClusterKind, rayServiceKind)
	b.nodes(4, "n1")
	said := object{"muster.sh/service": "name: chat", "muster.sh/service-status": "{}"}
	service := b.object(rayServiceKind, "chat", object{"annotations": said}, nil)
	of := b.object(rayClusterKind, "chat-x", object{"annotations": said, "ownerReferences": []any{object{
		"apiVersion": "ray.io/v1", "kind": "RayService", "name": "chat", "uid": string(service[0].UID),
		"controller": true}}}, object{"spec": object{"workerGroupSpecs": []any{
		object{"groupName": "gpu", "replicas": int64(3), "minReplicas": int64(1), "maxReplicas": int64(3)}}}})
	_, stop := b.schedule(func(o *Options) { o.Dynamic = b.dynamic() })
	defer stop()
	labels := map[string]string{rayCluster: "chat-x", rayType: "head", rayGroup: "headgroup"}
	pods := []*v1.Pod{owned("chat-head", of, labels)}
	for i := range 3 {
		pods = append(pods, owned(fmt.Sprintf("chat-%d", i), of,
			map[string]string{rayCluster: "chat-x", rayType: "worker", rayGroup: "gpu"}))
	}
	b.create(pods...)
	b.wait("all of it runs", func() bool { return b.bound(pods) == 4 })
	other := controlplane.Pod("other", 2, nil)
	b.create(other)
	b.change(rayClusterKind, "chat-x", func(o object) {
		o["spec"].(object)["workerGroupSpecs"].([]any)[0].(object)["replicas"] = int64(1)
	})
	for _, name := range []string{"chat-0", "chat-1"} {
		if err := b.c.CoreV1().Pods("default").Delete(b.ctx, name, metav1.DeleteOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	b.wait("another has what they had", func() bool { return live(b.pod("other")) })
	if n := b.bound([]*v1.Pod{pods[0], pods[3]}); n != 2 {
		b.Errorf("%d of the two that are left run", n)
	}
}

// What owners and groups say counts as far as it is not said nearer: queues,
// priorities, topologies. What makes no sense is told.
func testTerms(b *bench) {
	b.define(volcanoKind, kueuePriorityKind, localQueueKind, trainJobKind, jobSetKind, kaiKind, rayJobKind,
		rayClusterKind, pyTorchKind)
	b.nodes(8, "n1")
	b.object(kueuePriorityKind, "urgent", nil, object{"value": int64(700)})
	b.object(localQueueKind, "team", nil, object{"spec": object{"clusterQueue": "research"}})
	b.object(volcanoKind, "vq", nil,
		object{"spec": object{"minMember": int64(1), "queue": "product", "priorityClassName": "system-node-critical"}})
	d, stop := b.schedule(func(o *Options) {
		o.Dynamic = b.dynamic()
		o.Rules.Spec.Queues = []cluster.Queue{{Name: "research", Limit: cluster.Unlimited},
			{Name: "product", Guarantee: cluster.Whole, Limit: cluster.Unlimited},
			{Name: "other", Limit: cluster.Unlimited}}
		o.DefaultQueue, o.Labels.Rack = "other", "example.com/rack"
	})
	defer stop()
	kueue := b.job("kueue-job", nil, 1,
		map[string]string{kueueQueue: "team", kueuePriority: "urgent", kueueMaxTime: "60"})
	b.create(owned("kueue-job-0", kueue, map[string]string{"!" + kueueRequired: v1.LabelHostname}))
	b.create(trainJobPods(b)...)
	b.create(owned("vq", nil, map[string]string{"!" + volcanoGroupNameK: "vq"}),
		owned("own", nil, map[string]string{LabelQueue: "research", "kai.scheduler/queue": "product",
			LabelTier: "best-effort", "!" + kaiPreferred: "example.com/rack"}))
	ray := b.object(rayJobKind, "rj",
		object{"labels": object{kueueQueue: "team", kueuePriority: "urgent", LabelTier: "best-effort"}},
		object{"spec": object{}})
	up := []any{object{"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "rj", "uid": string(ray[0].UID),
		"controller": true}}
	head := b.object(rayClusterKind, "rj-x", object{"ownerReferences": up},
		object{"spec": object{"workerGroupSpecs": []any{}}})
	torch := b.object(pyTorchKind, "pt", nil,
		object{"spec": object{"pytorchReplicaSpecs": object{"Master": object{"replicas": int64(1)}},
			"runPolicy": object{
				"schedulingPolicy": object{"queue": "product", "priorityClass": "system-cluster-critical"}}}})
	b.create(owned("rj-x-head", head, map[string]string{rayCluster: "rj-x", rayType: "head", rayGroup: "headgroup"}),
		owned("pt-master-0", torch,
			map[string]string{kubeflowJob: "pt", kubeflowType: "master", LabelTier: "standard"}))
	bad := map[string][2]string{
		"class": {"!" + kaiPriority,
			`annotation priorityClassName of pod class: there is no PriorityClass "x" that Muster can read`},
		"topology": {"!" + kueueRequired, `"x" is none of the labels that the configuration names`},
		"group":    {"!" + kaiGroupName, "PodGroup default/x is not there"},
	}
	for name, c := range bad {
		b.create(owned(name, nil, map[string]string{c[0]: "x"}))
	}
	for name, want := range map[string]cluster.Job{
		"kueue-job-0": {Queue: "research", Priority: 700, Tier: cluster.Standard,
			Topology: cluster.Topology{Level: cluster.LevelNode, Required: true}, Estimate: time.Minute},
		"tj-node-0-0": {Queue: "research", Tier: cluster.Standard},
		"vq":          {Queue: "product", Tier: cluster.Critical, Priority: 2000001000},
		"rj-x-head":   {Queue: "research", Priority: 700, Tier: cluster.BestEffort},
		"pt-master-0": {Queue: "product", Priority: 2000000000, Tier: cluster.Standard},
		"own": {Queue: "research", Tier: cluster.BestEffort,
			Topology: cluster.Topology{Level: cluster.LevelRack}},
	} {
		b.wait(name+" is bound", func() bool { return live(b.pod(name)) })
		b.look(d, func() {
			s := d.pods[b.pod(name).UID].Gang.Spec
			got := cluster.Job{Queue: s.Queue, Priority: s.Priority, Tier: s.Tier, Topology: s.Topology,
				Estimate: s.Estimate}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				b.Errorf("%s: %+v, want %+v", name, got, want)
			}
		})
	}
	for name, c := range bad {
		b.wait(name+" says what is wrong", func() bool {
			return strings.Contains(condition(b.pod(name)).Message, c[1])
		})
	}
}

func nobodyAtAll(rc *rest.Config) { rc.Impersonate.UserName = "nobody" }

// A scheduler that may not read JobSets says so and goes by the labels of their
// pods: the Jobs of a part start together. When it may, it does.
func testForbidden(b *bench) {
	b.define(jobSetKind)
	b.nodes(8, "n1")
	role, err := b.c.RbacV1().ClusterRoles().Create(b.ctx,
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "nobody"}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{queues.Resource.Group}, Resources: []string{queues.Resource.Resource},
				Verbs: []string{"list", "watch"}}}}, metav1.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
	bind := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "nobody"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "nobody"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "nobody"}}}
	if _, err := b.c.RbacV1().ClusterRoleBindings().Create(b.ctx, bind, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	b.wait("nobody may read queues", func() bool { // the right takes a moment to count
		_, err := b.dynamic(nobodyAtAll).Resource(queues.Resource).List(b.ctx, metav1.ListOptions{})
		return err == nil || apierrors.IsNotFound(err)
	})
	var log shared.Text
	d, stop := b.schedule(func(o *Options) {
		o.Dynamic = b.dynamic(nobodyAtAll)
		o.Rescan, o.Log = 50*time.Millisecond, slog.New(slog.NewTextHandler(&log, nil))
	})
	defer stop()
	pods := jobSetPods(b)
	b.create(pods[:4]...)
	b.wait("the driver starts, and no worker", func() bool { return b.bound(pods[:1]) == 1 })
	if n := b.bound(pods[1:4]); n != 0 {
		b.Errorf("%d of 3 workers are bound; there are 4", n)
	}
	b.create(pods[4])
	b.wait("all workers start", func() bool { return b.bound(pods) == 5 })
	said := "may not read jobsets.jobset.x-k8s.io"
	if n := strings.Count(log.String(), said); n != 1 {
		b.Errorf("the log says %d times that Muster %s", n, said)
	}
	role.Rules = append(role.Rules,
		rbacv1.PolicyRule{APIGroups: []string{jobSetKind.Group}, Resources: []string{jobSetKind.Resource},
			Verbs: []string{"list", "watch"}})
	if _, err := b.c.RbacV1().ClusterRoles().Update(b.ctx, role, metav1.UpdateOptions{}); err != nil {
		b.Fatal(err)
	}
	b.wait("the JobSet is read", func() (so bool) {
		b.look(d, func() { so = d.objects.Has(jobSetKind.In("default", "js")) })
		return so
	})
}

// Kinds that come while the scheduler runs are read then, and those that go are
// not missed.
func testServed(b *bench) {
	b.nodes(8, "n1")
	d, stop := b.schedule(func(o *Options) { o.Dynamic, o.Rescan = b.dynamic(), 50*time.Millisecond })
	defer stop()
	read := func() (so bool) {
		b.look(d, func() { so = d.objects.Readable(paddleKind) })
		return so
	}
	b.wait("the scheduler is ready", d.Ready)
	b.define(paddleKind)
	b.wait("it reads PaddleJobs", read)
	k := kubeflowPods(paddleKind, "paddleReplicaSpecs", 0, 0, object{"Worker": object{"replicas": int64(3)}})
	pods := k.make(b)
	b.create(pods[:2]...)
	b.wait("its pods wait for each other", func() bool {
		return strings.Contains(condition(b.pod(pods[0].Name)).Message,
			"2 of the gang's 3 pods are there (worker: 2 of 3)")
	})
	crds := b.dynamic().Resource(
		schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
			Resource: "customresourcedefinitions"})
	if err := crds.Delete(b.ctx, paddleKind.String(), metav1.DeleteOptions{}); err != nil {
		b.Fatal(err)
	}
	b.wait("it knows that there are none any more", func() bool { return !read() })
}

// Pods of a Job that is no gang, and replicas of a Deployment, as a service's,
// start one by one; the scheduler that follows takes them for what they are.
func testService(b *bench) {
	b.nodes(2, "n1")
	_, stop := b.schedule()
	ref := b.job("single", nil, 2, nil)
	single := []*v1.Pod{owned("single-0", ref, nil), owned("single-1", ref, nil)}
	b.create(single...)
	b.wait("both pods run", func() bool { return b.bound(single) == 2 })
	stop()
	d, stop := b.schedule()
	defer stop()
	b.wait("the next scheduler is ready", d.Ready)
	now := int64(0)
	for _, p := range single {
		b.look(d, func() {
			if g := d.pods[b.pod(p.Name).UID].Gang; len(g.Pods) != 1 || g.Phase != gang.Running {
				b.Errorf("%s is in a gang of %d pods, %s, phase %d", p.Name, len(g.Pods), g.Key, g.Phase)
			}
		})
		if err := b.c.CoreV1().Pods("default").Delete(b.ctx, p.Name,
			metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
			b.Fatal(err)
		}
	}
	three, app := int32(3), map[string]string{"app": "web"}
	spec := controlplane.Spec(1)
	spec.RestartPolicy = v1.RestartPolicyAlways
	_, err := b.c.AppsV1().Deployments("default").Create(b.ctx,
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.DeploymentSpec{
			Replicas: &three, Selector: &metav1.LabelSelector{MatchLabels: app},
			Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: app}, Spec: spec}}},
		metav1.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
	b.wait("two of three replicas run", func() bool {
		n, kind := 0, 0
		for _, p := range b.pods() {
			if live(&p) {
				n++
				b.look(d, func() {
					if q := d.pods[p.UID]; q != nil && q.Gang != nil && q.Gang.Spec != nil &&
						q.Gang.Spec.Kind == cluster.Service {
						kind++
					}
				})
			}
		}
		return len(b.pods()) == 3 && n == 2 && kind == 2
	})
	background := metav1.DeletePropagationBackground
	if err := b.c.AppsV1().Deployments("default").Delete(b.ctx, "web",
		metav1.DeleteOptions{PropagationPolicy: &background}); err != nil {
		b.Fatal(err)
	}
	b.wait("it is gone", func() bool { return len(b.pods()) == 0 })
}

// Kubernetes' own PodGroups, where they are served.
func TestPodGroup(t *testing.T) {
	t.Parallel()
	b := newBenchOn(t, func() *controlplane.Plane { // on others they are not served
		return controlplane.Start(t, controlplane.Options{
			Args: []string{"--feature-gates=GenericWorkload=true", "--runtime-config=scheduling.k8s.io/v1beta1=true"}})
	})
	b.nodes(4, "n1", "n2")
	d, stop := b.schedule(func(o *Options) { o.Dynamic = b.dynamic() })
	defer stop()
	in := func(group string, n int) (pods []*v1.Pod) {
		for i := range n {
			p := controlplane.Pod(fmt.Sprintf("%s-%d", group, i), 1, nil)
			p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: &group}
			pods = append(pods, p)
		}
		return pods
	}
	kind := kindOf("podgroups.scheduling.k8s.io")
	group := func(name string, policy object) {
		b.object(kind, name, nil, object{"spec": object{"schedulingPolicy": policy}})
	}
	b.whole(kindOfGang{"PodGroup", func(b *bench) []*v1.Pod {
		group("train", object{"gang": object{"minCount": int64(3)}})
		return in("train", 4)
	}, 1})
	pods := in("basic", 2)
	b.create(pods...) // before their group: they wait for it
	b.wait("it says that its group is not there", func() bool {
		return strings.Contains(condition(b.pod("basic-0")).Message, "PodGroup default/basic is not there")
	})
	group("basic", object{"basic": object{}})
	b.wait("each is bound", func() bool { return b.bound(pods) == 2 })
	b.look(d, func() {
		if d.gangs["podgroup/default/basic"] != nil {
			b.Error("pods of a basic group are a gang")
		}
	})
	b.audit()
}
