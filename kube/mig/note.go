package mig

import (
	"encoding/json"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/muster-gpu/muster/config"
)

// Whole is the resource by which whole GPUs of NVIDIA are asked for; slices are behind the same prefix.
const Whole = v1.ResourceName("nvidia.com/gpu")

// IsSlice reports whether a resource is a MIG slice of NVIDIA's, or a replica of one.
func IsSlice(name v1.ResourceName) bool { return strings.HasPrefix(string(name), "nvidia.com/mig-") }

// SliceName is the resource of a profile of NVIDIA's.
func SliceName(profile string) v1.ResourceName {
	if base, media := strings.CutSuffix(profile, "+me"); media {
		profile = base + ".me"
	}
	return v1.ResourceName("nvidia.com/mig-" + profile)
}

// Note is what is written down of a node.
type Note struct {
	By     string           `json:"by,omitempty"`     // the scheduler that changes it
	Config string           `json:"config,omitempty"` // what it is to be, or was last made
	From   string           `json:"from,omitempty"`   // its mig.config when it was closed
	Since  time.Time        `json:"since"`            // of its step; when it was last changed
	For    []string         `json:"for,omitempty"`    // gangs, the first in line first
	Tier   string           `json:"tier,omitempty"`   // of the first: gangs of a lower one are preempted
	GPUs   int              `json:"gpus,omitempty"`   // that it has
	Offer  *config.MIGOffer `json:"offer,omitempty"`  // what it will have
	Failed *Failures        `json:"failed,omitempty"`
}

// Failures are configurations that a node could not be brought to. They hold until another writes another mig.config,
// or the map is another.
type Failures struct {
	Label string            `json:"label"`
	Map   string            `json:"map"`
	Why   map[string]string `json:"why"` // by configuration
}

// read is the note of a text; what cannot be read says nothing.
func read(text string) (note Note) {
	if text != "" && json.Unmarshal([]byte(text), &note) != nil {
		return Note{}
	}
	return note
}

// offering is a node with other devices.
func offering(obj *v1.Node, o *config.MIGOffer) *v1.Node {
	as := *obj
	as.Status.Capacity, as.Status.Allocatable = DevicesOf(obj.Status.Capacity, o), DevicesOf(obj.Status.Allocatable, o)
	return &as
}

// DevicesOf is a list of resources with other devices.
func DevicesOf(list v1.ResourceList, o *config.MIGOffer) v1.ResourceList {
	out := v1.ResourceList{}
	for name, q := range list {
		if name != Whole && !IsSlice(name) {
			out[name] = q
		}
	}
	out[Whole] = *resource.NewQuantity(int64(o.Whole), resource.DecimalSI)
	for p, n := range o.Slices {
		out[SliceName(p)] = *resource.NewQuantity(int64(n), resource.DecimalSI)
	}
	return out
}
