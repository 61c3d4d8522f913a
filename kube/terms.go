package kube

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/kube/fit/shared"
	"github.com/muster-gpu/muster/kube/gangs"
	"github.com/muster-gpu/muster/kube/gpus"
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
	sharer   shared.Sharer
	want     gpus.Want
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
	if t.sharer, err = d.speedFor(who); err != nil {
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

// annotationSources lists a gang's pod, and who owns it.
func (d *Driver) annotationSources(g *gang, first *v1.Pod) ([]gangs.Speaker, error) {
	return d.objects.Speakers(g, g.object, first)
}

// queueOf is the queue of a gang that waits for something, as far as it can be known.
func (d *Driver) queueOf(g *gang, first *v1.Pod) string {
	who, err := d.annotationSources(g, first)
	if err != nil {
		who = gangs.PodAlone(first)
	}
	return d.queueFor(g, first.Namespace, who)
}

// queueFor finds the queue of a gang.
func (d *Driver) queueFor(g *gang, namespace string, who []gangs.Speaker) string {
	return cmp.Or(gangs.Stated(who, LabelQueue).Value, d.objects.Queue(g, namespace, who, d.queues.Tree()),
		d.opt.DefaultQueue)
}

// priorityFor finds the priority of a gang, and the name of its class.
func (d *Driver) priorityFor(g *gang, first *v1.Pod, who []gangs.Speaker) (value int64, class string, err error) {
	value, class, is, err := d.objects.Priority(g, g.object, who)
	if !is {
		return priority(first), first.Spec.PriorityClassName, nil
	}
	return value, class, err
}

// tierFor is the tier that is stated, else the one that the priority class stands
// for, else what the priority says.
func (d *Driver) tierFor(who []gangs.Speaker, class string, priority int64) (cluster.Tier, error) {
	if s := gangs.Stated(who, LabelTier); s.Value != "" {
		t, err := cluster.ParseTier(s.Value)
		if err != nil {
			return cluster.Standard, fmt.Errorf("%s: %w", s.Where, err)
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
func (d *Driver) topologyFor(who []gangs.Speaker) (cluster.Topology, error) {
	for _, a := range []struct {
		key      string
		required bool
	}{{AnnotationWithin, true}, {AnnotationPrefer, false}} {
		if s := gangs.Stated(who, a.key); s.Value != "" {
			l, err := cluster.ParseLevel(s.Value)
			if err != nil {
				return cluster.Topology{}, fmt.Errorf("%s: %w", s.Where, err)
			}
			return cluster.Topology{Level: l, Required: a.required}, nil
		}
	}
	for _, s := range gangs.Required(who) {
		l, ok := d.levelOf(s.Value)
		if !ok {
			return cluster.Topology{},
				fmt.Errorf("%s: %q is none of the labels that the configuration names (labels: clique, rack, fabric), nor kubernetes.io/hostname", s.Where, s.Value)
		}
		return cluster.Topology{Level: l, Required: true}, nil
	}
	for _, s := range gangs.Preferred(who) {
		if l, ok := d.levelOf(s.Value); ok {
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
func runTimeFor(first *v1.Pod, who []gangs.Speaker) (time.Duration, error) {
	if s := gangs.Stated(who, AnnotationRunTime); s.Value != "" {
		t, err := cluster.ParseDuration(s.Value)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", s.Where, err)
		}
		return t, nil
	}
	if s := first.Spec.ActiveDeadlineSeconds; s != nil {
		return seconds(*s), nil
	}
	if s := gangs.MaxTime(who); s.Value != "" {
		n, err := strconv.ParseInt(s.Value, 10, 64)
		if err != nil || n < 1 {
			return 0, fmt.Errorf("%s: %q is not a number of seconds", s.Where, s.Value)
		}
		return seconds(n), nil
	}
	return 0, nil
}

// movesFor reads whether a gang may be moved, and how often it saves its work.
func convergeFor(who []gangs.Speaker) (string, error) {
	s := gangs.Stated(who, AnnotationConverge)
	if s.Value == "" {
		return "", nil
	}
	if _, err := perf.ParseConvergence(s.Value); err != nil {
		return "", fmt.Errorf("%s: %w", s.Where, err)
	}
	return s.Value, nil
}

func movesFor(who []gangs.Speaker) (movable string, saves time.Duration, err error) {
	s := gangs.Stated(who, AnnotationMovable)
	if s.Value != "" && s.Value != "true" && s.Value != "false" {
		return "", 0, fmt.Errorf("%s: %q is neither true nor false", s.Where, s.Value)
	}
	movable = s.Value
	if s = gangs.Stated(who, AnnotationSaves); s.Value == "" {
		return movable, 0, nil
	}
	if saves, err = cluster.ParseDuration(s.Value); err == nil && saves <= 0 {
		err = errors.New("it has to be above 0")
	}
	if err != nil {
		return "", 0, fmt.Errorf("%s: %w", s.Where, err)
	}
	return movable, saves, nil
}

func seconds(n int64) time.Duration {
	return min(time.Duration(n), cluster.MaxDuration/time.Second) * time.Second
}

// speedFor reads what model a gang is of, and how fast it wants to be.
func (d *Driver) speedFor(who []gangs.Speaker) (b shared.Sharer, err error) {
	b.Model = gangs.Stated(who, AnnotationModel).Value
	b.Least = d.opt.Rules.Spec.MinSpeed
	s := gangs.Stated(who, AnnotationSpeed)
	if s.Value == "" {
		return b, nil
	}
	v, err := strconv.ParseFloat(s.Value, 64)
	if err != nil || !(v >= 0 && v <= 1) {
		return b, fmt.Errorf("%s: %q is not a part of its speed alone, between 0 and 1", s.Where, s.Value)
	}
	b.Least = int64(v*shared.PPM + 0.5)
	return b, nil
}

// sharerOf is that of a pod.
func (d *Driver) sharerOf(p *pod) shared.Sharer {
	if p.gang == nil {
		return shared.Sharer{} // what other schedulers' pods are is not known
	}
	if s := p.gang.spec; s != nil {
		return shared.Sharer{Model: s.Model, Least: s.MinSpeed}
	}
	t, err := d.terms(p.gang, p.obj)
	if err != nil {
		return shared.Sharer{}
	}
	return t.sharer
}
