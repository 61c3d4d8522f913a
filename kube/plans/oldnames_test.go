package plans

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/internal/oldkeys"
	"github.com/muster-gpu/muster/kube/terms"
)

// What a scheduler before names had numbers wrote to pods, with a value in each field, is read whole.
func TestOldNames(t *testing.T) {
	for kind, into := range map[oldkeys.Kind]any{oldkeys.Plan: &Plan{}, oldkeys.Given: &Before{}} {
		text, err := os.ReadFile(filepath.Join("..", "..", "internal", "oldkeys", "testdata", string(kind)+".json"))
		if err != nil {
			t.Fatal(err)
		}
		if err := oldkeys.Unmarshal(kind, text, into); err != nil {
			t.Fatal(err)
		}
		now, err := oldkeys.Translate(kind, 1, text)
		if err != nil {
			t.Fatal(err)
		}
		again, err := json.Marshal(into)
		if err != nil {
			t.Fatal(err)
		}
		var was, is map[string]any
		if json.Unmarshal(now, &was) != nil || json.Unmarshal(again, &is) != nil {
			t.Fatal(kind)
		}
		delete(is, oldkeys.Key)
		if !reflect.DeepEqual(was, is) {
			t.Errorf("%s is read as\n%s\nand was\n%s", kind, again, now)
		}
	}
}

// A plan of that scheduler, as it was on a pod: a gang of two, one of them started late, that had run before.
func TestOldPlan(t *testing.T) {
	const text = `{"tasks":[{"count":2,"request":{"gpus":1}}],"on":[{"node":"n1","tasks":1},{"node":"n2","tasks":1}],` +
		`"repair":1,"before":{"attained":3600000,"service":3600000,"ran":3600000000000,"done":1800000000000,` +
		`"preemptions":1,"first_start":5,"before":7,"submit":3},"alone":true}`
	p := Of(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{terms.AnnotationPlan: text}}})
	if p == nil || !p.Alone || p.Repair != 1 || len(p.On) != 2 || p.Before == nil {
		t.Fatalf("%+v", p)
	}
	if b := p.Before; b.Before != 7 || b.Submit != 3 || b.Done == 0 {
		t.Errorf("it was given %+v", b)
	}
	again := Of(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{terms.AnnotationPlan: p.Text()}}})
	if !reflect.DeepEqual(again, p) {
		t.Errorf("%+v was written as %s", p, p.Text())
	}
}
