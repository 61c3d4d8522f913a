package terms

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/kube/fit/shared"
	"github.com/muster-gpu/muster/kube/gangs"
	"github.com/muster-gpu/muster/kube/gpus"
	"github.com/muster-gpu/muster/perf"
)

// Terms are what a gang's first pod says, else that pod's owners, the nearest first, each in Muster's words; only then
// what they say in the words of others.
type Terms struct {
	Queue    string
	Tier     cluster.Tier
	Priority int64
	Topology cluster.Topology
	RunTime  time.Duration // 0: it is not known
	Deadline cluster.Time  // 0: none
	Repair   bool          // what is left runs on when a node is lost
	Movable  string        // "true", "false" or "": that is not said
	Saves    time.Duration // how often its work is saved; 0: that is not said
	Traffic  cluster.Traffic
	Converge string // how its metric converges (perf.ParseConvergence); "": that is not said
	Sharer   shared.Sharer
	Want     gpus.Want
}

// Rules are what holds where that is not said, and what labels and priority classes mean.
type Rules struct {
	Labels   *gpus.Labels
	Classes  map[string]cluster.Tier // tiers by the name of a PriorityClass
	Repair   bool
	MinSpeed int64 // ppm
}

// Gang is what is known of a gang's pods and of what made them.
type Gang struct {
	Sources  []gangs.Origin // its first pod, then that pod's owners, the nearest first
	Queue    string
	Priority int64
	Class    string // of priority
	// Created is when the oldest of its pods and owners was created. A length of time until its deadline counts from
	// there: an owner that makes its pods again does not gain time by that.
	Created func() time.Time
}

// Read reads a gang's terms; pod is its first pod.
func (r *Rules) Read(g *Gang, pod *v1.Pod) (t Terms, err error) {
	origins := g.Sources
	t.Queue, t.Priority = g.Queue, g.Priority
	for _, read := range []func(){
		func() { t.Tier, err = r.tierFor(origins, g.Class, g.Priority) },
		func() { t.Topology, err = r.Topology(origins) },
		func() { t.Repair, err = r.repairFor(origins) },
		func() { t.RunTime, err = runTimeFor(pod, origins) },
		func() { t.Deadline, err = deadlineFor(g) },
		func() { t.Sharer, err = r.speedFor(origins) },
		func() { t.Want, err = wantFor(origins) },
		func() { t.Converge, err = convergeFor(origins) },
		func() { t.Traffic, err = trafficFor(origins) },
		func() { t.Movable, t.Saves, err = movesFor(origins) },
	} {
		if read(); err != nil {
			return t, err
		}
	}
	return t, nil
}

// Created is when the oldest of a gang's pods and owners was created.
func Created(origins []gangs.Origin, pods []*v1.Pod) time.Time {
	oldest := origins[0].Meta.GetCreationTimestamp().Time
	older := func(at time.Time) {
		if at.Before(oldest) {
			oldest = at
		}
	}
	for _, s := range origins[1:] {
		older(s.Meta.GetCreationTimestamp().Time)
	}
	for _, p := range pods {
		older(p.CreationTimestamp.Time)
	}
	return oldest
}

// tierFor is the tier that is stated, else the one that the priority class stands
// for, else what the priority says.
func (r *Rules) tierFor(origins []gangs.Origin, class string, priority int64) (cluster.Tier, error) {
	if s := gangs.Stated(origins, LabelTier); s.Value != "" {
		t, err := cluster.ParseTier(s.Value)
		if err != nil {
			return cluster.Standard, fmt.Errorf("%s: %w", s.Where, err)
		}
		return t, nil
	}
	if t, ok := r.Classes[class]; ok {
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

// Topology reads how far apart the gang may be.
func (r *Rules) Topology(origins []gangs.Origin) (cluster.Topology, error) {
	for _, a := range []struct {
		key      string
		required bool
	}{{AnnotationWithin, true}, {AnnotationPrefer, false}} {
		if s := gangs.Stated(origins, a.key); s.Value != "" {
			l, err := cluster.ParseLevel(s.Value)
			if err != nil {
				return cluster.Topology{}, fmt.Errorf("%s: %w", s.Where, err)
			}
			return cluster.Topology{Level: l, Required: a.required}, nil
		}
	}
	for _, s := range gangs.Required(origins) {
		l, ok := r.Labels.Level(s.Value)
		if !ok {
			return cluster.Topology{},
				fmt.Errorf("%s: %q is none of the labels that the configuration names (labels: clique, rack, fabric, core), nor kubernetes.io/hostname", s.Where, s.Value)
		}
		return cluster.Topology{Level: l, Required: true}, nil
	}
	for _, s := range gangs.Preferred(origins) {
		if l, ok := r.Labels.Level(s.Value); ok {
			return cluster.Topology{Level: l}, nil
		}
	}
	return cluster.Topology{}, nil
}

// Answers to muster.sh/on-node-loss.
const (
	LossRequeue = "requeue"
	LossRepair  = "repair"
)

// repairFor reads whether a gang wants to be repaired.
func (r *Rules) repairFor(origins []gangs.Origin) (bool, error) {
	s := gangs.Stated(origins, AnnotationLoss)
	switch s.Value {
	case "":
		return r.Repair, nil
	case LossRequeue, LossRepair:
		return s.Value == LossRepair, nil
	}
	return false, fmt.Errorf("%s: %q is neither %s nor %s", s.Where, s.Value, LossRequeue, LossRepair)
}

// runTimeFor is how long the gang is expected to run; 0: it is not known.
func runTimeFor(first *v1.Pod, origins []gangs.Origin) (time.Duration, error) {
	if s := gangs.Stated(origins, AnnotationRunTime); s.Value != "" {
		t, err := cluster.ParseDuration(s.Value)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", s.Where, err)
		}
		return t, nil
	}
	if s := first.Spec.ActiveDeadlineSeconds; s != nil {
		return seconds(*s), nil
	}
	if s := gangs.MaxTime(origins); s.Value != "" {
		n, err := strconv.ParseInt(s.Value, 10, 64)
		if err != nil || n < 1 {
			return 0, fmt.Errorf("%s: %q is not a number of seconds", s.Where, s.Value)
		}
		return seconds(n), nil
	}
	return 0, nil
}

// deadlineFor is until when a gang is to be done; 0: that is not said.
func deadlineFor(g *Gang) (cluster.Time, error) {
	s := gangs.Stated(g.Sources, AnnotationDeadline)
	if s.Value == "" {
		return 0, nil
	}
	if after, err := cluster.ParseDuration(s.Value); err == nil {
		if after <= 0 {
			return 0, fmt.Errorf("%s: %q has to be above 0", s.Where, s.Value)
		}
		return cluster.Time(g.Created().UnixNano()).Add(after), nil
	}
	at, err := time.Parse(time.RFC3339, s.Value)
	if err != nil {
		return 0, fmt.Errorf("%s: %q is neither a time such as 2026-12-24T18:00:00+01:00 nor a length of time from creation on such as 6h", s.Where, s.Value)
	}
	if y := at.Year(); y < 1970 || y > 2200 {
		return 0, fmt.Errorf("%s: %s lies out of range", s.Where, s.Value)
	}
	return max(1, cluster.Time(at.UnixNano())), nil // 0 would be none
}

// speedFor reads what model a gang is of, and how fast it wants to be.
func (r *Rules) speedFor(origins []gangs.Origin) (b shared.Sharer, err error) {
	b.Model = gangs.Stated(origins, AnnotationModel).Value
	b.Least = r.MinSpeed
	s := gangs.Stated(origins, AnnotationSpeed)
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

// wantFor reads what a gang's pods need of each of their GPUs.
func wantFor(origins []gangs.Origin) (w gpus.Want, err error) {
	if s := gangs.Stated(origins, AnnotationIsolation); s.Value != "" {
		if w.Isolation, err = cluster.ParseIsolation(s.Value); err != nil {
			return w, fmt.Errorf("%s: %w", s.Where, err)
		}
	}
	if s := gangs.Stated(origins, AnnotationMemory); s.Value != "" {
		if w.Memory, err = config.ParseMemory(s.Value); err == nil && w.Memory == 0 {
			err = errors.New("it has to be above 0")
		}
		if err != nil {
			return w, fmt.Errorf("%s: %w", s.Where, err)
		}
	}
	if s := gangs.Stated(origins, AnnotationCores); s.Value != "" {
		v, err := strconv.ParseFloat(strings.TrimSuffix(s.Value, "%"), 64)
		if err != nil || !strings.HasSuffix(s.Value, "%") || !(v > 0 && v <= 100) {
			return w, fmt.Errorf("%s: %q is not a part of a GPU's compute such as 30%%", s.Where, s.Value)
		}
		w.Cores = cluster.Milli(v*float64(cluster.Whole)/100 + 0.5)
	}
	if s := gangs.Stated(origins, AnnotationPrompt); s.Value != "" {
		if w.Prompt, err = strconv.ParseBool(s.Value); err != nil {
			return w, fmt.Errorf("%s: %q is neither true nor false", s.Where, s.Value)
		}
	}
	return w, nil
}

// convergeFor is how a gang's metric converges.
func trafficFor(origins []gangs.Origin) (cluster.Traffic, error) {
	s := gangs.Stated(origins, AnnotationTraffic)
	if s.Value == "" {
		return cluster.Traffic{}, nil
	}
	t, err := config.ParseTraffic(s.Value)
	if err != nil {
		return t, fmt.Errorf("%s: %w", s.Where, err)
	}
	return t, nil
}

func convergeFor(origins []gangs.Origin) (string, error) {
	s := gangs.Stated(origins, AnnotationConverge)
	if s.Value == "" {
		return "", nil
	}
	if _, err := perf.ParseConvergence(s.Value); err != nil {
		return "", fmt.Errorf("%s: %w", s.Where, err)
	}
	return s.Value, nil
}

// movesFor reads whether a gang may be moved, and how often it saves its work.
func movesFor(origins []gangs.Origin) (movable string, saves time.Duration, err error) {
	s := gangs.Stated(origins, AnnotationMovable)
	if s.Value != "" && s.Value != "true" && s.Value != "false" {
		return "", 0, fmt.Errorf("%s: %q is neither true nor false", s.Where, s.Value)
	}
	movable = s.Value
	if s = gangs.Stated(origins, AnnotationSaves); s.Value == "" {
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
