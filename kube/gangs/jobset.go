package gangs

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
	jobSetKind   = &Kind{Group: "jobset.x-k8s.io", Name: "JobSet", Resource: "jobsets", Versions: []string{"v1alpha2"}}
	trainJobKind = &Kind{Group: "trainer.kubeflow.org", Name: "TrainJob", Resource: "trainjobs",
		Versions: []string{"v1alpha1"}}
)

// What the JobSet controller writes on pods (v0.8 to v0.10).
const (
	jobSetName       = "jobset.sigs.k8s.io/jobset-name"
	jobSetReplicated = "jobset.sigs.k8s.io/replicatedjob-name"
	jobSetReplicas   = "jobset.sigs.k8s.io/replicatedjob-replicas"
)

func jobSetGang(all *Objects, obj *v1.Pod) *Claim {
	name, part := obj.Labels[jobSetName], obj.Labels[jobSetReplicated]
	if name == "" || part == "" || Owner(obj, "batch", "Job") == nil {
		return nil
	}
	key := jobSetKind.In(obj.Namespace, name)
	o := all.objects[key]
	if o != nil && o.GetAnnotations()[Label] == "false" {
		return Alone(obj, key, 0)
	}
	c := &Claim{Key: "jobset/" + obj.Namespace + "/" + name, Name: obj.Namespace + "/" + name, Object: key}
	if o == nil && !all.readable[jobSetKind] || o != nil && staged(o.Object, part) {
		c.Key, c.Name = c.Key+"/"+part, c.Name+"-"+part
	} else {
		part = ""
	}
	c.Need = func(g Gang) (Membership, error) { return all.jobSetNeed(g, key, part) }
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
func (all *Objects) jobSetNeed(g Gang, key Key, part string) (Membership, error) {
	o, err := all.object(g, key)
	switch {
	case err != nil:
		return Membership{}, err
	case o == nil:
		return all.jobSetByLabels(g)
	case flagOf(o.Object, "spec", "suspend"):
		return Membership{}, &suspendedError{"its " + key.String()}
	}
	m := Membership{Submit: o.GetCreationTimestamp().Time}
	for _, r := range listOf(o.Object, "spec", "replicatedJobs") {
		name := textOf(r, "name")
		if part == "" && staged(o.Object, name) || part != "" && part != name {
			continue
		}
		per := numberOf(r, 1, "template", "spec", "parallelism")
		per = min(per, numberOf(r, per, "template", "spec", "completions"))
		m.Size += per * numberOf(r, 1, "replicas")
		for _, j := range all.children[key] {
			if j.Labels[jobSetReplicated] == name && j.DeletionTimestamp == nil {
				m.Size -= per - max(0, jobLeft(j))
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
func (all *Objects) jobSetByLabels(g Gang) (Membership, error) {
	list := g.Members()
	if len(list) == 0 {
		return Membership{Size: 1}, nil
	}
	obj := list[0]
	n, err := strconv.Atoi(obj.Labels[jobSetReplicas])
	if err != nil || n < 1 {
		return Membership{},
			fmt.Errorf("pod %s: label %s: %q is not a number of Jobs", obj.Name, jobSetReplicas,
				obj.Labels[jobSetReplicas])
	}
	m := Membership{}
	jobs := map[string]int{}
	for _, p := range list {
		ref := Owner(p, "batch", "Job")
		if j := all.jobs[ref.UID]; j != nil && j.DeletionTimestamp == nil {
			jobs[j.Name] = jobLeft(j)
		}
	}
	if len(jobs) < n {
		return Membership{}, fmt.Errorf("%d of its %d Jobs have pods", len(jobs), n)
	}
	for _, left := range jobs {
		m.Size += left
	}
	return m, nil
}
