package kube

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/kube/plans"
)

// A plan that does not make sense is none.
func TestPlan(t *testing.T) {
	for text, ok := range map[string]bool{
		`{"tasks":[{"count":2,"request":{"gpus":1}}],"on":[{"node":"n1","tasks":2}]}`:            true,
		`{"tasks":[{"count":2,"request":{"gpus":1}}],"on":[{"node":"n1","tasks":1}]}`:            false,
		`{"tasks":[{"count":2,"request":{"gpus":1}}],"on":[{"node":"n1","set":1,"tasks":2}]}`:    false,
		`{"tasks":[{"count":2,"request":{"gpus":-1}}],"on":[{"node":"n1","tasks":2}]}`:           false,
		`{"tasks":[{"count":2,"request":{"gpus":1}}],"on":[{"node":"n1","tasks":999999999999}]}`: false,
		`[]`: false, ``: false, `{}`: false,
	} {
		if got := plans.Of(&v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{AnnotationPlan: text}}}); (got != nil) != ok {
			t.Errorf("%s: %+v", text, got)
		}
	}
}

func TestBackOff(t *testing.T) {
	if backOff(1) != time.Second || backOff(3) != 4*time.Second || backOff(1000) != time.Minute {
		t.Error(backOff(1), backOff(3), backOff(1000))
	}
}
