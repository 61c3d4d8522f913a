package services

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/kube/services/load"
	"github.com/muster-gpu/muster/service"
	"github.com/muster-gpu/muster/serving/llm"
	"github.com/muster-gpu/muster/serving/scale"
)

// running is a service with what is known of it.
type running struct {
	object  *object // that is annotated
	text    string  // of the annotation
	spec    service.Service
	err     error     // why it cannot be read
	taken   *object   // is a service of the same name; nil: none is
	parts   []*object // by variant; nil: there is none
	strange []string  // names of objects that say they are variants of it, and are none

	policy  scale.Policy
	of      []int // for which variants it decides, where these have phases
	meter   load.Meter
	decided time.Time
	prompt  float64 // tokens, in the mean
	output  float64
	held    map[held]time.Time             // since when
	stuck   [len(llm.PhaseNames)]time.Time // since when what replaces others waits for a place, by phase
	// draining is since when RayServices have more workers than they should.
	draining map[types.UID]time.Time
	adopted  bool              // Muster sets its replicas
	changed  bool              // its bounds did, since the last step
	left     map[types.UID]int // replicas of its objects, as of the last step
	said     status
	figures  figures
	times    []times   // by variant
	figured  time.Time // when the annotation had figures last
}

// leastReturn is the shortest time within which a service can have back what it lends.
const leastReturn = 5 * time.Second

// mostText is the longest annotation that is read.
const mostText = 64 << 10

// read reads a service for Kubernetes: what replicas run is said by their pods.
func read(text string) (s service.Service, err error) {
	if len(text) > mostText {
		return s, fmt.Errorf("it is longer than %d bytes", mostText)
	}
	list, err := config.ReadServices("the annotation", []byte(text))
	switch {
	case err != nil:
		return s, err
	case len(list) != 1:
		return s, fmt.Errorf("there are %d services: an object has one", len(list))
	}
	s = list[0]
	if l := s.Lend.Within; l > 0 && l < leastReturn {
		return s, fmt.Errorf("lend: within: on Kubernetes it is %s or more: pods have whole seconds to end",
			leastReturn)
	}
	for i := range s.Variants {
		v := &s.Variants[i]
		switch {
		case len(v.Command) > 0 || v.Dir != "" || len(v.Env) > 0:
			return s, fmt.Errorf("variants[%d]: command, dir and env: on Kubernetes the pod template says what runs", i)
		}
	}
	if n := s.Metrics.Server; n != "" && !slices.Contains(load.Names(), n) {
		return s, fmt.Errorf("metrics: server: %w", cluster.Unknown("model server", n, load.Names()))
	}
	return s, nil
}

// needsProfile reports whether a policy computes with what replicas sustain.
func needsProfile(scaling string) bool {
	name, _, _ := strings.Cut(cmp.Or(scaling, scale.Default), ":")
	return name == "muster" || name == "mark" || name == "infaas"
}

// gather finds the services that there are, in the order in which they were made, and which objects are their variants.
func (r *Room) gather() (list []*running) {
	var variants []*object
	there := map[*running]bool{}
	for _, k := range kinds {
		if !k.scaled && k != inferenceServices && k != rayServices {
			continue
		}
		for _, o := range r.all(k) {
			text, annotated := o.Annotations[Annotation]
			_, variant := o.Annotations[AnnotationVariant]
			switch {
			case copied(o):
			case annotated:
				s := r.services[o.UID]
				if s == nil || s.text != text {
					s = begin(s, o, text)
					r.services[o.UID] = s
				}
				s.object, s.parts, s.strange = o, make([]*object, len(s.spec.Variants)), nil
				there[s] = true
				list = append(list, s)
			case variant:
				variants = append(variants, o)
			}
		}
	}
	for uid, s := range r.services {
		if !there[s] {
			delete(r.services, uid)
		}
	}
	slices.SortFunc(list, func(a, b *running) int {
		return cmp.Or(a.object.CreationTimestamp.Compare(b.object.CreationTimestamp.Time),
			cmp.Compare(a.object.UID, b.object.UID))
	})
	r.assign(list, variants)
	return list
}

// copied reports whether an object has its annotations from the one that made it.
func copied(o *object) bool {
	of := func(ref metav1.OwnerReference) bool { return ref.Kind == inferenceServices.name }
	return slices.ContainsFunc(o.OwnerReferences, of)
}

// begin begins with a service, or goes on with it in a new form.
func begin(old *running, o *object, text string) *running {
	s := &running{object: o, text: text, held: map[held]time.Time{}, draining: map[types.UID]time.Time{}}
	if s.spec, s.err = read(text); s.err != nil {
		s.spec = service.Service{}
		return s
	}
	s.policy, s.err = scale.Elsewhere(s.spec.Scaling)
	if _, plans := s.policy.(scale.Planner); plans {
		s.err = fmt.Errorf("scaling: %s chooses parts of GPUs, and on Kubernetes the pod template does", s.spec.Scaling)
	}
	if s.err == nil {
		s.err = scale.Check(s.policy, &s.spec)
	}
	if s.err != nil {
		s.spec = service.Service{}
		return s
	}
	s.remember(old)
	if old != nil && old.err == nil {
		s.meter, s.prompt, s.output, s.held, s.adopted, s.said = old.meter, old.prompt, old.output, old.held,
			old.adopted, old.said
		s.figures = old.figures
		s.left, s.changed = old.left, old.spec.Replicas != s.spec.Replicas
		if old.spec.Scaling == s.spec.Scaling {
			s.policy = old.policy
		}
	}
	return s
}

// assign finds out which object is which variant: the annotated one is that of its own name, else the first.
func (r *Room) assign(list []*running, variants []*object) {
	first := map[string]*running{}
	for _, s := range list {
		if s.spec.Name == "" {
			continue
		}
		key := s.title()
		if other := first[key]; other != nil {
			s.taken = other.object
			continue
		}
		s.taken = nil
		first[key] = s
		i := max(0, s.variant(s.object.Name))
		s.parts[i] = r.scaled(s, i, s.object)
	}
	for _, o := range variants {
		s := first[o.Namespace+"/"+o.Annotations[AnnotationVariant]]
		if s == nil {
			continue
		}
		if i := s.variant(o.Name); i >= 0 && s.parts[i] == nil {
			s.parts[i] = r.scaled(s, i, o)
		} else {
			s.strange = append(s.strange, o.Name)
		}
	}
}

// variant is the number of the variant of a name; -1: there is none.
func (s *running) variant(name string) int {
	return slices.IndexFunc(s.spec.Variants, func(v service.Variant) bool { return v.Name == name })
}

// scaled is the object whose replicas are set for one that is annotated, as a variant; nil: it is not there.
func (r *Room) scaled(s *running, variant int, o *object) *object {
	switch o.kind {
	case inferenceServices:
		return r.find(deployments, o.Namespace, o.Name+"-predictor")
	case rayServices:
		return r.rayScaled(o, s.spec.Variants[variant].Name, s.spec.Replicas)
	}
	return o
}
