package kube

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/perf"
)

// terms are on which terms a gang runs: what its first pod says, else that pod's
// owners, the nearest first, each in Muster's words; only then what they say in
// the words of others.
type terms struct {
	queue    string
	tier     cluster.Tier
	priority int64
	topology cluster.Topology
	runTime  time.Duration
	deadline cluster.Time  // 0: none
	repair   bool          // what is left runs on when a node is lost
	movable  string        // "true", "false" or "": nobody says
	saves    time.Duration // how often its work is saved; 0: nobody says
	converge string        // how its metric converges (perf.ParseConvergence); "": nobody says
	beside
	want
}

// said is where something was said, for people: label K of pod P.
type said struct{ value, where string }

// annotationSource is a pod or an owner of it.
type annotationSource struct {
	meta metav1.Object
	what string
	body map[string]any // nil for pods and Jobs
}

// stated looks for keys in labels and annotations, the first key first, and of
// those the nearest owner's.
func stated(annotationSources []annotationSource, keys ...string) said {
	for _, key := range keys {
		for _, s := range annotationSources {
			if v := s.meta.GetLabels()[key]; v != "" {
				return said{v, "label " + key + " of " + s.what}
			}
			if v := s.meta.GetAnnotations()[key]; v != "" {
				return said{v, "annotation " + key + " of " + s.what}
			}
		}
	}
	return said{}
}

// askBody looks for a field in what the annotationSources specify.
func askBody(annotationSources []annotationSource, kinds []*objectKind, path ...string) said {
	for _, s := range annotationSources {
		if s.body == nil {
			continue
		}
		o := unstructured.Unstructured{Object: s.body}
		gvk := o.GroupVersionKind()
		if !slices.ContainsFunc(kinds, func(k *objectKind) bool { return k.group == gvk.Group && k.kind == gvk.Kind }) {
			continue
		}
		if v := textOf(s.body, path...); v != "" {
			return said{v, fmt.Sprintf("%v of %s", path, s.what)}
		}
	}
	return said{}
}

// terms reads a gang's terms. An owner that should be there and is not is an
// error: it may say something.
func (d *Driver) terms(g *gang, first *v1.Pod) (t terms, err error) {
	who, err := d.annotationSources(g, first)
	if err != nil {
		return t, err
	}
	t.queue = d.queueFor(g, first.Namespace, who)
	var class string
	if t.priority, class, err = d.priorityFor(g, first, who); err != nil {
		return t, err
	}
	if t.tier, err = d.tierFor(who, class, t.priority); err != nil {
		return t, err
	}
	if t.topology, err = d.topologyFor(who); err != nil {
		return t, err
	}
	if t.repair, err = d.repairFor(who); err != nil {
		return t, err
	}
	if t.runTime, err = runTimeFor(first, who); err != nil {
		return t, err
	}
	if t.deadline, err = deadlineFor(g, who); err != nil {
		return t, err
	}
	if t.beside, err = d.speedFor(who); err != nil {
		return t, err
	}
	if t.want, err = wantFor(who); err != nil {
		return t, err
	}
	if t.converge, err = convergeFor(who); err != nil {
		return t, err
	}
	t.movable, t.saves, err = movesFor(who)
	return t, err
}

// annotationSources lists the pod, its Job, what made the gang, and who owns these.
func (d *Driver) annotationSources(g *gang, first *v1.Pod) ([]annotationSource, error) {
	who := []annotationSource{{first, "pod " + first.Name, nil}}
	seen := map[objKey]bool{}
	add := func(key objKey) error {
		for key.kind != nil && !seen[key] {
			seen[key] = true
			o, err := d.object(g, key)
			if o == nil {
				return err
			}
			who = append(who, annotationSource{o, key.String(), o.Object})
			key = ownerKey(o)
		}
		return nil
	}
	up := ownerKey(first)
	if ref := owner(first, "batch", "Job"); ref != nil {
		j := d.jobs[ref.UID]
		if j == nil {
			return nil, fmt.Errorf("its Job %s is gone", ref.Name)
		}
		who, up = append(who, annotationSource{j, "Job " + j.Name, nil}), ownerKey(j)
	}
	if err := add(g.object); err != nil {
		return nil, err
	}
	return who, add(up)
}

// ownerKey names the controller of an object, if it is of a kind that is watched.
func ownerKey(o metav1.Object) objKey {
	ref := metav1.GetControllerOf(o)
	if ref == nil {
		return objKey{}
	}
	k := kindOf(ref)
	if k == nil {
		return objKey{}
	}
	return k.in(o.GetNamespace(), ref.Name)
}

// queueOf is the queue of a gang that waits for something, as far as it can be known.
func (d *Driver) queueOf(g *gang, first *v1.Pod) string {
	who, err := d.annotationSources(g, first)
	if err != nil {
		who = []annotationSource{{first, "pod " + first.Name, nil}}
	}
	return d.queueFor(g, first.Namespace, who)
}

// queueFor finds the queue of a gang.
func (d *Driver) queueFor(g *gang, namespace string, who []annotationSource) string {
	if s := stated(who, LabelQueue); s.value != "" {
		return s.value
	}
	if s := askBody(who, groupKinds, "spec", "queue"); s.value != "" && (d.hasQueue(s.value) || s.value != "default") { // Volcano's own default says nothing
		return s.value
	}
	if s := askBody(who, kubeflowKinds, "spec", "runPolicy", "schedulingPolicy", "queue"); s.value != "" {
		return s.value
	}
	if s := stated(who, kueueQueue); s.value != "" {
		return d.localQueue(g, namespace, s.value)
	}
	if s := stated(who, queueKeys...); s.value != "" {
		return s.value
	}
	return d.opt.DefaultQueue
}

// priorityFor finds the priority of a gang, and the name of its class.
func (d *Driver) priorityFor(g *gang, first *v1.Pod, who []annotationSource) (value int64, class string, err error) {
	for _, s := range who {
		if g.object.kind == podGroupKind && s.body != nil {
			if p := numberOf(s.body, -1<<40, "spec", "priority"); p != -1<<40 {
				return int64(p), textOf(s.body, "spec", "priorityClassName"), nil
			}
		}
	}
	if s := stated(who, kueuePriority); s.value != "" {
		value, err = d.classValue(g, s, kueuePriorityKind, priorityKind)
		return value, s.value, err
	}
	for _, s := range []said{askBody(who, groupKinds, "spec", "priorityClassName"), stated(who, kaiPriority),
		askBody(who, kubeflowKinds, "spec", "runPolicy", "schedulingPolicy", "priorityClass")} {
		if s.value != "" {
			value, err = d.classValue(g, s, priorityKind)
			return value, s.value, err
		}
	}
	return priority(first), first.Spec.PriorityClassName, nil
}

// classValue is the value of a priority class, of the first kind that has it.
func (d *Driver) classValue(g *gang, s said, kinds ...*objectKind) (int64, error) {
	names := ""
	for _, k := range kinds {
		if o, _ := d.object(g, k.in("", s.value)); o != nil {
			return int64(numberOf(o.Object, 0, "value")), nil
		}
		if names != "" {
			names += " or "
		}
		names += k.kind
	}
	return 0, fmt.Errorf("%s: there is no %s %q that Muster can read", s.where, names, s.value)
}

// tierFor is the tier that is stated, else the one that the priority class stands
// for, else what the priority says.
func (d *Driver) tierFor(who []annotationSource, class string, priority int64) (cluster.Tier, error) {
	if s := stated(who, LabelTier); s.value != "" {
		t, err := cluster.ParseTier(s.value)
		if err != nil {
			return cluster.Standard, fmt.Errorf("%s: %w", s.where, err)
		}
		return t, nil
	}
	if t, ok := d.opt.Classes[class]; ok {
		return t, nil
	}
	switch {
	case priority >= 2_000_000_000: // system-cluster-critical and above
		return cluster.Critical, nil
	case priority < 0:
		return cluster.BestEffort, nil
	}
	return cluster.Standard, nil
}

// topologyFor reads how far apart the gang may be.
func (d *Driver) topologyFor(who []annotationSource) (cluster.Topology, error) {
	for _, a := range []struct {
		key      string
		required bool
	}{{AnnotationWithin, true}, {AnnotationPrefer, false}} {
		if s := stated(who, a.key); s.value != "" {
			l, err := cluster.ParseLevel(s.value)
			if err != nil {
				return cluster.Topology{}, fmt.Errorf("%s: %w", s.where, err)
			}
			return cluster.Topology{Level: l, Required: a.required}, nil
		}
	}
	required := []said{stated(who, kueueRequired), stated(who, kaiRequired), askBody(who, []*objectKind{kaiKind}, "spec", "topologyConstraint", "requiredTopologyLevel")}
	for _, s := range who {
		if s.body == nil {
			continue
		}
		for _, c := range listOf(s.body, "spec", "schedulingConstraints", "topology") {
			required = append(required, said{textOf(c, "key"), "spec.schedulingConstraints of " + s.what})
		}
	}
	for _, s := range required {
		if s.value == "" {
			continue
		}
		l, ok := d.levelOf(s.value)
		if !ok {
			return cluster.Topology{}, fmt.Errorf("%s: %q is none of the labels that the configuration names (labels: clique, rack, fabric), nor kubernetes.io/hostname", s.where, s.value)
		}
		return cluster.Topology{Level: l, Required: true}, nil
	}
	for _, s := range []said{stated(who, kueuePreferred), stated(who, kaiPreferred), askBody(who, []*objectKind{kaiKind}, "spec", "topologyConstraint", "preferredTopologyLevel")} {
		if l, ok := d.levelOf(s.value); ok {
			return cluster.Topology{Level: l}, nil
		}
	}
	return cluster.Topology{}, nil
}

// levelOf is the level that a label of nodes stands for.
func (d *Driver) levelOf(label string) (cluster.Level, bool) {
	l := &d.opt.Labels
	switch label {
	case "":
	case v1.LabelHostname:
		return cluster.LevelNode, true
	case l.Clique:
		return cluster.LevelNVLink, true
	case l.Rack:
		return cluster.LevelRack, true
	case l.Fabric:
		return cluster.LevelFabric, true
	}
	return cluster.LevelAny, false
}

// runTimeFor is how long the gang is expected to run; 0: nobody knows.
func runTimeFor(first *v1.Pod, who []annotationSource) (time.Duration, error) {
	if s := stated(who, AnnotationRunTime); s.value != "" {
		t, err := cluster.ParseDuration(s.value)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", s.where, err)
		}
		return t, nil
	}
	if s := first.Spec.ActiveDeadlineSeconds; s != nil {
		return seconds(*s), nil
	}
	if s := stated(who, kueueMaxTime); s.value != "" {
		n, err := strconv.ParseInt(s.value, 10, 64)
		if err != nil || n < 1 {
			return 0, fmt.Errorf("%s: %q is not a number of seconds", s.where, s.value)
		}
		return seconds(n), nil
	}
	return 0, nil
}

// movesFor reads whether a gang may be moved, and how often it saves its work.
func convergeFor(who []annotationSource) (string, error) {
	s := stated(who, AnnotationConverge)
	if s.value == "" {
		return "", nil
	}
	if _, err := perf.ParseConvergence(s.value); err != nil {
		return "", fmt.Errorf("%s: %w", s.where, err)
	}
	return s.value, nil
}

func movesFor(who []annotationSource) (movable string, saves time.Duration, err error) {
	s := stated(who, AnnotationMovable)
	if s.value != "" && s.value != "true" && s.value != "false" {
		return "", 0, fmt.Errorf("%s: %q is neither true nor false", s.where, s.value)
	}
	movable = s.value
	if s = stated(who, AnnotationSaves); s.value == "" {
		return movable, 0, nil
	}
	if saves, err = cluster.ParseDuration(s.value); err == nil && saves <= 0 {
		err = errors.New("it has to be above 0")
	}
	if err != nil {
		return "", 0, fmt.Errorf("%s: %w", s.where, err)
	}
	return movable, saves, nil
}

func seconds(n int64) time.Duration {
	return min(time.Duration(n), cluster.MaxDuration/time.Second) * time.Second
}
