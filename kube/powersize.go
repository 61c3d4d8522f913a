package kube

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// What a node has, its kubelet says, and its device plugin the kubelet: a node that is off, or has just come up, may
// say that it has no GPUs, or the API server keeps that it had none. So what it had is written down before it goes
// off; gangs are placed by that, and a node that is ready is not back before its GPUs are.

// nodeSize is what a node had.
type nodeSize struct {
	Capacity    v1.ResourceList `json:"capacity"`
	Allocatable v1.ResourceList `json:"allocatable"`
}

func sizeText(obj *v1.Node) string {
	text, err := json.Marshal(nodeSize{obj.Status.Capacity, obj.Status.Allocatable})
	if err != nil {
		panic(err) // it came as JSON
	}
	return string(text)
}

// whole is a node as it is or, while it is not back, with at least what it had before. Where nothing is written down that
// can be read, what it says now counts.
func (n *node) whole(obj *v1.Node) *v1.Node {
	n.power.before, n.power.have = nodeSize{}, obj.Status.Allocatable
	if !switched(obj.Labels[LabelPower]) {
		return obj
	}
	var size nodeSize
	if text := obj.Annotations[AnnotationPowerSize]; text == "" || json.Unmarshal([]byte(text), &size) != nil {
		return obj
	}
	n.power.before = size
	as := *obj
	as.Status.Capacity, as.Status.Allocatable = most(obj.Status.Capacity, size.Capacity), most(obj.Status.Allocatable, size.Allocatable)
	return &as
}

// most has of each resource the more of two.
func most(a, b v1.ResourceList) v1.ResourceList {
	list := v1.ResourceList{}
	for name, q := range a {
		list[name] = q
	}
	for name, q := range b {
		if have, ok := list[name]; !ok || have.Cmp(q) < 0 {
			list[name] = q
		}
	}
	return list
}

// lacks says what of its GPUs a node does not have yet that it had before it went off; "": it has all. Its processors and
// its memory come with the node.
func (d *Driver) lacks(n *node) string {
	var list []string
	for name, want := range n.power.before.Allocatable {
		_, slice := d.sliceOf(name)
		if !slice && !d.isShared(name) && !slices.Contains(d.opt.GPUs, string(name)) {
			continue
		}
		if have := n.power.have[name]; have.Cmp(want) < 0 {
			list = append(list, fmt.Sprintf("%s: %s of %s", name, have.String(), want.String()))
		}
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}
