package setaside

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// What is said of a pod is said once, until it is something else or the pod is forgotten; what fails inside is an
// error, with the place in the log.
func TestSay(t *testing.T) {
	var counted, events []string
	var log bytes.Buffer
	r := New(Options{Log: slog.New(slog.NewTextHandler(&log, nil)),
		Count: func(what string) { counted = append(counted, what) },
		Event: func(_ runtime.Object, _, _, text string) { events = append(events, text) }})
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "u"}}
	r.Pod(p, "x")
	r.Pod(p, "x")
	r.Gang(p, "y")
	r.Forget(func(types.UID) bool { return true })
	r.Gang(p, "y")
	r.Forget(func(types.UID) bool { return false })
	r.Gang(p, "y")
	r.Node("n", nil, "z")
	if len(events) != 3 || !slices.Equal(counted, []string{pod, pod, pod, node}) {
		t.Errorf("%q, %q", events, counted)
	}
	if err := r.Try("tried", func() error { return errors.New("plain") }); err == nil || err.Error() != "plain" {
		t.Error(err)
	}
	var none map[string]int
	err := r.Try("tried", func() error { none["a"] = 1; return nil })
	if err == nil || counted[len(counted)-1] != handler || !strings.Contains(log.String(), "setaside_test.go") {
		t.Errorf("%v, %q", err, counted)
	}
}
