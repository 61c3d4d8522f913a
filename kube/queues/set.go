package queues

import (
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/quota"
)

// Set is the queues as they are now: the objects that were seen, the tree that they make with the file's, and
// how that is fitted to the cluster.
type Set struct {
	fallback string
	objects  map[string]*object
	tree     *Tree
	dirty    bool            // objects may make another tree
	fitted   []cluster.Queue // as the engine has them
	reduced  bool            // ... for fewer nodes than there are

	statusDirty bool          // the status of the objects may be another
	statusAt    cluster.Time  // when it was last looked at
	statusTook  time.Duration // ... and for how long
}

// New is the queues of the configuration file; fallback is the queue of pods that name none.
func New(file []cluster.Queue, fallback string) *Set {
	return &Set{fallback: fallback, objects: map[string]*object{}, tree: merge(file, nil, "")}
}

// Tree is the queues that count.
func (q *Set) Tree() *Tree { return q.tree }

// Dirty reports whether the tree may have to be another; Touch says so.
func (q *Set) Dirty() bool { return q.dirty }

// Touch has the tree be made and fitted again.
func (q *Set) Touch() { q.dirty = true }

// Changed books an object as it is now.
func (q *Set) Changed(u *unstructured.Unstructured) error {
	o, err := read(u)
	if err != nil {
		return err
	}
	old := q.objects[o.name]
	if q.objects[o.name] = o; old == nil || o.generation != old.generation || !o.created.Equal(old.created) {
		q.dirty = true
	} else {
		o.sent, o.sentAt = old.sent, old.sentAt
	}
	return nil
}

// Gone books that an object was deleted: another of its name begins from nothing.
func (q *Set) Gone(name string) {
	q.dirty = q.dirty || q.objects[name] != nil
	delete(q.objects, name)
	delete(q.tree.specs, name)
}

// Rebuild finds the queues that count now, and says so where they are others.
func (q *Set) Rebuild(file []cluster.Queue, log *slog.Logger) {
	q.dirty = false
	was := q.tree
	for name, text := range was.specs { // what is in force need not have been written yet
		if o := q.objects[name]; o != nil {
			o.inForce = text
		}
	}
	q.tree = merge(file, q.objects, q.fallback)
	if len(q.tree.over) > 0 && !slices.Equal(was.over, q.tree.over) {
		log.Info("queues of the configuration file for which a Queue object counts", "queues", q.tree.over)
	}
	if name := q.fallback; name != "" && len(q.tree.list) > 0 && !q.tree.Has(name) &&
		(was.Has(name) || len(was.list) == 0) {
		log.Warn("there is no queue of the name of default_queue: pods that name none have to wait", "queue", name)
	}
	for _, name := range slices.Sorted(maps.Keys(q.tree.bad)) {
		if was.bad[name] != q.tree.bad[name] {
			log.Warn("a Queue object cannot be used", "queue", name, "why", q.tree.bad[name], "an earlier spec counts",
				q.tree.rules[name] != nil)
		}
	}
}

// Fit fits the tree to a cluster of so many GPUs, so many of which are there: to all, and where that cannot be
// because too many are not there, to the others. changed: the engine has yet to hear of it.
func (q *Set) Fit(all, there int) (list []cluster.Queue, changed bool) {
	list, q.reduced = Scaled(q.tree.list, all), false
	if _, err := quota.New(list, int64(there)*cluster.Whole); err != nil {
		list, q.reduced = Scaled(q.tree.list, there), true
	}
	changed = !same(list, q.fitted)
	q.fitted = list
	return list, changed
}

// Begin notes with which queues an engine begins.
func (q *Set) Begin(list []cluster.Queue) { q.fitted, q.reduced = list, false }

// Fitted is the queues as the engine has them.
func (q *Set) Fitted() []cluster.Queue { return q.fitted }

// NodesChanged has the tree be fitted again where it was for fewer nodes than there are.
func (q *Set) NodesChanged() { q.dirty = q.dirty || q.reduced }

// Grown has the tree be fitted again where the cluster was too small for it.
func (q *Set) Grown() { q.dirty = q.dirty || !same(q.fitted, q.tree.list) }

func same(a, b []cluster.Queue) bool {
	return slices.EqualFunc(a, b, func(a, b cluster.Queue) bool { return reflect.DeepEqual(a, b) })
}
