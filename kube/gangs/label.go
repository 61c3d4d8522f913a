package gangs

import (
	"cmp"
	"fmt"
	"strconv"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
)

// What people write for Muster.
const (
	// pods with the same value in a namespace are one gang; "true" on a Job: its pods are
	Label          = "muster.sh/gang"
	Service        = "muster.sh/service"       // annotation of what Muster scales as a service
	AnnotationSize = "muster.sh/gang-size"     // tasks of the gang
	AnnotationMin  = "muster.sh/min-available" // with so many it starts; the others follow one by one
)

// Pods of a namespace with the same label muster.sh/gang are a gang; each says
// how many they are (muster.sh/gang-size).
func labelled(_ *Objects, obj *v1.Pod) *Claim {
	label := obj.Labels[Label]
	if label == "" {
		return nil
	}
	return &Claim{Key: "gang/" + obj.Namespace + "/" + label, Name: obj.Namespace + "/" + label,
		Need: func(g Gang) (Membership, error) {
			m, err := counted(g, "label "+Label, AnnotationSize)
			if err != nil {
				return m, err
			}
			return m, minAvailable(g, &m, nil)
		}}
}

// counted reads the size that all pods of a gang state in an annotation.
func counted(g Gang, by, annotation string) (Membership, error) {
	size, from := 0, ""
	for _, p := range g.Members() {
		text, ok := p.Annotations[annotation]
		n, err := strconv.Atoi(text)
		switch {
		case !ok:
			return Membership{},
				fmt.Errorf("pod %s has %s but no annotation %s, which says how many pods the gang has", p.Name, by,
					annotation)
		case err != nil || n < 1 || n > cluster.MaxTasks:
			return Membership{},
				fmt.Errorf("pod %s: annotation %s: %q is not a number from 1 to %d", p.Name, annotation, text,
					cluster.MaxTasks)
		case size != 0 && n != size:
			return Membership{},
				fmt.Errorf("pods %s and %s of the gang do not agree on %s: %d and %d", from, p.Name, annotation, size,
					n)
		}
		size, from = n, p.Name
	}
	return Membership{Size: size - g.Ahead(size), stated: size}, nil
}

// minAvailable lowers what a gang starts with to what an annotation says: of
// its object, if that is given, else of its first pod. The first key that is
// there counts.
func minAvailable(g Gang, m *Membership, object map[string]string, keys ...string) error {
	what := "its object"
	if object == nil {
		list := g.Members()
		if len(list) == 0 {
			return nil
		}
		what, object = "pod "+list[0].Name, list[0].Annotations
	}
	for _, key := range append([]string{AnnotationMin}, keys...) {
		text, ok := object[key]
		if !ok {
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || m.stated > 0 && n > m.stated {
			return fmt.Errorf("%s: annotation %s: %q is not a number from 1 to the gang's size, %d", what, key, text,
				cmp.Or(m.stated, m.Size))
		}
		m.lower(n)
		return nil
	}
	return nil
}
