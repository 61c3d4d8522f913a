package gangs

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Kind is a kind of object that says something about gangs.
type Kind struct {
	Group, Name, Resource string
	Versions              []string // that this package can read, the best first
	group                 bool     // a group of pods, which others made for the sake of scheduling
	// Where its objects say what a gang's terms are; nil: nowhere.
	queue, class        []string // queue, priority class
	required, preferred []string // a label of nodes within whose domain the gang has to be, or rather is
}

// kinds are all of them.
var kinds []*Kind

func init() {
	for i := range sources {
		kinds = append(kinds, sources[i].kinds...)
	}
}

// Kinds lists all of them.
func Kinds() []*Kind { return kinds }

func (k *Kind) String() string { return k.Resource + "." + k.Group }

// In is the key of an object of this kind.
func (k *Kind) In(namespace, name string) Key { return Key{k, namespace, name} }

// kindOf finds the kind of a reference to an owner; nil: it is none of them.
func kindOf(ref *metav1.OwnerReference) *Kind {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return nil
	}
	return kindNamed(gv.Group, ref.Kind)
}

// kindNamed is a kind; nil: it is none of them.
func kindNamed(group, name string) *Kind {
	for _, k := range kinds {
		if k.Group == group && k.Name == name {
			return k
		}
	}
	return nil
}

// Key names an object; the namespace is empty for one that has none.
type Key struct {
	Kind            *Kind
	Namespace, Name string
}

func (k Key) String() string {
	if k.Namespace == "" {
		return k.Kind.Name + " " + k.Name
	}
	return k.Kind.Name + " " + k.Namespace + "/" + k.Name
}

// OwnerKey names the controller of an object, if it is of one of the kinds.
func OwnerKey(o metav1.Object) Key {
	ref := metav1.GetControllerOf(o)
	if ref == nil {
		return Key{}
	}
	k := kindOf(ref)
	if k == nil {
		return Key{}
	}
	return k.In(o.GetNamespace(), ref.Name)
}

// Owner is the controller of an object, if it is of this kind.
func Owner(o metav1.Object, group, kind string) *metav1.OwnerReference {
	ref := metav1.GetControllerOf(o)
	if ref == nil || ref.Kind != kind || !strings.HasPrefix(ref.APIVersion, group+"/") {
		return nil
	}
	return ref
}

// Objects is what makes gangs: Jobs, objects of the kinds that can be read, and which
// gangs look at them.
type Objects struct {
	jobs     map[types.UID]*batchv1.Job
	children map[Key]map[types.UID]*batchv1.Job // Jobs by their owners
	objects  map[Key]*unstructured.Unstructured
	readable map[*Kind]bool
	users    map[Key]map[string]bool // gangs
	looked   map[string]map[Key]bool // ... at these
}

// NewObjects is without any.
func NewObjects() *Objects {
	return &Objects{jobs: map[types.UID]*batchv1.Job{}, children: map[Key]map[types.UID]*batchv1.Job{},
		objects: map[Key]*unstructured.Unstructured{}, readable: map[*Kind]bool{}, users: map[Key]map[string]bool{},
		looked: map[string]map[Key]bool{}}
}

// Job is a Job; nil: it is not there.
func (all *Objects) Job(uid types.UID) *batchv1.Job { return all.jobs[uid] }

// JobChanged books a Job as it is now, and returns what it was; nil: it is new.
func (all *Objects) JobChanged(j *batchv1.Job) (old *batchv1.Job) {
	old = all.jobs[j.UID]
	all.jobs[j.UID] = j
	if up := OwnerKey(j); up.Kind != nil {
		if all.children[up] == nil {
			all.children[up] = map[types.UID]*batchv1.Job{}
		}
		all.children[up][j.UID] = j
	}
	return old
}

// JobGone books that a Job is not there any more.
func (all *Objects) JobGone(j *batchv1.Job) {
	delete(all.jobs, j.UID)
	up := OwnerKey(j)
	if delete(all.children[up], j.UID); len(all.children[up]) == 0 {
		delete(all.children, up)
	}
}

// Changed books an object as it is now; nil: it is gone.
func (all *Objects) Changed(key Key, obj *unstructured.Unstructured) {
	if all.objects[key] = obj; obj == nil {
		delete(all.objects, key)
	}
}

// SetReadable books whether the objects of a kind can be known, and returns those that
// are forgotten.
func (all *Objects) SetReadable(k *Kind, so bool) (gone []Key) {
	if all.readable[k] = so; so {
		return nil
	}
	for key := range all.objects {
		if key.Kind == k {
			delete(all.objects, key)
			gone = append(gone, key)
		}
	}
	return gone
}

// Readable reports whether the objects of a kind can be known.
func (all *Objects) Readable(k *Kind) bool { return all.readable[k] }

// Has reports whether an object is known.
func (all *Objects) Has(key Key) bool { return all.objects[key] != nil }

// Users lists the gangs that looked at an object.
func (all *Objects) Users(key Key) []string { return slices.Collect(maps.Keys(all.users[key])) }

// Use remembers that a gang looked at an object.
func (all *Objects) Use(gang string, key Key) {
	if all.looked[gang] == nil {
		all.looked[gang] = map[Key]bool{}
	}
	all.looked[gang][key] = true
	if all.users[key] == nil {
		all.users[key] = map[string]bool{}
	}
	all.users[key][gang] = true
}

// Forget forgets what a gang looked at.
func (all *Objects) Forget(gang string) {
	for key := range all.looked[gang] {
		if delete(all.users[key], gang); len(all.users[key]) == 0 {
			delete(all.users, key)
		}
	}
	delete(all.looked, gang)
}

// object finds an object that a gang depends on. It is an error if it should be there and is not; nil without one: that
// cannot be known.
func (all *Objects) object(g Gang, key Key) (*unstructured.Unstructured, error) {
	all.Use(g.ID(), key)
	obj := all.objects[key]
	if obj == nil && all.readable[key.Kind] {
		return nil, fmt.Errorf("%s is not there", key)
	}
	return obj, nil
}

// whole asks for an object without which nothing can be said.
func (all *Objects) whole(g Gang, key Key) (*unstructured.Unstructured, error) {
	obj, err := all.object(g, key)
	if obj == nil && err == nil {
		err = fmt.Errorf("%s cannot be read: %s is not served here, or Muster may not list it", key, key.Kind)
	}
	return obj, err
}

// Prune drops what is not read here of an object: most of its bytes are containers.
func Prune(o *unstructured.Unstructured) {
	o.SetManagedFields(nil)
	pruneMap(o.Object, 0)
}

func pruneMap(m map[string]any, depth int) {
	for _, key := range []string{"containers", "initContainers", "volumes", "affinity", "conditions"} {
		delete(m, key)
	}
	if depth > 12 {
		return
	}
	for _, v := range m {
		switch v := v.(type) {
		case map[string]any:
			pruneMap(v, depth+1)
		case []any:
			for _, e := range v {
				if e, ok := e.(map[string]any); ok {
					pruneMap(e, depth+1)
				}
			}
		}
	}
}
