package gangs

import (
	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
)

// A RayCluster (ray.io/v1, KubeRay 1.4) is a gang of its head and of the workers
// that it has at least: all of them, or with autoscaling minReplicas of each
// group. Workers beyond these start one by one, and so do all workers of one pod
// where Muster scales the RayService: those that leave keep no place. RayJobs
// and RayServices make RayClusters; these have the annotations of their RayService.
var (
	rayClusterKind = &Kind{Group: "ray.io", Name: "RayCluster", Resource: "rayclusters", Versions: []string{"v1"}}
	rayJobKind     = &Kind{Group: "ray.io", Name: "RayJob", Resource: "rayjobs", Versions: []string{"v1"}}
	rayServiceKind = &Kind{Group: "ray.io", Name: "RayService", Resource: "rayservices", Versions: []string{"v1"}}
)

const (
	rayCluster = "ray.io/cluster"
	rayType    = "ray.io/node-type" // head or worker
	rayGroup   = "ray.io/group"
)

func rayGang(all *Objects, obj *v1.Pod) *Claim {
	name := obj.Labels[rayCluster]
	if name == "" || obj.Labels[rayType] == "" {
		return nil
	}
	key := rayClusterKind.In(obj.Namespace, name)
	o, kind := all.objects[key], cluster.Training
	if o != nil && OwnerKey(o).Kind == rayServiceKind {
		kind = cluster.Service
	}
	if o == nil && !all.readable[rayClusterKind] || o != nil && o.GetAnnotations()[Label] == "false" {
		return Alone(obj, key, kind) // nothing says how many they are, or people do not want it
	}
	return &Claim{Key: "ray/" + obj.Namespace + "/" + name, Name: obj.Namespace + "/" + name, Object: key, Kind: kind,
		Need: func(g Gang) (Membership, error) { return all.rayNeed(g, key) }}
}

func (all *Objects) rayNeed(g Gang, key Key) (Membership, error) {
	o, err := all.whole(g, key)
	if err != nil {
		return Membership{}, err
	}
	if flagOf(o.Object, "spec", "suspend") {
		return Membership{}, &suspendedError{"its " + key.String()}
	}
	roles := []Role{{"head", 1}}
	scaled := flagOf(o.Object, "spec", "enableInTreeAutoscaling")
	served := OwnerKey(o).Kind == rayServiceKind && o.GetAnnotations()[Service] != ""
	for _, w := range listOf(o.Object, "spec", "workerGroupSpecs") {
		if flagOf(w, "suspend") {
			continue
		}
		least := numberOf(w, 0, "minReplicas")
		n := min(max(least, numberOf(w, least, "replicas")), max(least, numberOf(w, 1<<30, "maxReplicas")))
		if scaled {
			n = least
		}
		hosts := numberOf(w, 1, "numOfHosts")
		if served && hosts == 1 {
			n = 0
		}
		roles = append(roles, Role{textOf(w, "groupName"), n * hosts})
	}
	m := roled(roles, func(p *v1.Pod) string {
		if p.Labels[rayType] == "head" {
			return "head"
		}
		return p.Labels[rayGroup]
	})
	m.Open, m.Submit = true, o.GetCreationTimestamp().Time
	return m, minAvailable(g, &m, notNil(o.GetAnnotations()))
}
