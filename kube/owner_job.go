package kube

import (
	"fmt"
	"maps"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A Job of batch/v1 that is annotated muster.sh/gang: "true" is a gang of as
// many pods as it runs at a time. So is one that Kueue would admit as a whole
// (it has a queue of Kueue's), and one that KAI would start with several pods.
func jobGang(d *Driver, obj *v1.Pod) *claim {
	ref := owner(obj, "batch", "Job")
	if ref == nil || d.jobs[ref.UID] != nil && !isGang(d.jobs[ref.UID]) {
		return nil
	}
	uid := ref.UID
	return &claim{key: "job/" + string(uid), name: obj.Namespace + "/" + ref.Name, need: func(g *gang) (membership, error) {
		j := d.jobs[uid]
		if j == nil {
			return membership{}, fmt.Errorf("its Job is gone")
		}
		if s := j.Spec.Suspend; s != nil && *s {
			return membership{}, &suspendedError{"its Job " + j.Name}
		}
		m := membership{size: jobSize(&j.Spec, &j.Status), stated: parallelism(&j.Spec), submit: j.CreationTimestamp.Time}
		return m, minAvailable(g, &m, notNil(j.Annotations), kueueJobMin, kaiMinMember)
	}}
}

// isGang reports whether a Job wants its pods to be one gang.
func isGang(j *batchv1.Job) bool {
	switch j.Annotations[LabelGang] {
	case "true":
		return true
	case "":
		return j.Labels[kueueQueue] != "" || j.Annotations[kaiMinMember] != ""
	}
	return false
}

// jobSize is how many pods a Job runs at a time, of those that have yet to succeed.
func jobSize(spec *batchv1.JobSpec, status *batchv1.JobStatus) int {
	size := parallelism(spec)
	if c := spec.Completions; c != nil {
		size = min(size, int(*c-status.Succeeded))
	}
	return size
}

// parallelism is how many pods a Job runs at a time.
func parallelism(spec *batchv1.JobSpec) int {
	if spec.Parallelism == nil {
		return 1
	}
	return int(*spec.Parallelism)
}

func notNil(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}

// jobChanged books a Job; its pods may belong together now, and the other way
// round. What is bound stays what it is. Pods that came before their Job have
// waited for it, in what would be its gang.
func (d *Driver) jobChanged(j *batchv1.Job) {
	old := d.jobs[j.UID]
	d.jobs[j.UID] = j
	if up := ownerKey(j); up.kind != nil { // the gang may be of several Jobs
		if d.children[up] == nil {
			d.children[up] = map[types.UID]*batchv1.Job{}
		}
		d.children[up][j.UID] = j
		for g := range d.uses[up] {
			d.touch(g)
		}
	}
	g := d.gangs["job/"+string(j.UID)]
	switch {
	case old != nil && isGang(old) != isGang(j):
		for _, p := range d.pods {
			if ref := owner(p.obj, "batch", "Job"); ref != nil && ref.UID == j.UID {
				d.rejoin(p)
			}
		}
	case g != nil:
		d.regroup(g)
	case old != nil && !(maps.Equal(old.Labels, j.Labels) && maps.Equal(old.Annotations, j.Annotations)): // its pods are gangs of one, which look at it
		for _, p := range d.pods {
			if ref := owner(p.obj, "batch", "Job"); ref != nil && ref.UID == j.UID && p.gang != nil {
				d.touch(p.gang)
			}
		}
	}
}

// jobGone books that a Job is not there any more.
func (d *Driver) jobGone(j *batchv1.Job) {
	delete(d.jobs, j.UID)
	if up := ownerKey(j); up.kind != nil {
		if delete(d.children[up], j.UID); len(d.children[up]) == 0 {
			delete(d.children, up)
		}
		for g := range d.uses[up] {
			d.touch(g)
		}
	}
	if g := d.gangs["job/"+string(j.UID)]; g != nil {
		d.touch(g)
	}
}
