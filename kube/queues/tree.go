// Package queues makes the tree of queues of a cluster from the queues of the
// configuration file and Queue objects, and says what their status is.
package queues

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/quota"
)

// Resource is that of Queue objects: deploy/ has its definition.
var Resource = schema.GroupVersionResource{Group: "muster.sh", Version: "v1alpha1", Resource: "queues"}

// Label is that by which pods name their queue.
const Label = "muster.sh/queue"

// object is a Queue object.
type object struct {
	name       string
	generation int64
	created    time.Time
	spec       string // JSON
	status     Status
	inForce    string // the last spec that could be used, JSON
	sent       Status // last written
	sentAt     cluster.Time
}

// read reads an object. A status that another writer set and that makes no sense counts as none: it is written again.
func read(u *unstructured.Unstructured) (*object, error) {
	o := &object{name: u.GetName(), generation: u.GetGeneration(), created: u.GetCreationTimestamp().Time, spec: "{}"}
	if spec, ok := u.Object["spec"]; ok {
		text, err := json.Marshal(spec)
		if err != nil {
			return nil, err
		}
		o.spec = string(text)
	}
	if text, err := json.Marshal(u.Object["status"]); err != nil || json.Unmarshal(text, &o.status) != nil {
		o.status = Status{}
	}
	o.inForce = o.status.InForce
	return o, nil
}

// Tree is the queues of a cluster: those of the configuration file and the
// Queue objects that can be used.
type Tree struct {
	list  []cluster.Queue
	rules map[string]*config.KubeQueue // of objects, by name
	specs map[string]string            // ... and the text of the spec that is in force
	bad   map[string]string            // objects whose present spec cannot be used, and why
	over  []string                     // queues of the file for which an object counts

	fallback string // the queue of pods that name none, as the configuration has it
}

// merge puts Queue objects beside the queues of the configuration file; of
// two with one name the object counts. It begins with what was in force, as the
// objects' status says, and takes over what is new, one object after the other,
// until no more can be: what cannot be used - alone, or because the tree would
// make no sense with it - stays what it was, or out, and the others go on. All
// of that is a function of what the API server has, so a restart changes nothing.
func merge(file []cluster.Queue, objects map[string]*object, fallback string) *Tree {
	t := &Tree{list: slices.Clone(file), rules: map[string]*config.KubeQueue{}, specs: map[string]string{},
		bad: map[string]string{}, fallback: fallback}
	if len(objects) == 0 {
		return t
	}
	var was, now []wording
	for _, o := range objects {
		if o.inForce != "" {
			was = append(was, wording{o.name, o.created, o.inForce})
		}
		now = append(now, wording{o.name, o.created, o.spec})
	}
	if err := t.add(now...); err != nil {
		t.addEach(was)
		for _, s := range t.addEach(now) {
			t.bad[s.name] = t.add(s).Error()
		}
	}
	slices.SortFunc(t.list[len(file):], func(a, b cluster.Queue) int { return cmp.Compare(a.Name, b.Name) })
	for i := range file {
		if t.rules[file[i].Name] != nil {
			t.over = append(t.over, file[i].Name)
		}
	}
	if fallback == "" && len(t.list) > 0 && !t.Has("default") { // of pods that name no queue
		t.list = append(t.list, cluster.Queue{Name: "default", Limit: cluster.Unlimited, Lend: cluster.Unlimited})
	}
	return t
}

// wording is what an object says, or said.
type wording struct {
	name    string
	created time.Time
	text    string
}

// addEach adds what can be added, the older first, and returns the rest.
func (t *Tree) addEach(specs []wording) (rest []wording) {
	rest = slices.Clone(specs)
	slices.SortFunc(rest, func(a, b wording) int {
		return cmp.Or(a.created.Compare(b.created), cmp.Compare(a.name, b.name))
	})
	for more := true; more; { // one may have waited for its parent, or for room that another gives back
		more = false
		rest = slices.DeleteFunc(rest, func(s wording) bool {
			err := t.add(s)
			more = more || err == nil
			return err == nil
		})
	}
	return rest
}

// add takes objects into the tree, all of them or none.
func (t *Tree) add(specs ...wording) error {
	list, rules := slices.Clone(t.list), make([]*config.KubeQueue, len(specs))
	for k, s := range specs {
		q, err := config.ReadKubeQueue(s.name, []byte(s.text))
		if err != nil {
			return err
		}
		rules[k] = q
		if i := slices.IndexFunc(list, func(have cluster.Queue) bool { return have.Name == s.name }); i >= 0 {
			list[i] = q.Queue
		} else {
			list = append(list, q.Queue)
		}
	}
	if _, err := quota.New(list, cluster.Unlimited); err != nil {
		return err
	}
	t.list = list
	for k, s := range specs {
		t.rules[s.name], t.specs[s.name] = rules[k], s.text
	}
	return nil
}

// Has reports whether there is such a queue.
func (t *Tree) Has(name string) bool {
	return slices.ContainsFunc(t.list, func(q cluster.Queue) bool { return q.Name == name })
}

// Path is a queue and those above it, the nearest first.
func (t *Tree) Path(name string) (list []string) {
	for name != "" && len(list) <= len(t.list) {
		list = append(list, name)
		i := slices.IndexFunc(t.list, func(q cluster.Queue) bool { return q.Name == name })
		if i < 0 {
			break
		}
		name = t.list[i].Parent
	}
	return list
}

// Knows reports whether the engine takes a job in a queue; "": the one for jobs that name none.
func (t *Tree) Knows(name string) bool { return len(t.list) == 0 || t.Has(cmp.Or(name, "default")) }

// Admits says why the pods of a job may not be in its queue: what the nearest queue says, that says anything; nil: they
// may.
func (t *Tree) Admits(j *cluster.Job) error {
	name, namespace, tier := cmp.Or(j.Queue, "default"), j.User, j.Tier
	if !t.Has(name) && t.bad[name] != "" {
		return fmt.Errorf("queue %s cannot be used: %s", name, t.bad[name])
	}
	if len(t.list) == 0 && name != "default" && name != t.fallback { // of those that there are, the engine knows
		return fmt.Errorf("queue %q does not exist, and no queue is configured: make it (kubectl get queues), or take the label %s off", name, Label)
	}
	space, tiers := false, false
	for _, at := range t.Path(name) {
		q := t.rules[at]
		if q == nil {
			continue
		}
		if takes, said := q.Takes(namespace); said && !space {
			if space = true; !takes {
				return fmt.Errorf("queue %s takes pods of %s, this one's namespace is %s", name,
					strings.Join(q.Namespaces, ", "), namespace)
			}
		}
		if len(q.Tiers) > 0 && !tiers {
			if tiers = true; !slices.Contains(q.Tiers, tier) {
				names := make([]string, len(q.Tiers))
				for i := range q.Tiers {
					names[i] = q.Tiers[i].String()
				}
				return fmt.Errorf("queue %s takes pods of the tiers %s, this one is %s", name,
					strings.Join(names, ", "), tier)
			}
		}
	}
	return nil
}

// Scaled lowers what queues are guaranteed, all in proportion, where the
// cluster has less than is promised in all: on Kubernetes nodes come and go,
// and a cluster that is too small for its promises schedules all the same.
func Scaled(queues []cluster.Queue, gpus int) []cluster.Queue {
	have := int64(gpus) * cluster.Whole
	if _, err := quota.New(queues, have); err == nil {
		return queues
	}
	sum := max(1, promised(queues, ""))
	if sum <= have {
		return queues
	}
	part := func(m cluster.Milli) cluster.Milli {
		hi, lo := bits.Mul64(uint64(m), uint64(have))
		q, _ := bits.Div64(hi, lo, uint64(sum)) // have < sum, so it fits
		return cluster.Milli(q)
	}
	queues = slices.Clone(queues)
	for i := range queues {
		q := &queues[i]
		q.Guarantee, q.Reserve = part(q.Guarantee), part(q.Reserve)
		if q.Lend > 0 {
			q.Lend = part(q.Lend)
		}
		q.Windows = slices.Clone(q.Windows)
		for k := range q.Windows {
			if w := &q.Windows[k]; w.Guarantee > 0 {
				w.Guarantee = part(w.Guarantee)
			}
		}
	}
	return queues
}

// List is the queues.
func (t *Tree) List() []cluster.Queue { return t.list }

// promised is what the children of a queue are guaranteed in sum, at the most
// that windows make of each.
func promised(queues []cluster.Queue, parent string) (sum int64) {
	for i := range queues {
		if queues[i].Parent != parent {
			continue
		}
		most := queues[i].Guarantee
		for _, w := range queues[i].Windows {
			most = max(most, w.Guarantee)
		}
		sum += max(most, promised(queues, queues[i].Name))
	}
	return sum
}
