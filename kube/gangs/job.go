package gangs

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A Job of batch/v1 that is annotated muster.sh/gang: "true" is a gang of as
// many pods as it runs at a time. So is one that Kueue would admit as a whole
// (it has a queue of Kueue's), and one that KAI would start with several pods.
func jobGang(all *Objects, obj *v1.Pod) *Claim {
	ref := Owner(obj, "batch", "Job")
	if ref == nil || all.jobs[ref.UID] != nil && !IsGang(all.jobs[ref.UID]) {
		return nil
	}
	uid := ref.UID
	return &Claim{Key: JobKey(uid), Name: obj.Namespace + "/" + ref.Name, Need: func(g Gang) (Membership, error) {
		j := all.jobs[uid]
		if j == nil {
			return Membership{}, fmt.Errorf("its Job is gone")
		}
		if s := j.Spec.Suspend; s != nil && *s {
			return Membership{}, &suspendedError{"its Job " + j.Name}
		}
		m := Membership{Size: jobSize(&j.Spec, &j.Status), stated: parallelism(&j.Spec),
			Submit: j.CreationTimestamp.Time}
		return m, minAvailable(g, &m, notNil(j.Annotations), kueueJobMin, kaiMinMember)
	}}
}

// IsGang reports whether a Job wants its pods to be one gang.
func IsGang(j *batchv1.Job) bool {
	switch j.Annotations[Label] {
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

// JobKey is the key of the gang that the pods of a Job are.
func JobKey(uid types.UID) string { return "job/" + string(uid) }

func notNil(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}
