package volumes

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The class is that of the annotation, if there is one, even an empty one; then that of the field.
func TestClassNames(t *testing.T) {
	fast := "fast"
	for _, c := range []struct {
		annotations map[string]string
		field       *string
		want        string
	}{
		{nil, nil, ""},
		{nil, &fast, "fast"},
		{map[string]string{v1.BetaStorageClassAnnotation: "slow"}, nil, "slow"},
		{map[string]string{v1.BetaStorageClassAnnotation: "slow"}, &fast, "slow"},
		{map[string]string{v1.BetaStorageClassAnnotation: ""}, &fast, ""},
		{map[string]string{"another": "slow"}, &fast, "fast"},
	} {
		claim := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Annotations: c.annotations},
			Spec: v1.PersistentVolumeClaimSpec{StorageClassName: c.field}}
		if got := classOfClaim(claim); got != c.want {
			t.Errorf("claim, %v, %v: %q", c.annotations, c.field, got)
		}
		volume := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Annotations: c.annotations}}
		if c.field != nil {
			volume.Spec.StorageClassName = *c.field
		}
		if got := classOfVolume(volume); got != c.want {
			t.Errorf("volume, %v, %v: %q", c.annotations, c.field, got)
		}
	}
}

// A volume is used where one of its terms fits, anywhere if it has no rule, and nowhere if that cannot be read.
func TestAdmits(t *testing.T) {
	at := func(op v1.NodeSelectorOperator, zones ...string) v1.NodeSelectorTerm {
		return v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{
			{Key: v1.LabelTopologyZone, Operator: op, Values: zones}}}
	}
	need := func(terms ...v1.NodeSelectorTerm) *v1.VolumeNodeAffinity {
		return &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: terms}}
	}
	for what, c := range map[string]struct {
		rule *v1.VolumeNodeAffinity
		want bool
	}{
		"no rule":             {nil, true},
		"an empty rule":       {&v1.VolumeNodeAffinity{}, true},
		"no terms":            {need(), false},
		"its zone":            {need(at(v1.NodeSelectorOpIn, "a", "b")), true},
		"another zone":        {need(at(v1.NodeSelectorOpIn, "b")), false},
		"one of two terms":    {need(at(v1.NodeSelectorOpIn, "b"), at(v1.NodeSelectorOpNotIn, "b")), true},
		"an empty term":       {need(v1.NodeSelectorTerm{}), false},
		"what cannot be read": {need(at("Near", "a")), false},
	} {
		v := &v1.PersistentVolume{Spec: v1.PersistentVolumeSpec{NodeAffinity: c.rule}}
		if got := admits(v, map[string]string{v1.LabelTopologyZone: "a"}); got != c.want {
			t.Errorf("%s: %t", what, got)
		}
	}
}
