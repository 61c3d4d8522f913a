package kube

import (
	"encoding/json"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/muster-gpu/muster/cluster"
)

// needs is what of a pod depends on what else is on the nodes. Labels, taints and
// sizes of nodes are no part of it (suits, cluster.Request).
type needs struct {
	affinity, anti []term // required
	spread         []spread
	even           []spread // ... with ScheduleAnyway
	ports          []hostPort
	other          map[v1.ResourceName]int64 // besides CPU, memory and GPUs
	claims         []string                  // persistent volume claims
	inline         []*v1.Volume              // volumes that are attached, or are for one pod, without a claim
	devices        bool                      // resource claims
	replica        bool                      // one of a shared GPU
	err            error                     // a selector that cannot be read
	// serial: pods like it are in each other's way, so that where one may go is
	// known only when the one before it has its place.
	serial bool
}

// term is one required term of pod affinity or anti-affinity.
type term struct {
	spaces  []string        // namespaces of the pods that it means
	inSpace labels.Selector // ... and those that it selects; nil: none
	pods    labels.Selector
	key     string // label of nodes that makes a domain
}

// spread is one constraint of topology spread.
type spread struct {
	key            string
	pods           labels.Selector
	skew, domains  int // domains: at least so many, else the least counts as none; 0: any
	honourAffinity bool
	honourTaints   bool
	matches        bool // the pod counts itself
}

// hostPort is a port of the node that a pod takes.
type hostPort struct {
	ip, protocol string
	port         int32
}

// everywhere is the address that stands for all of a node's.
const everywhere = "0.0.0.0"

func (h hostPort) conflicts(o hostPort) bool {
	return h.port == o.port && h.protocol == o.protocol && (h.ip == o.ip || h.ip == everywhere || o.ip == everywhere)
}

// needsOf reads what a pod needs of its neighbours; nil: nothing.
func (d *Driver) needsOf(obj *v1.Pod, p *pod) *needs {
	n := &needs{ports: portsOf(obj), other: d.otherOf(obj, p), claims: claimsOf(obj), inline: inlineOf(obj), devices: len(obj.Spec.ResourceClaims) > 0, replica: p.replica.one}
	if a := obj.Spec.Affinity; a != nil {
		if p := a.PodAffinity; p != nil {
			n.affinity = n.terms(obj, p.RequiredDuringSchedulingIgnoredDuringExecution)
		}
		if p := a.PodAntiAffinity; p != nil {
			n.anti = n.terms(obj, p.RequiredDuringSchedulingIgnoredDuringExecution)
		}
	}
	for i := range obj.Spec.TopologySpreadConstraints {
		c := &obj.Spec.TopologySpreadConstraints[i]
		if s, ok := n.spreadOf(obj, c); ok && c.WhenUnsatisfiable == v1.DoNotSchedule {
			n.spread = append(n.spread, s)
		} else if ok {
			n.even = append(n.even, s)
		}
	}
	if n.affinity == nil && n.anti == nil && n.spread == nil && n.even == nil && n.ports == nil && n.other == nil && n.claims == nil && n.inline == nil && !n.devices && !n.replica {
		return nil
	}
	n.serial = len(n.ports) > 0 || sameDisk(n.inline, n.inline) || slices.ContainsFunc(slices.Concat(n.spread, n.even), func(s spread) bool { return s.matches }) ||
		slices.ContainsFunc(slices.Concat(n.anti, n.affinity), func(t term) bool { return t.own(obj) })
	return n
}

func (n *needs) terms(obj *v1.Pod, list []v1.PodAffinityTerm) (terms []term) {
	for i := range list {
		a := &list[i]
		t := term{spaces: a.Namespaces, key: a.TopologyKey}
		var err error
		if t.pods, err = selectorOf(obj, a.LabelSelector, a.MatchLabelKeys, a.MismatchLabelKeys); err != nil {
			n.err = fmt.Errorf("pod affinity: %w", err)
		}
		if a.NamespaceSelector != nil {
			if t.inSpace, err = metav1.LabelSelectorAsSelector(a.NamespaceSelector); err != nil {
				n.err = fmt.Errorf("pod affinity: namespaceSelector: %w", err)
			}
		} else if len(t.spaces) == 0 {
			t.spaces = []string{obj.Namespace}
		}
		terms = append(terms, t)
	}
	return terms
}

func (n *needs) spreadOf(obj *v1.Pod, c *v1.TopologySpreadConstraint) (s spread, ok bool) {
	s = spread{key: c.TopologyKey, skew: int(c.MaxSkew)}
	s.honourAffinity = c.NodeAffinityPolicy == nil || *c.NodeAffinityPolicy == v1.NodeInclusionPolicyHonor
	s.honourTaints = c.NodeTaintsPolicy != nil && *c.NodeTaintsPolicy == v1.NodeInclusionPolicyHonor
	if c.MinDomains != nil {
		s.domains = int(*c.MinDomains)
	}
	var err error
	if s.pods, err = selectorOf(obj, c.LabelSelector, c.MatchLabelKeys, nil); err != nil {
		n.err = fmt.Errorf("topologySpreadConstraints: %w", err)
		return s, false
	}
	if s.pods.Empty() { // kube-scheduler counts no pods for one that selects all
		s.pods = labels.Nothing()
	}
	s.matches = s.pods.Matches(labels.Set(obj.Labels))
	return s, true
}

// selectorOf is a label selector with the keys whose values have to be, or not
// to be, those of the pod itself. No selector selects nothing.
func selectorOf(obj *v1.Pod, sel *metav1.LabelSelector, same, other []string) (labels.Selector, error) {
	if sel == nil {
		return labels.Nothing(), nil
	}
	sel = sel.DeepCopy()
	add := func(keys []string, op metav1.LabelSelectorOperator) {
		for _, k := range keys {
			if v, ok := obj.Labels[k]; ok {
				sel.MatchExpressions = append(sel.MatchExpressions, metav1.LabelSelectorRequirement{Key: k, Operator: op, Values: []string{v}})
			}
		}
	}
	add(same, metav1.LabelSelectorOpIn)
	add(other, metav1.LabelSelectorOpNotIn)
	return metav1.LabelSelectorAsSelector(sel)
}

// own reports whether the term means the pod itself. Namespaces that it selects
// by label are not looked at: then pods go one after the other, which is right
// either way.
func (t *term) own(obj *v1.Pod) bool {
	return t.pods.Matches(labels.Set(obj.Labels)) && (t.inSpace != nil || slices.Contains(t.spaces, obj.Namespace))
}

// means reports whether a term is about a pod.
func (d *Driver) means(t *term, obj *v1.Pod) bool {
	return t.pods.Matches(labels.Set(obj.Labels)) &&
		(slices.Contains(t.spaces, obj.Namespace) || t.inSpace != nil && t.inSpace.Matches(labels.Set(d.spaces[obj.Namespace])))
}

func portsOf(obj *v1.Pod) (list []hostPort) {
	containers := obj.Spec.Containers
	for i := range obj.Spec.InitContainers { // those that go on beside the others
		if c := &obj.Spec.InitContainers[i]; c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways {
			containers = append(slices.Clip(containers), *c)
		}
	}
	for i := range containers {
		for _, p := range containers[i].Ports {
			if p.HostPort == 0 {
				continue
			}
			h := hostPort{ip: p.HostIP, protocol: string(p.Protocol), port: p.HostPort}
			if h.ip == "" {
				h.ip = everywhere
			}
			if h.protocol == "" {
				h.protocol = string(v1.ProtocolTCP)
			}
			list = append(list, h)
		}
	}
	return list
}

// otherOf is what a pod asks for that the engine does not count.
func (d *Driver) otherOf(obj *v1.Pod, p *pod) (list map[v1.ResourceName]int64) {
	for name, q := range requestsOf(obj) {
		if d.counted(name) || countOf(&q) == 0 || d.isSlice(&p.request, name) || p.replica.one && name == p.replica.name {
			continue
		}
		if list == nil {
			list = map[v1.ResourceName]int64{}
		}
		list[name] = countOf(&q)
	}
	return list
}

// isSlice reports whether a resource is the slice that a request is for.
func (d *Driver) isSlice(r *cluster.Request, name v1.ResourceName) bool {
	profile, ok := d.sliceOf(name)
	return ok && profile == r.Profile
}

// counted reports whether the engine counts a resource.
func (d *Driver) counted(name v1.ResourceName) bool {
	return name == v1.ResourceCPU || name == v1.ResourceMemory || slices.Contains(d.opt.GPUs, string(name))
}

// aroundKey is what of a pod decides where its neighbours let it run, as text.
func aroundKey(obj *v1.Pod) string {
	s := &obj.Spec
	text, err := json.Marshal([]any{obj.Namespace, obj.Labels, s.NodeSelector, s.Affinity, s.Tolerations, s.TopologySpreadConstraints, s.Volumes})
	if err != nil {
		panic(err) // it came as JSON
	}
	return string(text)
}
