package deploy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"

	"github.com/muster-gpu/muster/internal/controlplane"
	"github.com/muster-gpu/muster/internal/kubeapi"
)

// guarded is a control plane with the scheduler's account, its rights and the policies that limit them, as
// shipped, and nothing else of Muster.
type guarded struct {
	*testing.T
	p *controlplane.Plane
	c *kubeapi.Clientset
}

func newGuarded(t *testing.T) *guarded {
	t.Helper()
	p := controlplane.Start(t, controlplane.Options{})
	k := &guarded{t, p, p.Client()}
	if _, err := k.c.CoreV1().Namespaces().Create(t.Context(),
		&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	k.wait("kube-system is there", func() bool {
		_, err := k.c.CoreV1().Namespaces().Get(t.Context(), "kube-system", metav1.GetOptions{})
		return err == nil
	})
	data, err := os.ReadFile("base/muster.yaml")
	if err != nil {
		t.Fatal(err)
	}
	policies := 0
	docs := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	for {
		var doc raw
		if err := docs.Decode(&doc); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if k.install(doc.text) {
			policies++
		}
	}
	if policies != 4 {
		t.Fatalf("%d policies are shipped", policies)
	}
	return k
}

// raw is a document as it was read.
type raw struct{ text []byte }

// UnmarshalJSON keeps the text.
func (r *raw) UnmarshalJSON(text []byte) error {
	r.text = bytes.Clone(text)
	return nil
}

// install creates an object if it concerns what the account may do; policy: it is a policy.
func (k *guarded) install(text []byte) (policy bool) {
	k.Helper()
	obj, _, err := kubeapi.Codecs.UniversalDeserializer().Decode(text, nil, nil)
	if err != nil {
		return false // a kind that clients do not know, such as APIService
	}
	ctx, opt := k.Context(), metav1.CreateOptions{}
	switch o := obj.(type) {
	case *v1.ServiceAccount:
		_, err = k.c.CoreV1().ServiceAccounts(o.Namespace).Create(ctx, o, opt)
	case *rbacv1.ClusterRole:
		_, err = k.c.RbacV1().ClusterRoles().Create(ctx, o, opt)
	case *rbacv1.ClusterRoleBinding:
		_, err = k.c.RbacV1().ClusterRoleBindings().Create(ctx, o, opt)
	case *admissionv1.ValidatingAdmissionPolicy:
		_, err = k.c.AdmissionregistrationV1().ValidatingAdmissionPolicies().Create(ctx, o, opt)
		policy = true
	case *admissionv1.ValidatingAdmissionPolicyBinding:
		_, err = k.c.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Create(ctx, o, opt)
	}
	if err != nil {
		k.Fatal(err)
	}
	return policy
}

func (k *guarded) wait(what string, so func() bool) {
	k.Helper()
	k.p.Wait(what, func(context.Context) bool { return so() })
}

// pod creates a pod that no scheduler binds.
func (k *guarded) pod(space, name, scheduler string) *v1.Pod {
	k.Helper()
	p := controlplane.Pod(name, 0, nil)
	p.Namespace, p.Spec.SchedulerName = space, scheduler
	p, err := k.c.CoreV1().Pods(space).Create(k.Context(), p, metav1.CreateOptions{})
	if err != nil {
		k.Fatal(err)
	}
	return p
}

// as is a client of the scheduler's account, in a pod of that name; "": in no pod.
func (k *guarded) as(pod string) *kubeapi.Clientset {
	k.Helper()
	hour := int64(3600)
	ask := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &hour}}
	if pod != "" {
		p := controlplane.Pod(pod, 0, nil)
		p.Namespace, p.Spec.ServiceAccountName, p.Spec.SchedulerName = namespace, "muster", "nobody"
		p, err := k.c.CoreV1().Pods(namespace).Create(k.Context(), p, metav1.CreateOptions{})
		if err != nil {
			k.Fatal(err)
		}
		ask.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: p.Name,
			UID: p.UID}
	}
	token, err := k.c.CoreV1().ServiceAccounts(namespace).CreateToken(k.Context(), "muster", ask,
		metav1.CreateOptions{})
	if err != nil {
		k.Fatal(err)
	}
	rc := rest.AnonymousClientConfig(k.p.Admin)
	rc.BearerToken, rc.QPS = token.Status.Token, -1
	c, err := kubeapi.New(rc)
	if err != nil {
		k.Fatal(err)
	}
	return c
}

// The scheduler's writes, each as a function that tries it.
func bindPod(ctx context.Context, c kubeapi.Interface, p *v1.Pod) error {
	return c.CoreV1().Pods(p.Namespace).Bind(ctx,
		&v1.Binding{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: p.UID},
			Target: v1.ObjectReference{Kind: "Node", Name: "n1"}}, metav1.CreateOptions{})
}

func evictPod(ctx context.Context, c kubeapi.Interface, p *v1.Pod) error {
	return c.CoreV1().Pods(p.Namespace).EvictV1(ctx,
		&policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}})
}

func deletePod(ctx context.Context, c kubeapi.Interface, p *v1.Pod) error {
	return c.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{})
}

func tellPod(ctx context.Context, c kubeapi.Interface, p *v1.Pod) error {
	_, err := c.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.MergePatchType,
		[]byte(`{"metadata": {"annotations": {"muster.sh/before": "{}"}}}`), metav1.PatchOptions{}, "status")
	return err
}

// TestAdmission tries what the policies forbid, first without a lease, then with one.
func TestAdmission(t *testing.T) {
	k := newGuarded(t)
	t.Run("foreign", func(t *testing.T) { k.in(t).foreign() })
	t.Run("leader", func(t *testing.T) { k.in(t).leader() })
}

// in is the control plane for a sub-test.
func (k *guarded) in(t *testing.T) *guarded { return &guarded{t, k.p.For(t), k.c} }

// foreign: the scheduler's account may not touch other schedulers' pods, though its rights would let it.
func (k *guarded) foreign() {
	c, ctx, t := k.as(""), k.Context(), k.T
	foreign := k.pod("default", "foreign", "default-scheduler")
	k.wait("the policies are in force", func() bool {
		return apierrors.IsForbidden(
			c.CoreV1().Pods("default").Delete(ctx, "foreign",
				metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})) &&
			apierrors.IsForbidden(bindPod(ctx, c, k.ghost("kube-system"))) && k.volumesGuarded(c)
	})
	for what, try := range map[string]func() error{
		"delete another scheduler's pod":   func() error { return deletePod(ctx, c, foreign) },
		"write to another scheduler's pod": func() error { return tellPod(ctx, c, foreign) },
		"delete a pod of kube-system": func() error {
			return deletePod(ctx, c, k.pod("kube-system", "dns", "default-scheduler"))
		},
		"delete its own pod of kube-system": func() error {
			return deletePod(ctx, c, k.pod("kube-system", "own1", "muster"))
		},
		"evict a pod of kube-system": func() error {
			return evictPod(ctx, c, k.pod("kube-system", "proxy", "default-scheduler"))
		},
		"bind a pod of kube-system": func() error {
			return bindPod(ctx, c, k.pod("kube-system", "own2", "muster"))
		},
		"make a volume be deleted with claim": func() error {
			return k.volume(c, "v1", func(v *v1.PersistentVolume) {
				v.Spec.PersistentVolumeReclaimPolicy = v1.PersistentVolumeReclaimDelete
			})
		},
		"take a volume's finalizer away": func() error {
			return k.volume(c, "v2", func(v *v1.PersistentVolume) { v.Finalizers = nil })
		},
		"label a volume": func() error {
			return k.volume(c, "v3", func(v *v1.PersistentVolume) { v.Labels = map[string]string{"a": "b"} })
		},
		"take a volume from its claim": func() error {
			return k.volume(c, "bound", func(v *v1.PersistentVolume) { v.Spec.ClaimRef.UID = "another" })
		},
		"give a claim a volume itself": func() error { return k.claim(c, "itself", `{"spec": {"volumeName": "v9"}}`) },
		"label a claim": func() error {
			return k.claim(c, "label", `{"metadata": {"labels": {"a": "b"}}}`)
		},
	} {
		if err := try(); !apierrors.IsForbidden(err) {
			t.Errorf("it may %s: %v", what, err)
		}
	}
	for what, try := range map[string]func() error{
		"bind its own pod":     func() error { return bindPod(ctx, c, k.pod("default", "own3", "muster")) },
		"evict its own pod":    func() error { return evictPod(ctx, c, k.pod("default", "own4", "muster")) },
		"delete its own pod":   func() error { return deletePod(ctx, c, k.pod("default", "own5", "muster")) },
		"write to its own pod": func() error { return tellPod(ctx, c, k.pod("default", "own6", "muster")) },
		"give a volume to a claim": func() error {
			return k.volume(c, "v4", func(v *v1.PersistentVolume) {
				v.Spec.ClaimRef = claimRef("fresh")
				v.Annotations = map[string]string{"pv.kubernetes.io/bound-by-controller": "yes"}
			})
		},
		"ask for a volume on a node": func() error {
			return k.claim(c, "made", `{"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "n1"}}}`)
		},
	} {
		if err := try(); err != nil {
			t.Errorf("it may not %s: %v", what, err)
		}
	}
}

// volumesGuarded reports whether the account is kept from labelling a volume.
func (k *guarded) volumesGuarded(c kubeapi.Interface) bool {
	v, err := k.c.CoreV1().PersistentVolumes().Get(k.Context(), "probe", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_ = k.volume(c, "probe", func(*v1.PersistentVolume) {})
		return false
	} else if err != nil {
		return false
	}
	v.Labels = map[string]string{"a": "b"}
	_, err = c.CoreV1().PersistentVolumes().Update(k.Context(), v,
		metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
	return apierrors.IsForbidden(err)
}

// ghost is a pod that does not exist.
func (k *guarded) ghost(space string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: "ghost"}}
}

func claimRef(uid types.UID) *v1.ObjectReference {
	return &v1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: "default", Name: "claim",
		UID: uid}
}

// volume creates a volume and lets the account change it.
func (k *guarded) volume(c kubeapi.Interface, name string, change func(*v1.PersistentVolume)) error {
	v := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{"example.com/keep"}},
		Spec: v1.PersistentVolumeSpec{
			Capacity:                      v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")},
			AccessModes:                   []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			PersistentVolumeReclaimPolicy: v1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource: v1.PersistentVolumeSource{
				HostPath: &v1.HostPathVolumeSource{Path: "/data"}}}}
	if name == "bound" {
		v.Spec.ClaimRef = claimRef("old")
	}
	v, err := k.c.CoreV1().PersistentVolumes().Create(k.Context(), v, metav1.CreateOptions{})
	if err != nil {
		k.Fatal(err)
	}
	change(v)
	_, err = c.CoreV1().PersistentVolumes().Update(k.Context(), v, metav1.UpdateOptions{})
	return err
}

// claim creates a claim and lets the account change it.
func (k *guarded) claim(c kubeapi.Interface, name, patch string) error {
	claim := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.PersistentVolumeClaimSpec{AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			Resources: v1.VolumeResourceRequirements{
				Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}}}}
	if _, err := k.c.CoreV1().PersistentVolumeClaims("default").Create(k.Context(), claim,
		metav1.CreateOptions{}); err != nil {
		k.Fatal(err)
	}
	_, err := c.CoreV1().PersistentVolumeClaims("default").Patch(k.Context(), name, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{})
	return err
}

// leader: of two schedulers the API server accepts writes only from the one that holds the lease, whatever the other
// believes.
func (k *guarded) leader() {
	t, ctx := k.T, k.Context()
	leases := k.c.CoordinationV1().Leases(namespace)
	holder, length, now := "muster-a", int32(5), metav1.NewMicroTime(time.Now())
	lease, err := leases.Create(ctx,
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "muster"},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &length, RenewTime: &now}},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	a, b := k.as("muster-a"), k.as("muster-b")
	refused := func(c kubeapi.Interface) bool { return apierrors.IsForbidden(bindPod(ctx, c, k.ghost("default"))) }
	check := func(leads, other kubeapi.Interface, suffix string) {
		t.Helper()
		k.wait("one of them may write", func() bool { return refused(other) && !refused(leads) })
		for what, try := range map[string]func(context.Context, kubeapi.Interface, *v1.Pod) error{
			"bind": bindPod, "evict": evictPod, "delete": deletePod, "tell": tellPod} {
			p := k.pod("default", what+suffix, "muster")
			if err := try(ctx, other, p); !apierrors.IsForbidden(err) {
				t.Errorf("one that does not hold the lease may %s: %v", what, err)
			}
			if err := try(ctx, leads, p); err != nil {
				t.Errorf("the one that holds the lease may not %s: %v", what, err)
			}
		}
	}
	check(a, b, "-1")
	holder = "muster-b"
	lease.Spec.HolderIdentity = &holder
	if _, err := leases.Update(ctx, lease, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	check(b, a, "-2")
}
