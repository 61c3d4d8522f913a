package gangs

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/muster-gpu/muster/cluster"
)

// Said is where something was said, for people: label K of pod P.
type Said struct{ Value, Where string }

// Origin is a pod, or an owner of it.
type Origin struct {
	Meta metav1.Object
	What string
	body map[string]any // nil for pods and Jobs
}

// Stated looks for keys in labels and annotations, the first key first, and of
// those the nearest owner's.
func Stated(origins []Origin, keys ...string) Said {
	for _, key := range keys {
		for _, s := range origins {
			if v := s.Meta.GetLabels()[key]; v != "" {
				return Said{v, "label " + key + " of " + s.What}
			}
			if v := s.Meta.GetAnnotations()[key]; v != "" {
				return Said{v, "annotation " + key + " of " + s.What}
			}
		}
	}
	return Said{}
}

// Of which kinds a word counts.
const (
	groups = true
	owners = false
)

// specified looks for a field in what groups of pods, or their owners, specify, the nearest first; path is where the
// objects of a kind have it.
func specified(origins []Origin, group bool, path func(*Kind) []string) Said {
	for i := range origins {
		k := origins[i].kind()
		if k == nil || k.group != group || path(k) == nil {
			continue
		}
		if v := textOf(origins[i].body, path(k)...); v != "" {
			return Said{v, fmt.Sprintf("%v of %s", path(k), origins[i].What)}
		}
	}
	return Said{}
}

func (k *Kind) queuePath() []string     { return k.queue }
func (k *Kind) classPath() []string     { return k.class }
func (k *Kind) requiredPath() []string  { return k.required }
func (k *Kind) preferredPath() []string { return k.preferred }

// kind is the kind of what it is; nil: a pod or a Job.
func (s *Origin) kind() *Kind {
	if s.body == nil {
		return nil
	}
	gvk := (&unstructured.Unstructured{Object: s.body}).GroupVersionKind()
	return kindNamed(gvk.Group, gvk.Kind)
}

// Origins lists a pod, its Job, what made the gang, and the owners of these. An owner that should be there and is not
// is an error: it may say something.
func (all *Objects) Origins(g Gang, made Key, pod *v1.Pod) ([]Origin, error) {
	origins := []Origin{{pod, "pod " + pod.Name, nil}}
	seen := map[Key]bool{}
	add := func(key Key) error {
		for key.Kind != nil && !seen[key] {
			seen[key] = true
			o, err := all.object(g, key)
			if o == nil {
				return err
			}
			origins = append(origins, Origin{o, key.String(), o.Object})
			key = OwnerKey(o)
		}
		return nil
	}
	up := OwnerKey(pod)
	if ref := Owner(pod, "batch", "Job"); ref != nil {
		j := all.jobs[ref.UID]
		if j == nil {
			return nil, fmt.Errorf("its Job %s is gone", ref.Name)
		}
		origins, up = append(origins, Origin{j, "Job " + j.Name, nil}), OwnerKey(j)
	}
	if err := add(made); err != nil {
		return nil, err
	}
	return origins, add(up)
}

// PodAlone is the speakers where a pod speaks for itself only.
func PodAlone(pod *v1.Pod) []Origin { return []Origin{{pod, "pod " + pod.Name, nil}} }

// Queues says which queues there are.
type Queues interface {
	Has(queue string) bool
	List() []cluster.Queue
}

// Queue is the queue that owners name in the words of others; "": they name none.
func (all *Objects) Queue(g Gang, namespace string, origins []Origin, queues Queues) string {
	byDefault := len(queues.List()) == 0 || queues.Has("default")
	s := specified(origins, groups, (*Kind).queuePath)
	if s.Value != "" && (byDefault || s.Value != "default") { // Volcano's own default says nothing
		return s.Value
	}
	if s := specified(origins, owners, (*Kind).queuePath); s.Value != "" {
		return s.Value
	}
	if s := Stated(origins, kueueQueue); s.Value != "" {
		return all.localQueue(g, namespace, s.Value, queues.Has)
	}
	return Stated(origins, queueKeys...).Value
}

// Priority is the priority of a gang that says one in the words of others, and the
// name of its class; false: it says none.
func (all *Objects) Priority(g Gang, made Key, origins []Origin) (value int64, class string, is bool, err error) {
	for _, s := range origins {
		if made.Kind == podGroupKind && s.body != nil {
			if p := numberOf(s.body, -1<<40, "spec", "priority"); p != -1<<40 {
				return int64(p), textOf(s.body, "spec", "priorityClassName"), true, nil
			}
		}
	}
	if s := Stated(origins, kueuePriority); s.Value != "" {
		value, err = all.classValue(g, s, kueuePriorityKind, priorityKind)
		return value, s.Value, true, err
	}
	for _, s := range []Said{specified(origins, groups, (*Kind).classPath), Stated(origins, kaiPriority),
		specified(origins, owners, (*Kind).classPath)} {
		if s.Value != "" {
			value, err = all.classValue(g, s, priorityKind)
			return value, s.Value, true, err
		}
	}
	return 0, "", false, nil
}

// classValue is the value of a priority class, of the first kind that has it.
func (all *Objects) classValue(g Gang, s Said, kinds ...*Kind) (int64, error) {
	names := ""
	for _, k := range kinds {
		if o, _ := all.object(g, k.In("", s.Value)); o != nil {
			return int64(numberOf(o.Object, 0, "value")), nil
		}
		if names != "" {
			names += " or "
		}
		names += k.Name
	}
	return 0, fmt.Errorf("%s: there is no %s %q that Muster can read", s.Where, names, s.Value)
}

// Required lists the labels of nodes within whose domain a gang has to be, in the words of others.
func Required(origins []Origin) (list []Said) {
	list = []Said{Stated(origins, kueueRequired), Stated(origins, kaiRequired),
		specified(origins, groups, (*Kind).requiredPath)}
	for _, s := range origins {
		if s.body == nil {
			continue
		}
		for _, c := range listOf(s.body, "spec", "schedulingConstraints", "topology") {
			list = append(list, Said{textOf(c, "key"), "spec.schedulingConstraints of " + s.What})
		}
	}
	return slices.DeleteFunc(list, func(s Said) bool { return s.Value == "" })
}

// Preferred lists those within whose domain it rather is.
func Preferred(origins []Origin) []Said {
	return []Said{Stated(origins, kueuePreferred), Stated(origins, kaiPreferred),
		specified(origins, groups, (*Kind).preferredPath)}
}

// MaxTime is for how many seconds it may run, in the words of others.
func MaxTime(origins []Origin) Said { return Stated(origins, kueueMaxTime) }
