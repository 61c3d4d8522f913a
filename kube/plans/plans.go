// Package plans is what a scheduler writes on pods for its successor: where their gang is, and what it received in
// earlier runs, each under a seal.
package plans

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/internal/oldkeys"
	"github.com/muster-gpu/muster/kube/patch"
	"github.com/muster-gpu/muster/kube/terms"
)

// A plan on a pod is a claim until it is checked. What a bound pod holds - its node, and what its specification and
// its status ask for - is a fact, and all that a plan without a valid seal can do is to say which task such a pod is.
// Places that no pod has are kept only by a sealed plan, and no more of them than the gang's size leaves open.

// Plan is where a gang is, as every pod of it carries it.
type Plan struct {
	Names int               `json:"names"` // oldkeys.Current of the scheduler that wrote it
	Tasks []cluster.TaskSet `json:"tasks"`
	On    []On              `json:"on"`
	// how often the gang was repaired: the plan with more counts
	Repair int     `json:"repair,omitempty"`
	Before *Before `json:"given_before,omitempty"` // what it was given before this start; nil: nothing
	Alone  bool    `json:"joined_late,omitempty"`  // it started after its gang, which did not need it
}

// On is how many tasks of a set are on a node.
type On struct {
	Node  string `json:"node"`
	Set   int    `json:"set,omitempty"`
	Tasks int    `json:"tasks"`
}

// Text is the plan as pods carry it.
func (p *Plan) Text() string {
	p.Names = oldkeys.Current
	return string(patch.JSON(p))
}

// Put adds a task of a set on a node.
func (p *Plan) Put(node string, set int) {
	i := slices.IndexFunc(p.On, func(on On) bool { return on.Node == node && on.Set == set })
	if i < 0 {
		i, p.On = len(p.On), append(p.On, On{Node: node, Set: set})
	}
	p.On[i].Tasks++
}

// Of reads the plan that a pod carries; nil: it has none that makes sense.
func Of(obj *v1.Pod) *Plan {
	text := obj.Annotations[terms.AnnotationPlan]
	if text == "" {
		return nil
	}
	var p Plan
	if oldkeys.Unmarshal(oldkeys.Plan, []byte(text), &p) != nil || len(p.Tasks) == 0 || len(p.On) == 0 || p.Repair < 0 {
		return nil
	}
	count := make([]int, len(p.Tasks))
	for _, on := range p.On {
		if on.Set < 0 || on.Set >= len(p.Tasks) || on.Tasks < 1 || on.Tasks > cluster.MaxTasks || on.Node == "" {
			return nil
		}
		count[on.Set] += on.Tasks
	}
	for i := range p.Tasks {
		if count[i] != p.Tasks[i].Count {
			return nil
		}
	}
	if engine.CheckTasks(&cluster.Job{Tasks: p.Tasks}) != "" {
		return nil
	}
	return &p
}

// Before is what a gang received in earlier runs.
type Before struct {
	Names int `json:"names,omitempty"` // oldkeys.Current of the scheduler that wrote it; 0 in a plan, which says it
	engine.Carryover
	Submit cluster.Time  `json:"submit"`         // of its first pods
	Work   time.Duration `json:"work,omitempty"` // all of its work, as its progress told; 0: that did not
}

// Text is that as pods carry it that wait.
func (b Before) Text() string {
	b.Names = oldkeys.Current
	return string(patch.JSON(b))
}

// BeforeOf reads what a pod carries that waits; nil: nothing that makes sense, or that a scheduler wrote.
func (k Key) BeforeOf(obj *v1.Pod) *Before {
	var b Before
	text := obj.Annotations[terms.AnnotationBefore]
	if text == "" || oldkeys.Unmarshal(oldkeys.Given, []byte(text), &b) != nil || b.Submit < 0 {
		return nil
	}
	if !k.Holds(obj, terms.AnnotationBefore) {
		return nil
	}
	return &b
}

// SetEstimate takes over how much work a gang is, as its progress told: what is done of it counts by that.
func (b *Before) SetEstimate(spec *cluster.Job) {
	if b.Work > 0 && b.Work <= cluster.MaxDuration {
		spec.Estimate = b.Work
	}
}

// Resume books in the record of a gang that is found bound what it was given before its
// pods were bound, as their plan says; false: that says nothing.
func (b *Before) Resume(r *engine.JobRecord, now cluster.Time) bool {
	if b == nil || b.Submit < 0 || !b.To(r, now) {
		return false
	}
	r.Spec.Submit = min(r.Spec.Submit, b.Submit)
	b.SetEstimate(r.Spec)
	return true
}
