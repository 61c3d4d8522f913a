package power

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

// size is what a node had.
type size struct {
	Capacity    v1.ResourceList `json:"capacity"`
	Allocatable v1.ResourceList `json:"allocatable"`
}

// sizeText is what a node has, as it is written down.
func sizeText(obj *v1.Node) string {
	text, err := json.Marshal(size{obj.Status.Capacity, obj.Status.Allocatable})
	if err != nil {
		panic(err) // it came as JSON
	}
	return string(text)
}

// whole is a node as it is or, while it is not back, with at least what it had before, which is returned, too. Where
// nothing is written down that can be read, what it says now counts.
func whole(obj *v1.Node, state, text string) (as *v1.Node, before size) {
	if !Switched(state) || text == "" || json.Unmarshal([]byte(text), &before) != nil {
		return obj, size{}
	}
	now := *obj
	now.Status.Capacity = most(obj.Status.Capacity, before.Capacity)
	now.Status.Allocatable = most(obj.Status.Allocatable, before.Allocatable)
	return &now, before
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

// lacks says what of its GPUs a node does not have yet that it had before it went off; "": it has all. Its processors
// and its memory come with the node.
func (s *size) lacks(have v1.ResourceList, isGPU func(v1.ResourceName) bool) string {
	var list []string
	for name, want := range s.Allocatable {
		if now := have[name]; isGPU(name) && now.Cmp(want) < 0 {
			list = append(list, fmt.Sprintf("%s: %s of %s", name, now.String(), want.String()))
		}
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}
