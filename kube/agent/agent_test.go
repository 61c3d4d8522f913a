//go:build linux

package agent

import (
	"encoding/base64"
	"log/slog"
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

// A pod is marked as the scheduler wrote, and not as whoever may annotate it says.
func TestForgedDSCP(t *testing.T) {
	own, other := authority(t), authority(t)
	root := t.TempDir()
	groups := &podGroups{root: root}
	log := &strings.Builder{}
	dynamic := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{apiServices: "APIServiceList"})
	a := &agent{
		Options: Options{Authority: front.Service, Dynamic: dynamic, Log: slog.New(slog.NewTextHandler(log, nil))},
		again:   make(chan struct{}, 1), pods: map[types.UID]*marked{}, said: map[types.UID]string{}}
	pod := func(uid, text, seal string) {
		if err := os.MkdirAll(filepath.Join(root, "kubepods", "pod"+uid), 0o755); err != nil {
			t.Fatal(err)
		}
		obj, err := trim(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: uid, UID: types.UID(uid),
			Annotations: map[string]string{terms.AnnotationDSCP: text, terms.AnnotationDSCP + terms.SealSuffix: seal}}})
		if err != nil {
			t.Fatal(err)
		}
		a.changed(obj)
	}
	pod("true", "cs4", own.Sign("true", terms.AnnotationDSCP, "cs4"))
	pod("raised", "cs5", own.Sign("raised", terms.AnnotationDSCP, "cs4"))
	pod("copied", "cs4", own.Sign("true", terms.AnnotationDSCP, "cs4"))
	pod("another's", "cs4", other.Sign("another's", terms.AnnotationDSCP, "cs4"))
	pod("elsewhere", "cs4", own.Sign("elsewhere", terms.AnnotationClass, "cs4"))
	pod("none", "cs4", "")
	if list := a.wanted(groups); len(list) != 0 {
		t.Errorf("before the authority is known, %v are marked", list)
	}
	services := dynamic.Resource(apiServices)
	if _, err := services.Create(t.Context(), apiService(own), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := a.watchAuthority(t.Context()); err != nil {
		t.Fatal(err)
	}
	known := func(what string, key *front.Authority) {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
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
	if list := a.wanted(groups); len(list) != 1 || list["true"] != 32 {
		t.Errorf("marked are %v, and only one pod's DSCP is sealed", list)
	}
	if text := log.String(); !strings.Contains(text, "default/raised") || strings.Contains(text, "default/true") {
		t.Errorf("the log says: %s", text)
	}
	if _, err := services.Update(t.Context(), apiService(other), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	known("another authority", other)
	if list := a.wanted(groups); len(list) != 1 || list["another's"] != 32 {
		t.Errorf("under another authority %v are marked", list)
	}
	a.Authority = ""
	if list := a.wanted(groups); len(list) != 6 || list["raised"] != 40 {
		t.Errorf("where annotations are believed, %v are marked", list)
	}
}
