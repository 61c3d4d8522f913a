package kube

import (
	"fmt"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
)

// A JobSet (jobset.x-k8s.io/v1alpha2) is one gang of all its Jobs, and so is a
// TrainJob of Kubeflow Trainer (v2), which makes a JobSet. Jobs that the JobSet
// creates only when others are ready or complete (dependsOn, startupPolicy
// InOrder) cannot wait for these in one gang: each such ReplicatedJob is a gang
// of its own.
var (
	jobSetKind   = &objectKind{group: "jobset.x-k8s.io", kind: "JobSet", resource: "jobsets", versions: []string{"v1alpha2"}}
	trainJobKind = &objectKind{group: "trainer.kubeflow.org", kind: "TrainJob", resource: "trainjobs", versions: []string{"v1alpha1"}}
)

// What the JobSet controller writes on pods (v0.8 to v0.10).
const (
	jobSetName       = "jobset.sigs.k8s.io/jobset-name"
	jobSetReplicated = "jobset.sigs.k8s.io/replicatedjob-name"
	jobSetReplicas   = "jobset.sigs.k8s.io/replicatedjob-replicas"
)

func jobSetGang(d *Driver, obj *v1.Pod) *claim {
	name, part := obj.Labels[jobSetName], obj.Labels[jobSetReplicated]
	if name == "" || part == "" || owner(obj, "batch", "Job") == nil {
		return nil
	}
	key := jobSetKind.in(obj.Namespace, name)
	o := d.objects[key]
	if o != nil && o.GetAnnotations()[LabelGang] == "false" {
		return alone(obj, key, 0)
	}
	c := &claim{key: "jobset/" + obj.Namespace + "/" + name, name: obj.Namespace + "/" + name, object: key}
	if o == nil && !d.readable[jobSetKind] || o != nil && staged(o.Object, part) {
		c.key, c.name = c.key+"/"+part, c.name+"-"+part
	} else {
		part = ""
	}
	c.need = func(g *gang) (membership, error) { return d.jobSetNeed(g, key, part) }
	return c
}

// staged reports whether a ReplicatedJob is created later than others.
func staged(o map[string]any, part string) bool {
	if textOf(o, "spec", "startupPolicy", "startupPolicyOrder") == "InOrder" {
		return true
	}
	for _, r := range listOf(o, "spec", "replicatedJobs") {
		if textOf(r, "name") == part {
			return len(listOf(r, "dependsOn")) > 0
		}
	}
	return false
}

// jobSetNeed counts the pods of a JobSet, or of a part of it: of Jobs that are
// not created yet, too, but not those that have succeeded.
func (d *Driver) jobSetNeed(g *gang, key objKey, part string) (membership, error) {
	o, err := d.object(g, key)
	switch {
	case err != nil:
		return membership{}, err
	case o == nil:
		return d.jobSetByLabels(g)
	case flagOf(o.Object, "spec", "suspend"):
		return membership{}, &suspendedError{"its " + key.String()}
	}
	m := membership{submit: o.GetCreationTimestamp().Time}
	for _, r := range listOf(o.Object, "spec", "replicatedJobs") {
		name := textOf(r, "name")
		if part == "" && staged(o.Object, name) || part != "" && part != name {
			continue
		}
		per := numberOf(r, 1, "template", "spec", "parallelism")
		per = min(per, numberOf(r, per, "template", "spec", "completions"))
		m.size += per * numberOf(r, 1, "replicas")
		for _, j := range d.children[key] {
			if j.Labels[jobSetReplicated] == name && j.DeletionTimestamp == nil {
				m.size -= per - max(0, jobLeft(j))
			}
		}
	}
	return m, minAvailable(g, &m, notNil(o.GetAnnotations()), kaiMinMember)
}

// jobLeft is how many pods a Job still has to run; none if it is over.
func jobLeft(j *batchv1.Job) int {
	for _, c := range j.Status.Conditions {
		if c.Status == v1.ConditionTrue && (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) {
			return 0
		}
	}
	return jobSize(&j.Spec, &j.Status)
}

// jobSetByLabels counts the pods of a ReplicatedJob without its JobSet: every
// pod says how many Jobs they are, and every Job how many pods.
func (d *Driver) jobSetByLabels(g *gang) (membership, error) {
	list := g.sorted()
	if len(list) == 0 {
		return membership{size: 1}, nil
	}
	obj := list[0].obj
	n, err := strconv.Atoi(obj.Labels[jobSetReplicas])
	if err != nil || n < 1 {
		return membership{}, fmt.Errorf("pod %s: label %s: %q is not a number of Jobs", obj.Name, jobSetReplicas, obj.Labels[jobSetReplicas])
	}
	m := membership{}
	jobs := map[string]int{}
	for _, p := range list {
		ref := owner(p.obj, "batch", "Job")
		if j := d.jobs[ref.UID]; j != nil && j.DeletionTimestamp == nil {
			jobs[j.Name] = jobLeft(j)
		}
	}
	if len(jobs) < n {
		return membership{}, fmt.Errorf("%d of its %d Jobs have pods", len(jobs), n)
	}
	for _, left := range jobs {
		m.size += left
	}
	return m, nil
}
