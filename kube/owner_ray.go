package kube

import (
	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
)

// A RayCluster (ray.io/v1, KubeRay 1.4) is a gang of its head and of the workers
// that it has at least: all of them, or with autoscaling minReplicas of each
// group. Workers beyond these start one by one. RayJobs and RayServices make
// RayClusters.
var (
	rayClusterKind = &objectKind{group: "ray.io", kind: "RayCluster", resource: "rayclusters", versions: []string{"v1"}}
	rayJobKind     = &objectKind{group: "ray.io", kind: "RayJob", resource: "rayjobs", versions: []string{"v1"}}
	rayServiceKind = &objectKind{group: "ray.io", kind: "RayService", resource: "rayservices", versions: []string{"v1"}}
)

const (
	rayCluster = "ray.io/cluster"
	rayType    = "ray.io/node-type" // head or worker
	rayGroup   = "ray.io/group"
)

func rayGang(d *Driver, obj *v1.Pod) *claim {
	name := obj.Labels[rayCluster]
	if name == "" || obj.Labels[rayType] == "" {
		return nil
	}
	key := rayClusterKind.in(obj.Namespace, name)
	o, kind := d.objects[key], cluster.Training
	if o != nil && ownerKey(o).kind == rayServiceKind {
		kind = cluster.Service
	}
	if o == nil && !d.readable[rayClusterKind] || o != nil && o.GetAnnotations()[LabelGang] == "false" {
		return alone(obj, key, kind) // nothing says how many they are, or somebody does not want it
	}
	return &claim{key: "ray/" + obj.Namespace + "/" + name, name: obj.Namespace + "/" + name, object: key, kind: kind,
		need: func(g *gang) (membership, error) { return d.rayNeed(g, key) }}
}

func (d *Driver) rayNeed(g *gang, key objKey) (membership, error) {
	o, err := d.whole(g, key)
	if err != nil {
		return membership{}, err
	}
	if flagOf(o.Object, "spec", "suspend") {
		return membership{}, &suspendedError{"its " + key.String()}
	}
	roles := []role{{"head", 1}}
	scaled := flagOf(o.Object, "spec", "enableInTreeAutoscaling")
	for _, w := range listOf(o.Object, "spec", "workerGroupSpecs") {
		if flagOf(w, "suspend") {
			continue
		}
		least := numberOf(w, 0, "minReplicas")
		n := min(max(least, numberOf(w, least, "replicas")), max(least, numberOf(w, 1<<30, "maxReplicas")))
		if scaled {
			n = least
		}
		roles = append(roles, role{textOf(w, "groupName"), n * numberOf(w, 1, "numOfHosts")})
	}
	m := roled(roles, func(p *v1.Pod) string {
		if p.Labels[rayType] == "head" {
			return "head"
		}
		return p.Labels[rayGroup]
	})
	m.open, m.submit = true, o.GetCreationTimestamp().Time
	return m, minAvailable(g, &m, notNil(o.GetAnnotations()))
}
