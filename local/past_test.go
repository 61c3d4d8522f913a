//go:build linux

package local

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/show"
)

// What a policy learns from completed jobs is stored when it changes, apart from
// what every step changes, and a daemon that starts again knows it.
func TestPastIsKept(t *testing.T) {
	qssf := func(o *Options) { o.Rules.Policy = "qssf" }
	m := alive(t, qssf)
	for range 3 {
		until(t, m, submit(t, m, "true"), show.StateCompleted)
	}
	until(t, m, submit(t, m, "exit 1"), show.StateFailed) // a step that nothing is learned from
	m.mu.RLock()
	defer m.mu.RUnlock()
	want := m.eng.Past()
	if want == nil || len(want.Jobs) != 3 {
		t.Fatalf("three jobs completed, kept are %+v", want)
	}
	var common engine.Snapshot
	text, err := m.store.Meta(t.Context(), "engine")
	if err != nil || json.Unmarshal(text, &common) != nil || common.Past != nil {
		t.Errorf("the state of each step holds %+v of completed jobs (%v)", common.Past, err)
	}
	dir := filepath.Join(folder(t), "state")
	if err := os.CopyFS(dir, os.DirFS(m.opt.Dir)); err != nil {
		t.Fatal(err)
	}
	again := openMachine(t, func() Options {
		o := testOptions(t, &cluster.Spec{Nodes: []cluster.Node{{Name: "n1", Model: "T4-16GB", GPUs: 2}}})
		qssf(&o)
		o.Dir = dir
		return o
	}())
	if got := again.eng.Past(); !reflect.DeepEqual(got, want) {
		t.Errorf("after a restart %+v, before %+v", got, want)
	}
}
