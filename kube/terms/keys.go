package terms

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/cluster"
)

// A key of Muster's that it does not know, or that stands where it is not read, is a mistake: what its pod was to say
// would be ignored, and the pod would run as something else. So such a pod waits and says why.

// Own are the labels and annotations of people's that Muster reads from pods and from what makes them.
var Own = []string{LabelGang, LabelQueue, LabelTier, AnnotationSize, AnnotationMin, AnnotationWithin,
	AnnotationPrefer, AnnotationRunTime, AnnotationDeadline, AnnotationLoss,
	AnnotationMovable, AnnotationSaves, AnnotationConverge, AnnotationModel, AnnotationSpeed, AnnotationIsolation,
	AnnotationTraffic,
	AnnotationMemory, AnnotationCores, AnnotationPrompt}

// ofServices are annotations that say nothing of gangs: package services reads them.
var ofServices = []string{AnnotationService, AnnotationVariant, AnnotationStatus}

// onlyAnnotations are those of them that are not read from labels.
var onlyAnnotations = []string{AnnotationSize, AnnotationMin}

// otherParts are annotations by which other schedulers give a pod a part of a GPU that it does not ask for as a
// resource.
var otherParts = []string{"gpu-fraction", "gpu-memory", "gpu-fraction-num-devices"}

// CheckPod says which key of Muster's on a pod is not understood; nil: none.
func CheckPod(obj *v1.Pod) error {
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
			if !strings.HasPrefix(key, Prefix) || Written(key) ||
				list.kind == "annotation" && slices.Contains(ofServices, key) {
				continue
			}
			if !slices.Contains(Own, key) {
				return fmt.Errorf("%s: %w", what, cluster.Unknown(list.kind, key, Own))
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

// CheckOwner says which key of Muster's on what made a pod is not understood; nil: none.
func CheckOwner(meta metav1.Object, what string) error { return unknownKeys(meta, what, nil) }

// OtherPart is the annotation by which a pod asks another scheduler for a part of a GPU; "": there is none.
func OtherPart(obj *v1.Pod) string {
	for _, key := range otherParts {
		if _, ok := obj.Annotations[key]; ok {
			return key
		}
	}
	return ""
}

// SealSuffix makes an annotation's key that of its seal.
const SealSuffix = "-seal"

// Written reports whether an annotation of pods is Muster's own word.
func Written(key string) bool {
	switch strings.TrimSuffix(key, SealSuffix) {
	case AnnotationPlan, AnnotationBefore, AnnotationAsked, AnnotationReturned, AnnotationEvery, AnnotationSum,
		AnnotationClass, AnnotationDSCP, AnnotationSlots, AnnotationTC, AnnotationFIFO, AnnotationSL, AnnotationQPs,
		AnnotationIface:
		return true
	}
	return false
}
