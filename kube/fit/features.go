package fit

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-helpers/nodedeclaredfeatures"
)

// features are features of the kubelet that a pod needs, as its fields say: only a node
// that declares them knows these fields (KEP-5328, in Kubernetes from 1.36 on).
type features struct{}

// featuresOf is the release whose rules say which fields need which features.
var featuresOf = version.MustParseGeneric("1.37")

// required lists those that a pod needs.
func (features) required(p *Pod) []string {
	all := nodedeclaredfeatures.DefaultFramework
	set, err := all.InferForPodScheduling(&nodedeclaredfeatures.PodInfo{Spec: &p.Obj.Spec}, featuresOf)
	if err != nil {
		panic(err) // without a release only
	}
	names, err := all.Unmap(set)
	if err != nil {
		panic(err) // of another registry only
	}
	return names
}

// Key is the features that the pod needs.
func (f features) Key(p *Pod) any { return f.required(p) }

// Suits looks whether the node declares them all.
func (f features) Suits(p *Pod, n *v1.Node) string {
	declares := func(name string) bool { return slices.Contains(n.Status.DeclaredFeatures, name) }
	if lacks := slices.DeleteFunc(f.required(p), declares); len(lacks) > 0 {
		return "its kubelet does not declare " + strings.Join(lacks, ", ")
	}
	return ""
}

// Differs compares what the nodes declare.
func (features) Differs(a, b *v1.Node) bool {
	return !slices.Equal(a.Status.DeclaredFeatures, b.Status.DeclaredFeatures)
}
