package kube

import (
	"fmt"
	"math/rand/v2"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/muster-gpu/muster/internal/controlplane"
)

// testLift: on the same random clusters, full of pods of a lower priority that are in its
// way in all sorts of manners, the real kube-scheduler finds a place for a pod if and only
// if Muster does, unless pods on several nodes have to leave; and where Muster has it be,
// kube-scheduler says that it may be beside those that stayed.
func testLift(b *bench) {
	zones := []string{"z0", "z0", "z1"}
	for i, zone := range zones {
		n := controlplane.Node(fmt.Sprint("n", i), 2, map[string]string{"zone": zone})
		n.Status.Allocatable["example.com/hca"] = resource.MustParse("1")
		if i == 2 {
			n.Status.Allocatable[v1.ResourcePods] = resource.MustParse("2")
		}
		if _, err := b.c.CoreV1().Nodes().Create(b.ctx, n, metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	b.nodesReady()
	_, stop := b.schedule()
	defer stop()
	lifted, free, no, more := 0, 0, 0, 0
	rounds := 4 * differentialRounds(b.T)
	for seed := range rounds {
		r := rand.New(rand.NewPCG(uint64(seed), 0x6c696674))
		var low []*v1.Pod
		equals := r.IntN(3)
		for i := range equals + 5 + r.IntN(4) {
			class := "test-low"
			if i < equals { // they come first and stay
				class = "test-high"
			}
			low = append(low, at(contender(r, fmt.Sprint("there-", i), class, 3), fmt.Sprint("n", r.IntN(3))))
		}
		high := contender(r, "high", "test-high", 1)
		theirs, _ := b.contest("default-scheduler", low, high)
		b.clearPods()
		ours, left := b.contest("muster", low, high)
		// kube-scheduler looks on one node at a time for pods that might leave, and Muster on all.
		beyond := slices.ContainsFunc(left, func(node string) bool { return node != ours })
		switch {
		case (theirs == "") != (ours == "") && !(theirs == "" && beyond):
			b.Errorf("seed %d: kube-scheduler places it on %q; Muster on %q; the pod %s, and those that are there %s",
				seed, theirs, ours, asText(high), texts(low))
		case theirs == "" && ours != "":
			more++
		case ours == "":
			no++
		case len(left) == 0:
			free++
		default:
			lifted++
		}
		if ours != "" {
			b.mayStay(high)
		}
		b.clearPods()
	}
	b.Logf("%d pods had a place, for %d others left, %d found none: both schedulers agreed; for %d others left on several nodes", free, lifted, no, more)
	if least := max(1, rounds/6); lifted < least || no+free < least {
		b.Errorf("others left for %d, and not for %d: the generator has lost its balance", lifted, no+free)
	}
}

func texts(pods []*v1.Pod) (text string) {
	for _, p := range pods {
		text += asText(p) + "\n"
	}
	return text
}

// contender is a pod that may be in the way of others, or they in its; one in so many wants
// this or that.
func contender(r *rand.Rand, name, class string, odds int) *v1.Pod {
	p := controlplane.Pod(name, r.IntN(2), map[string]string{"app": apps[r.IntN(2)]})
	p.Spec.PriorityClassName = class
	if key := []string{v1.LabelHostname, "zone"}[r.IntN(2)]; r.IntN(odds) == 0 {
		away(apps[r.IntN(2)], key, p)
	}
	if r.IntN(2*odds) == 0 {
		onPort(p)
	}
	if r.IntN(2*odds) == 0 {
		p.Spec.Containers[0].Resources.Limits = plusOne(p.Spec.Containers[0].Resources.Limits, "example.com/hca")
		asking(p, "example.com/hca", "1")
	}
	if key := []string{v1.LabelHostname, "zone"}[r.IntN(2)]; odds == 1 && r.IntN(2) == 0 {
		p.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{
			{MaxSkew: 1, TopologyKey: key, WhenUnsatisfiable: v1.DoNotSchedule,
				LabelSelector:      &metav1.LabelSelector{MatchLabels: map[string]string{"app": apps[r.IntN(2)]}},
				NodeAffinityPolicy: ptr.To(v1.NodeInclusionPolicyIgnore)}}
	}
	return p
}

// plusOne adds one of a resource to a list.
func plusOne(list v1.ResourceList, name v1.ResourceName) v1.ResourceList {
	if list == nil {
		list = v1.ResourceList{}
	}
	list[name] = resource.MustParse("1")
	return list
}

// contest lets pods come under a scheduler, those that find a place stay, and then one of
// a higher priority: where it is, and on which nodes others left.
func (b *bench) contest(scheduler string, low []*v1.Pod, high *v1.Pod) (at string, left []string) {
	b.Helper()
	under := func(p *v1.Pod) *v1.Pod {
		p = p.DeepCopy()
		p.Spec.SchedulerName = scheduler
		return p
	}
	judge := func(p *v1.Pod) (node string) {
		b.create(p)
		b.wait(scheduler+" judges "+p.Name, func() bool {
			now := b.podIn(p)
			if node = now.Spec.NodeName; node == "" && scheduler == "default-scheduler" {
				node = now.Status.NominatedNodeName // now and then it does not notice that all have left for it
			}
			return node != "" ||
				condition(now).Status == v1.ConditionFalse && now.Status.NominatedNodeName == "" && b.settled()
		})
		return node
	}
	there := map[string]string{}
	for _, p := range low {
		if node := judge(under(p)); node != "" {
			there[p.Name] = node
		} else {
			b.gone(under(p))
		}
	}
	at = judge(under(high))
	for name, node := range there {
		p, err := b.c.CoreV1().Pods("default").Get(b.ctx, name, metav1.GetOptions{})
		if err != nil || p.DeletionTimestamp != nil {
			left = append(left, node)
		}
	}
	return at, left
}

// settled reports whether no pod is told to leave.
func (b *bench) settled() bool {
	return !slices.ContainsFunc(b.pods(), func(p v1.Pod) bool { return p.DeletionTimestamp != nil })
}

// mayStay asks kube-scheduler whether a pod may be where it is; it may not preempt
// any pod for that.
func (b *bench) mayStay(high *v1.Pod) {
	b.Helper()
	node := b.podIn(high).Spec.NodeName
	b.gone(high)
	p := oracle(high, "high-at")
	p.Spec.PriorityClassName = "test-low"
	pin(p, node)
	b.create(p)
	b.wait(fmt.Sprintf("kube-scheduler binds %s to %s, as Muster did", asText(high), node), func() bool {
		return b.podIn(p).Spec.NodeName != ""
	})
}
