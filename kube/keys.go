package kube

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/cluster"
)

// A key of Muster's that it does not know, or that stands where it is not read, is a slip of the pen: what its
// pod was to say would be ignored, and the pod would run as something else. So such a pod waits and says why.

// ownKeys are the labels and annotations of people's that Muster reads from pods and from what makes them.
var ownKeys = []string{LabelGang, LabelQueue, LabelTier, AnnotationSize, AnnotationMin, AnnotationWithin,
	AnnotationPrefer, AnnotationRunTime, AnnotationDeadline, AnnotationLoss,
	AnnotationMovable, AnnotationSaves, AnnotationConverge, AnnotationModel, AnnotationSpeed, AnnotationIsolation,
	AnnotationMemory, AnnotationCores, AnnotationPrompt}

// onlyAnnotations are those of them that are not read from labels.
var onlyAnnotations = []string{AnnotationSize, AnnotationMin}

// otherParts are annotations by which other schedulers give a pod a part of a GPU that it does not ask for as a
// resource.
var otherParts = []string{"gpu-fraction", "gpu-memory", "gpu-fraction-num-devices"}

// checkKeys says which key of Muster's on a pod, or on what made it, is not understood.
func (d *Driver) checkKeys(g *gang, pods []*pod) error {
	for _, p := range pods {
		if err := checkPodKeys(p.obj); err != nil {
			return err
		}
		if key := partKey(p); key != "" && !d.gpus.Asked(p.obj) {
			return fmt.Errorf("pod %s: annotation %s asks another scheduler for a part of a GPU, and the pod asks for none as a resource: with Muster it asks for one of %v, and for a part of it by %s and %s", p.obj.Name, key, d.opt.GPUs, AnnotationMemory, AnnotationCores)
		}
	}
	if len(pods) == 0 {
		return nil
	}
	who, err := d.annotationSources(g, pods[0].obj)
	if err != nil {
		return nil // its terms say so
	}
	for _, s := range who[1:] {
		if err := unknownKeys(s.Meta, s.What, nil); err != nil {
			return err
		}
	}
	return nil
}

func partKey(p *pod) string {
	for _, key := range otherParts {
		if _, ok := p.obj.Annotations[key]; ok {
			return key
		}
	}
	return ""
}

// checkPodKeys is checkKeys for what stands on a pod itself.
func checkPodKeys(obj *v1.Pod) error {
	return unknownKeys(obj, "pod "+obj.Name, func(kind, key string) string {
		switch {
		case key == LabelGang && kind == "annotation":
			return "on a pod it is a label, and an annotation on a Job only"
		case slices.Contains(onlyAnnotations, key) && kind == "label":
			return "it is an annotation, not a label"
		}
		return ""
	})
}

// unknownKeys says which of the keys with Muster's prefix is not known, or what misplaced says of one; nil: every known
// key may stand anywhere.
func unknownKeys(meta metav1.Object, what string, misplaced func(kind, key string) string) error {
	for _, list := range []struct {
		kind string
		keys map[string]string
	}{{"label", meta.GetLabels()}, {"annotation", meta.GetAnnotations()}} {
		for _, key := range slices.Sorted(maps.Keys(list.keys)) {
			if !strings.HasPrefix(key, Prefix) || writtenByMuster(key) {
				continue
			}
			if !slices.Contains(ownKeys, key) {
				return fmt.Errorf("%s: %w", what, cluster.Unknown(list.kind, key, ownKeys))
			}
			if misplaced == nil {
				continue
			}
			if why := misplaced(list.kind, key); why != "" {
				return fmt.Errorf("%s: %s %s: %s", what, list.kind, key, why)
			}
		}
	}
	return nil
}
