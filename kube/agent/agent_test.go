//go:build linux

package agent

import (
	"encoding/base64"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/fake"

	"github.com/muster-gpu/muster/internal/kubeapi"
	"github.com/muster-gpu/muster/kube/front"
	"github.com/muster-gpu/muster/kube/terms"
)

func authority(t *testing.T) *front.Authority {
	t.Helper()
	a, err := front.NewAuthority(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// apiService is the one that the scheduler writes its authority to.
func apiService(a *front.Authority) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
		"metadata": map[string]any{"name": front.Service},
		"spec":     map[string]any{"caBundle": base64.StdEncoding.EncodeToString(a.Bundle())}}}
}

// A pod is marked as the scheduler wrote last; annotations that others write change nothing.
func TestForgedDSCP(t *testing.T) {
	own, other := authority(t), authority(t)
	root := t.TempDir()
	groups := &podGroups{root: root}
	log := &strings.Builder{}
	dynamic := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{apiServices: "APIServiceList"})
	fresh := func(authority string) *agent {
		return &agent{
			Options: Options{Authority: authority, Dynamic: dynamic, Log: slog.New(slog.NewTextHandler(log, nil))},
			again:   make(chan struct{}, 1), pods: map[types.UID]*marked{}, said: map[types.UID]string{}}
	}
	a := fresh(front.Service)
	pod := func(uid, text, seal string) *v1.Pod {
		if err := os.MkdirAll(filepath.Join(root, "kubepods", "pod"+uid), 0o755); err != nil {
			t.Fatal(err)
		}
		obj, err := trim(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: uid, UID: types.UID(uid),
			Annotations: map[string]string{terms.AnnotationDSCP: text, terms.AnnotationDSCP + terms.SealSuffix: seal}}})
		if err != nil {
			t.Fatal(err)
		}
		p, _ := obj.(*v1.Pod)
		return p
	}
	now := time.Unix(1e9, 0)
	sealed := func(by *front.Authority, uid, text string) string {
		return by.Sign(pod(uid, "", ""), terms.AnnotationDSCP, text, now)
	}
	marks := func(what string, want map[string]uint8) {
		t.Helper()
		if list := a.wanted(groups); !maps.Equal(list, want) {
			t.Errorf("%s: %v are marked, not %v", what, list, want)
		}
	}
	cs4 := sealed(own, "true", "cs4")
	moment, code, _ := strings.Cut(cs4, ".")
	list := []*v1.Pod{pod("true", "cs4", cs4), pod("raised", "cs5", sealed(own, "raised", "cs4")),
		pod("copied", "cs4", cs4), pod("another's", "cs4", sealed(other, "another's", "cs4")), pod("none", "cs4", ""),
		pod("elsewhere", "cs4", own.Sign(pod("elsewhere", "", ""), terms.AnnotationClass, "cs4", now))}
	for _, p := range list {
		a.changed(p)
	}
	marks("before the authority is known", map[string]uint8{})
	services := dynamic.Resource(apiServices)
	if _, err := services.Create(t.Context(), apiService(own), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	running := &kubeapi.Informers{}
	if err := a.watchAuthority(running); err != nil {
		t.Fatal(err)
	}
	running.Start(t.Context())
	known := func(what string, key *front.Authority) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
			a.mu.Lock()
			is := a.authority != nil && front.Sum(a.authority.Raw) == key.Sum()
			a.mu.Unlock()
			if is {
				return
			}
			if time.Now().After(end) {
				t.Fatal("not known:", what)
			}
		}
	}
	known("the authority", own)
	cs4Only := map[string]uint8{"true": 32}
	marks("of six that one is sealed", cs4Only)
	if text := log.String(); !strings.Contains(text, "default/raised") || strings.Contains(text, "default/true") {
		t.Errorf("the log says: %s", text)
	}
	// the scheduler says something else, by a clock that is behind
	now = now.Add(-time.Minute)
	next := own.Sign(list[0], terms.AnnotationDSCP, "cs3", now)
	a.changed(pod("true", "cs3", next))
	marks("what the scheduler replaced", map[string]uint8{"true": 24})
	later, newer, _ := strings.Cut(next, ".")
	for _, c := range []struct{ what, text, seal, says string }{
		{"put back", "cs4", cs4, "replaced"},
		{"put back as of later", "cs4", later + "9." + code, "not sealed"},
		{"raised", "cs5", next, "not sealed"},
		{"as of later", "cs3", "9" + later + "." + newer, "not sealed"},
		{"as of never", "cs3", newer, "not sealed"},
		{"as of before all", "cs4", "-" + moment + "." + code, "not sealed"},
		{"without a seal", "cs3", "", "not sealed"},
		{"taken away", "", "", "not sealed"},
		{"nothing, as of the last day", "", "9223372036854775807.AA", "not sealed"},
	} {
		log.Reset()
		a.changed(pod("true", c.text, c.seal))
		marks(c.what, map[string]uint8{"true": 24})
		if text := log.String(); !strings.Contains(text, c.says) || !strings.Contains(text, "default/true") {
			t.Errorf("%s: the log says: %s", c.what, text)
		}
	}
	zero := own.Sign(pod("true", "cs3", next), terms.AnnotationDSCP, "cs0", now)
	a.changed(pod("true", "cs0", zero))
	marks("in no class", map[string]uint8{})
	a.changed(pod("none", "", "9223372036854775807.AA")) // which is not remembered
	marks("nothing", map[string]uint8{})
	a.changed(pod("none", "cs4", sealed(own, "none", "cs4")))
	marks("sealed after that", map[string]uint8{"none": 32})
	if _, err := services.Update(t.Context(), apiService(other), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	known("another authority", other)
	marks("under another authority", map[string]uint8{"another's": 32})
	a = fresh("")
	for _, p := range list {
		a.changed(p)
	}
	if n := len(a.wanted(groups)); n != len(list) {
		t.Errorf("where annotations are believed, %d are marked", n)
	}
}
