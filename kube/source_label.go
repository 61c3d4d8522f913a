package kube

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/cluster"
)

// Pods of a namespace with the same label muster.sh/gang are a gang; each says
// how many they are (muster.sh/gang-size).
func ownGang(_ *Driver, obj *v1.Pod) *claim {
	label := obj.Labels[LabelGang]
	if label == "" {
		return nil
	}
	return &claim{key: "gang/" + obj.Namespace + "/" + label, name: obj.Namespace + "/" + label, need: func(g *gang) (membership, error) {
		m, err := counted(g, "label "+LabelGang, AnnotationSize)
		if err != nil {
			return m, err
		}
		return m, minAvailable(g, &m, nil)
	}}
}

// counted reads the size that all pods of a gang state in an annotation.
func counted(g *gang, by, annotation string) (membership, error) {
	size, from := 0, ""
	for _, p := range g.sorted() {
		text, ok := p.obj.Annotations[annotation]
		n, err := strconv.Atoi(text)
		switch {
		case !ok:
			return membership{}, fmt.Errorf("pod %s has %s but no annotation %s, which says how many pods the gang has", p.obj.Name, by, annotation)
		case err != nil || n < 1 || n > cluster.MaxTasks:
			return membership{}, fmt.Errorf("pod %s: annotation %s: %q is not a number from 1 to %d", p.obj.Name, annotation, text, cluster.MaxTasks)
		case size != 0 && n != size:
			return membership{}, fmt.Errorf("pods %s and %s of the gang do not agree on %s: %d and %d", from, p.obj.Name, annotation, size, n)
		}
		size, from = n, p.obj.Name
	}
	return membership{size: size - g.ahead(size), stated: size}, nil
}

// ahead counts the pods of a gang that a scheduler had bound when it died, and
// that came to their end before the next one was there. The others, which were
// there when these began, are what is left of that start: the gang does not wait
// for more. Pods that were made later are another run of the gang.
func (g *gang) ahead(size int) int {
	done, open := 0, g.ready()
	for _, p := range g.pods {
		if !p.over() {
			continue
		}
		began := p.obj.Status.StartTime
		if !finished(p.obj) || began == nil || slices.ContainsFunc(open, func(o *pod) bool { return o.obj.CreationTimestamp.After(began.Time) }) {
			return 0
		}
		done++
	}
	if done == 0 || len(open) == 0 || done+len(open) != size {
		return 0
	}
	return done
}

// meetEarlier takes in pods that were over when the scheduler began, where others
// of their gang are not.
func (d *Driver) meetEarlier() {
	for _, obj := range d.earlier {
		if g := d.gangs[d.claimOf(obj).key]; g != nil && d.pods[obj.UID] == nil {
			d.meet(obj)
		}
	}
	d.earlier = nil
}

// finished reports whether a pod of a gang came to its end by itself, where
// nobody makes another for it.
func finished(obj *v1.Pod) bool {
	if obj.Status.Phase != v1.PodSucceeded || metav1.GetControllerOf(obj) != nil {
		return false
	}
	p := planOf(obj)
	return p != nil && (len(p.Tasks) > 1 || p.Tasks[0].Count > 1)
}

// minAvailable lowers what a gang starts with to what an annotation says: of
// its object, if that is given, else of its first pod. The first key that is
// there counts.
func minAvailable(g *gang, m *membership, object map[string]string, keys ...string) error {
	what := "its object"
	if object == nil {
		list := g.sorted()
		if len(list) == 0 {
			return nil
		}
		what, object = "pod "+list[0].obj.Name, list[0].obj.Annotations
	}
	for _, key := range append([]string{AnnotationMin}, keys...) {
		text, ok := object[key]
		if !ok {
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || m.stated > 0 && n > m.stated {
			return fmt.Errorf("%s: annotation %s: %q is not a number from 1 to the gang's size, %d", what, key, text, cmp.Or(m.stated, m.size))
		}
		m.lower(n)
		return nil
	}
	return nil
}
