package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/internal/controlplane"
	"github.com/muster-gpu/muster/kube/front"
)

// TestDefrag has a replica moved as people do: by muster defrag --apply, through the
// cluster's API server, with the programs as they are built. Who may only look, may not.
func TestDefrag(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	conf := filepath.Join(s.dir, "kube.yaml")
	if err := os.WriteFile(conf, []byte("policy: fifo\ndefragment: {mode: plan, await: 1m}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	hour := func(d time.Duration) string { return time.Now().UTC().Add(d).Format("15:00") }
	guarded := filepath.Join(s.dir, "protected.yaml")
	if err := os.WriteFile(guarded,
		[]byte(fmt.Sprintf("policy: fifo\ndefragment: {mode: auto, every: 1s, zone: UTC, protected: [\"%s-%s\"]}\n",
			hour(-time.Hour), hour(2*time.Hour))), 0o600); err != nil {
		t.Fatal(err)
	}
	kill := s.start("--config", guarded)
	ann, bob := s.p.User("ann"), s.p.User("bob")
	for _, name := range []string{"ann", "bob"} {
		s.let(rbacv1.Subject{Kind: "User", APIGroup: rbacv1.GroupName, Name: name})
	}
	s.create(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "mover"},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{front.Group}, Resources: []string{"moves"}, Verbs: []string{"create"}}}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "bob-moves"},
			Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: "bob"}},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "mover"}})
	s.create(controlplane.Node("n1", 8, nil))
	for _, name := range []string{"a", "b"} {
		one, app := int32(1), map[string]string{"app": name}
		spec := controlplane.Spec(4)
		spec.RestartPolicy = v1.RestartPolicyAlways
		if _, err := s.c.AppsV1().Deployments("default").Create(s.Context(),
			&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DeploymentSpec{
				Replicas: &one, Selector: &metav1.LabelSelector{MatchLabels: app},
				Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: app}, Spec: spec}}},
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		s.must(ann, []string{"queue"}, "default/"+name+"-", "running")
		if name == "a" { // half of the node is for another until there is a second one
			fill := controlplane.Pod("fill", 4, nil)
			s.create(fill)
			s.must(ann, []string{"queue"}, "default/fill")
			s.create(controlplane.Node("n2", 8, nil))
		}
	}
	s.must(ann, []string{"queue"}, "n2")
	if err := s.c.CoreV1().Pods("default").Delete(s.Context(), "fill", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.create(controlplane.Pod("big", 8, nil))
	s.must(ann, []string{"defrag", "big"}, "default/big (8 GPUs): protected until ", "(4 GPUs) from n")
	if out, err := s.muster(bob, "defrag", "big", "--apply"); err == nil ||
		!strings.Contains(out, "no job is moved now: protected until ") {
		t.Errorf("in a protected time: %v %s", err, out)
	}
	kill()
	kill = s.start("--config", conf)
	s.must(ann, []string{"why", "big"}, "others could be moved (muster defrag ", "(4 GPUs) from n", "saves a wait of")
	s.must(ann, []string{"defrag", "big"}, "moving would help", "(4 GPUs) from n", "no start is in sight without",
		"nothing was changed (--apply")
	if out, err := s.muster(ann, "defrag", "big", "--apply"); err == nil ||
		!strings.Contains(out, "cannot create resource") || !strings.Contains(out, "muster-mover") {
		t.Errorf("who may only look: %v %s", err, out)
	}
	out, err := s.muster(bob, "defrag", "big", "--apply")
	if err != nil || !strings.Contains(out, "default/big (8 GPUs): moved") {
		t.Fatalf("%v %s", err, out)
	}
	s.p.Wait("big runs alone, the two others together", func(ctx context.Context) bool {
		list, err := s.c.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
		return err == nil && movedApart(list.Items)
	})
	kill()
	s.start() // the same without moves
	s.must(bob, []string{"queue"}, "default/big")
	if out, err := s.muster(bob, "defrag", "--apply"); err == nil ||
		!strings.Contains(out, "the configuration says that no job is moved") {
		t.Errorf("where moving is off: %v %s", err, out)
	}
}

// movedApart reports whether big has a node and the two replicas have the other.
func movedApart(pods []v1.Pod) bool {
	on := map[string]string{}
	for i := range pods {
		p := &pods[i]
		name, _, _ := strings.Cut(p.Name, "-")
		if p.DeletionTimestamp == nil {
			on[name] += p.Spec.NodeName
		}
	}
	return on["a"] != "" && on["a"] == on["b"] && on["big"] != "" && on["big"] != on["a"]
}
