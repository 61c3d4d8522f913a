package reader

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/internal/controlplane"
	"github.com/muster-gpu/muster/kube/fit"
	"github.com/muster-gpu/muster/kube/fit/claims"
	"github.com/muster-gpu/muster/kube/fit/volumes"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/gangs"
	"github.com/muster-gpu/muster/kube/gpus"
	"github.com/muster-gpu/muster/kube/loans"
	"github.com/muster-gpu/muster/kube/mig"
	"github.com/muster-gpu/muster/kube/nodes"
	"github.com/muster-gpu/muster/kube/power"
	"github.com/muster-gpu/muster/kube/queues"
	"github.com/muster-gpu/muster/kube/terms"
)

// newReader reads gangs of a cluster with two nodes of eight GPUs, of which n0 has a disk.
func newReader(t *testing.T) *Reader {
	t.Helper()
	r := &Reader{Objects: gangs.NewObjects(), DefaultQueue: "rest", Lender: func(*v1.Pod) string { return "" },
		Queues: queues.New([]cluster.Queue{{Name: "rest"}, {Name: "lab"}}, "rest")}
	r.Claims = claims.New(nil, claims.Books{
		Part: func(p *fit.Neighbour) *claims.Pod { return &gang.PodOf(p).Claimed }})
	r.Volumes = volumes.New(volumes.Books{})
	r.GPUs = &gpus.Names{GPUs: []string{"nvidia.com/gpu"},
		Labels:    gpus.Labels{Stated: gpus.Stated{Product: "nvidia.com/gpu.product"}},
		Published: func(string) (int, string) { return 0, "" }}
	r.Rules = &terms.Rules{Labels: &r.GPUs.Labels}
	r.Fit = fit.NewNodes(r.GPUs)
	now := func() cluster.Time { return 0 }
	world := fit.NewWorld(append(fit.Neighbours(fit.Books{Besides: r.GPUs.Uncounted}), r.Volumes, r.Claims)...)
	r.Nodes = nodes.New(nodes.Options{GPUs: r.GPUs, Labels: &r.GPUs.Labels, Suits: r.Fit, World: world,
		Power: power.New(power.Options{Now: time.Now, LoopTime: now}),
		MIG:   mig.New(mig.Options{GPUs: r.GPUs, Now: time.Now, LoopTime: now}), Loans: loans.New(nil),
		Published: func(string) int { return 0 }, Claimed: func(string) int { return 0 }})
	r.Nodes.See(controlplane.Node("n0", 8, map[string]string{"disk": "yes"}))
	r.Nodes.See(controlplane.Node("n1", 8, nil))
	r.Nodes.Begin(&engine.Snapshot{}, false)
	return r
}

// gangOf is a gang of these pods, which were read.
func (r *Reader) gangOf(objs ...*v1.Pod) *gang.Gang {
	g := gang.New(&gangs.Claim{Key: "gang/default/g", Name: "default/g",
		Need: func(gangs.Gang) (gangs.Membership, error) { return gangs.Membership{Size: len(objs)}, nil }})
	for _, obj := range objs {
		obj.UID = types.UID(obj.Name)
		p := &gang.Pod{Gang: g}
		p.Obj, p.Record = obj, p
		r.Read(p)
		p.Read(r.Fit)
		g.Pods[obj.UID] = p
	}
	return g
}

// The job of a gang has the terms that its pods state, in a queue that the cluster has if they name none.
func TestSpec(t *testing.T) {
	r := newReader(t)
	for _, c := range []struct {
		more  map[string]string
		queue string
		tier  cluster.Tier
		saves time.Duration
	}{
		{nil, "rest", cluster.Standard, 0},
		{map[string]string{terms.LabelQueue: "lab", terms.LabelTier: "critical", "!" + terms.AnnotationSaves: "5m"},
			"lab", cluster.Critical, 5 * time.Minute},
	} {
		g := r.gangOf(controlplane.Gang("g", 3, 2, c.more)...)
		j, err := r.Spec(g, g.Sorted(), gangs.Membership{Size: 3})
		if err != nil {
			t.Fatal(err)
		}
		if j.Name != "default/g" || j.User != "default" || j.Queue != c.queue || j.Tier != c.tier ||
			j.Checkpoint.Interval != c.saves || len(j.Tasks) != 1 || j.Tasks[0].Count != 3 ||
			j.Tasks[0].Request.GPUs != 2 || j.Tasks[0].Request.CPU != 1000 {
			t.Errorf("%v: %+v", c.more, j)
		}
	}
	g := r.gangOf(controlplane.Pod("p", 1, map[string]string{terms.LabelTier: "best"}))
	_, err := r.Spec(g, g.Sorted(), gangs.Membership{Size: 1})
	if err == nil || !strings.Contains(err.Error(), "best") {
		t.Errorf("a tier that there is not: %v", err)
	}
}

// The facts of a gang are others if the engine's job of it would be another, and only then.
func TestFacts(t *testing.T) {
	r := newReader(t)
	of := func(gpus int, more map[string]string) uint64 {
		g := r.gangOf(controlplane.Gang("g", 2, gpus, more)...)
		return r.Facts(g, g.Sorted())
	}
	same := of(2, nil)
	for what, other := range map[string]uint64{"another tier": of(2, map[string]string{terms.LabelTier: "critical"}),
		"more GPUs": of(3, nil), "another queue": of(2, map[string]string{terms.LabelQueue: "lab"})} {
		if other == same {
			t.Errorf("%s: the same facts", what)
		}
	}
	if of(2, map[string]string{"app": "x"}) != same {
		t.Error("a label that says nothing to Muster changes the facts")
	}
}

// A gang suits the nodes that its pods select; one that no node suits has a job that would be there if one did.
func TestNodesFor(t *testing.T) {
	r := newReader(t)
	pod := func(disk string) *gang.Gang {
		obj := controlplane.Pod("p", 1, nil)
		if disk != "" {
			obj.Spec.NodeSelector = map[string]string{"disk": disk}
		}
		return r.gangOf(obj)
	}
	for disk, want := range map[string]string{"": "n0 n1", "yes": "n0", "large": ""} {
		g := pod(disk)
		s := r.NodesFor(g.Sorted())
		if got := strings.Join(s.Names, " "); got != want || (s.Why == "") != (want != "") {
			t.Errorf("disk %q: it suits %q (%s), not %q", disk, got, s.Why, want)
		}
		if j, _ := r.WouldBe(g, 1); (j != nil) != (want == "") {
			t.Errorf("disk %q: the job that it would be: %+v", disk, j)
		}
	}
	g := pod("")
	g.RefusedIn = 1
	if j, _ := r.WouldBe(g, 1); j == nil {
		t.Error("a gang that the engine refused in this epoch has no job that it would be")
	}
}

// What pods want of a GPU has to be said beside a resource by which they get one, and keys have to be understood.
func TestWants(t *testing.T) {
	r := newReader(t)
	g := r.gangOf(controlplane.Pod("p", 0, map[string]string{"!" + terms.AnnotationIsolation: "memory"}))
	if err := r.Wants(g, g.Sorted()); err == nil || !strings.Contains(err.Error(), "asks for no GPU") {
		t.Errorf("it wants a part of nothing: %v", err)
	}
	g = r.gangOf(controlplane.Pod("p", 1, map[string]string{"!" + terms.Prefix + "izolation": "memory"}))
	if err := r.CheckKeys(g, g.Sorted()); err == nil || !strings.Contains(err.Error(), "izolation") {
		t.Errorf("a key that there is not: %v", err)
	}
}
