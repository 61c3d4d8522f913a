package kube

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/kube/gangs"
)

// A pod asks for resources by name, and a scheduler cannot make others of them: a replica
// stays a replica. So what it needs besides - to be kept apart from others, memory, a part
// of the compute - chooses among the nodes that have what it names: a replica is enough
// where a share would be on a machine that shares its GPUs as that node does
// (cluster.Ways.Choose); MIG slices and whole GPUs keep apart whatever is wanted.

// want is what a pod needs of each of its GPUs, or parts of them.
type want struct {
	isolation cluster.Isolation
	memory    cluster.MiB   // 0: any
	cores     cluster.Milli // of a GPU's compute; 0: any
	prompt    bool          // it cannot wait while others have their turns
}

// wantFor reads it.
func wantFor(who []gangs.Speaker) (w want, err error) {
	if s := gangs.Stated(who, AnnotationIsolation); s.Value != "" {
		if w.isolation, err = cluster.ParseIsolation(s.Value); err != nil {
			return w, fmt.Errorf("%s: %w", s.Where, err)
		}
	}
	if s := gangs.Stated(who, AnnotationMemory); s.Value != "" {
		if w.memory, err = config.ParseMemory(s.Value); err == nil && w.memory == 0 {
			err = errors.New("it has to be above 0")
		}
		if err != nil {
			return w, fmt.Errorf("%s: %w", s.Where, err)
		}
	}
	if s := gangs.Stated(who, AnnotationCores); s.Value != "" {
		v, err := strconv.ParseFloat(strings.TrimSuffix(s.Value, "%"), 64)
		if err != nil || !strings.HasSuffix(s.Value, "%") || !(v > 0 && v <= 100) {
			return w, fmt.Errorf("%s: %q is not a part of a GPU's compute such as 30%%", s.Where, s.Value)
		}
		w.cores = cluster.Milli(v*float64(cluster.Whole)/100 + 0.5)
	}
	if s := gangs.Stated(who, AnnotationPrompt); s.Value != "" {
		if w.prompt, err = strconv.ParseBool(s.Value); err != nil {
			return w, fmt.Errorf("%s: %q is neither true nor false", s.Where, s.Value)
		}
	}
	return w, nil
}

// text says what is wanted; "": nothing is.
func (w *want) text() string {
	var list []string
	if w.isolation != cluster.Open {
		list = append(list, "isolation "+w.isolation.String())
	}
	if w.prompt {
		list = append(list, "a pod that cannot wait for turns")
	}
	if w.memory > 0 {
		list = append(list, fmt.Sprintf("%d MiB of GPU memory", w.memory))
	}
	if w.cores > 0 {
		list = append(list, fmt.Sprintf("%d %% of a GPU's compute", (w.cores+5)/10))
	}
	return strings.Join(list, ", ")
}

// wants tells the pods of a gang what the gang wants. An error says that it makes no sense.
func (d *Driver) wants(g *gang, pods []*pod) error {
	w, err := d.tellWant(g, pods)
	if err != nil {
		return err
	}
	if w != (want{}) && !slices.ContainsFunc(pods, d.hasGPU) {
		return fmt.Errorf("it wants %s and asks for no GPU: which resource it gets a GPU by, its pod has to say; there are %s", w.text(), d.offers())
	}
	return nil
}

// tellWant tells the pods, no more.
func (d *Driver) tellWant(g *gang, pods []*pod) (w want, err error) {
	t, err := d.terms(g, pods[0].obj)
	if err != nil {
		return w, err
	}
	for _, p := range pods {
		was := p.want
		p.want = t.want
		p.sign()
		if was != p.want && p.claimed.known { // what its claims count for may be another
			p.claimed.known = false
			if d.resolve(p); p.claimed.lacks != "" {
				return w, fmt.Errorf("pod %s: %s", p.obj.Name, p.claimed.lacks)
			}
		}
	}
	return t.want, nil
}

// hasGPU reports whether a pod asks for GPUs or parts of them, by whatever name.
func (d *Driver) hasGPU(p *pod) bool {
	if p.request.GPUs > 0 || p.replica.name != "" || len(p.obj.Spec.ResourceClaims) > 0 {
		return true
	}
	sum := requestsOf(p.obj)
	return len(d.slicesOf(sum)) > 0 || d.slicesShared(sum) != ""
}

// slicesShared names replicas of MIG slices in a list; "": there are none.
func (d *Driver) slicesShared(list v1.ResourceList) (found v1.ResourceName) {
	for name, q := range list {
		if base, ok := strings.CutSuffix(string(name), sharedSuffix); ok && !q.IsZero() {
			if _, slice := d.sliceOf(v1.ResourceName(base)); slice && (found == "" || name < found) {
				found = name
			}
		}
	}
	return found
}

// waysOf is how a node shares its GPUs, if it does, and of what model they are, with the
// memory that its label says.
func (d *Driver) waysOf(n *node) (w cluster.Ways) {
	l := n.obj.Labels
	name := d.modelOf(n, 1)
	w.Model, _ = cluster.FindModel(name)
	w.Model.Name, w.Model.Memory = name, cmp.Or(memoryLabel(l[d.opt.Labels.Memory]), w.Model.Memory)
	if how := l[d.opt.Labels.Sharing]; how == cluster.MPS.String() || how == "" && l[mpsCapable] == "true" {
		w.Sharing = cluster.MPS
	}
	return w
}

// mpsCapable is a label of GPU feature discovery's: GPUs are shared by MPS.
const mpsCapable = "nvidia.com/mps.capable"

// unrenamed is how many replicas of a GPU a node has that go by the GPUs' own name, as far
// as its labels say so; 1: its GPUs are whole.
func (d *Driver) unrenamed(n *node) int {
	l := n.obj.Labels
	how := l[d.opt.Labels.Sharing]
	of, err := strconv.Atoi(l[d.opt.Labels.Replicas])
	if err != nil || how == "" || how == "none" || d.sharedOn(n).name != "" {
		return 1
	}
	return max(1, of)
}

// gives says what a pod gets of a node by what it asks for, in words; why, that it is not
// what it wants.
func (d *Driver) gives(p *pod, sum v1.ResourceList, n *node) (text, why string) {
	ways, slices := d.waysOf(n), d.slicesOf(sum)
	switch {
	case p.replica.name != "":
		return d.shareOf(&ways, d.sharedOn(n).of, &p.want)
	case d.slicesShared(sum) != "":
		return sliceReplica(&p.want)
	case len(slices) > 0:
		return slicesGive(&ways, slices, &p.want)
	case d.gpusOf(sum) > 0:
		return d.shareOf(&ways, d.unrenamed(n), &p.want)
	}
	return "", ""
}

// shareOf is what a pod gets by one of so many replicas of a node's GPUs.
func (d *Driver) shareOf(ways *cluster.Ways, of int, want *want) (text, why string) {
	switch of {
	case 0:
		return "", "" // its label says nothing (replicaSuits)
	case 1:
		return d.wholeGPU(ways, want)
	}
	part := ways.Model.Memory / cluster.MiB(of)
	r := cluster.Request{GPUs: 1, Share: cluster.Whole / cluster.Milli(of), Memory: want.memory}
	got, how := ways.Choose(r, want.isolation, want.prompt)
	switch {
	case !got.Fractional() || got.Profile != "":
		apart := *want
		apart.memory, apart.cores = 0, 0
		why = fmt.Sprintf("it shares GPUs by %s, which is not enough for %s", ways.Sharing, apart.text())
	case want.memory > 0 && ways.Model.Memory == 0:
		why = d.unknownMemory()
	case want.memory > part:
		why = fmt.Sprintf("a replica there is %d MiB of a GPU, not %d", part, want.memory)
	case want.cores > r.Share:
		why = fmt.Sprintf("a replica there is %s of a GPU's compute, not %s", percent(r.Share), percent(want.cores))
	}
	size := ""
	if part > 0 {
		size = fmt.Sprintf(" (%d MiB)", part)
	}
	return fmt.Sprintf("a replica by %s, 1 of %d of a GPU%s: %s", ways.Sharing, of, size,
		strings.TrimPrefix(how, "a share: ")), why
}

// sliceReplica is what a pod gets by replicas of MIG slices, which are by time-slicing only.
func sliceReplica(want *want) (text, why string) {
	got, how := (&cluster.Ways{}).Choose(cluster.Request{GPUs: 1, Share: 1}, want.isolation, want.prompt)
	if !got.Fractional() || want.memory > 0 || want.cores > 0 {
		why = "replicas of MIG slices are by time-slicing, which is not enough for " + want.text()
	}
	return "a replica of a MIG slice by time-slicing: " + strings.TrimPrefix(how, "a share: "), why
}

func percent(part cluster.Milli) string { return fmt.Sprintf("%d %%", part/10) }

func (d *Driver) unknownMemory() string {
	return fmt.Sprintf("label %s does not say how much memory its GPUs have", d.opt.Labels.Memory)
}

// wholeGPU is what a pod gets by whole GPUs of a node, or by slices of one profile that go
// by that name.
func (d *Driver) wholeGPU(ways *cluster.Ways, want *want) (text, why string) {
	text = "whole GPUs: no other pod is on them"
	slice := strings.Contains(ways.Model.Name, "-MIG-")
	if slice {
		text = "MIG instances: enforced: memory and compute by the GPU"
	}
	switch {
	case want.memory > 0 && ways.Model.Memory == 0:
		why = d.unknownMemory()
	case want.memory > ways.Model.Memory:
		why = fmt.Sprintf("its GPUs have %d MiB, not %d", ways.Model.Memory, want.memory)
	case want.cores > 0 && slice:
		why = "what part of a GPU's compute its MIG instances are, it does not say"
	}
	return text, why
}

// slicesGive is what a pod gets by MIG slices of some profiles.
func slicesGive(ways *cluster.Ways, count map[string]int, want *want) (text, why string) {
	for _, name := range slices.Sorted(maps.Keys(count)) {
		p, ok := ways.Model.Profile(name)
		switch {
		case !ok && (want.memory > 0 || want.cores > 0):
			why = fmt.Sprintf("what %s is of its GPUs is not known", name)
		case !ok:
		case want.memory > p.Memory:
			why = fmt.Sprintf("%s has %d MiB, not %d", name, p.Memory, want.memory)
		case want.cores*cluster.Milli(ways.Model.Compute) > cluster.Milli(p.Compute)*cluster.Whole:
			why = fmt.Sprintf("%s is %d of %d of a GPU's compute", name, p.Compute, ways.Model.Compute)
		}
	}
	_, text = ways.Choose(cluster.Request{GPUs: 1, Profile: "slice"}, want.isolation, want.prompt)
	return text, why
}

// wantSuits says why a pod does not get what it wants on a node; "": it does.
func (d *Driver) wantSuits(p *pod, sum v1.ResourceList, name string) (why string) {
	if n := d.nodes[name]; p.want != (want{}) && n != nil && n.obj != nil {
		_, why = d.gives(p, sum, n)
	}
	return why
}

// offers says what the cluster has of GPUs, and by which names, for those who find nothing
// that is enough for them.
func (d *Driver) offers() string {
	count := map[string]int{}
	for _, name := range d.nodeNames() {
		n := d.nodes[name]
		ways, have := d.waysOf(n), n.obj.Status.Allocatable
		memory := func(of int) string {
			if ways.Model.Memory == 0 {
				return ""
			}
			return fmt.Sprintf(" with %d MiB", ways.Model.Memory/cluster.MiB(of))
		}
		add := func(name v1.ResourceName, of int) {
			if of > 1 {
				count[fmt.Sprintf("%s by %s, 1 of %d of a GPU%s", name, ways.Sharing, of, memory(of))]++
			} else {
				count[fmt.Sprintf("%s%s", name, memory(1))]++
			}
		}
		if s := d.sharedOn(n); s.of > 0 {
			add(s.name, s.of)
		}
		for _, g := range d.opt.GPUs {
			if !cmpZero(have, v1.ResourceName(g)) {
				add(v1.ResourceName(g), d.unrenamed(n))
			}
		}
		for r := range have {
			if _, slice := d.sliceOf(r); slice && !cmpZero(have, r) {
				count[string(r)]++
			}
		}
		if d.pools().GPUs(name) > 0 {
			count["devices for resource claims"]++
		}
	}
	var list []string
	for _, what := range slices.Sorted(maps.Keys(count)) {
		list = append(list, fmt.Sprintf("%s (nodes: %d)", what, count[what]))
	}
	return cmp.Or(strings.Join(list, "; "), "none at all")
}

// sharingOf says how a gang shares GPUs and who enforces that, where it has its place; or
// what keeps it to some of the nodes. "": whole GPUs, and it wants nothing of them.
func (d *Driver) sharingOf(g *gang) string {
	pods := g.sorted()
	i := slices.IndexFunc(pods, func(p *pod) bool { return d.hasGPU(p) && !p.over() })
	if i < 0 {
		return ""
	}
	p := pods[i]
	sum := requestsOf(p.obj)
	if p.at() == "" {
		if p.want == (want{}) || g.phase != waiting {
			return ""
		}
		return fmt.Sprintf("what is enough for %s on %d of %d nodes", p.want.text(), len(d.nodesFor(pods).names),
			len(d.nodeNames()))
	}
	n := d.nodes[p.at()]
	if n == nil || n.obj == nil {
		return ""
	}
	text, _ := d.gives(p, sum, n)
	if text = cmp.Or(text, d.devicesGive(p)); p.want == (want{}) {
		if strings.HasPrefix(text, "whole GPUs") {
			return ""
		}
		return text
	}
	return text + ", for " + p.want.text()
}

func cmpZero(list v1.ResourceList, name v1.ResourceName) bool {
	q := list[name]
	return q.IsZero()
}
