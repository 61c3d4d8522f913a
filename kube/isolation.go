package kube

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/gpus"
)

// A pod asks for resources by name, and a scheduler cannot make others of them: a replica
// stays a replica. So what it needs besides - to be kept apart from others, memory, a part
// of the compute - chooses among the nodes that have what it names: a replica is enough
// where a share would be on a machine that shares its GPUs as that node does
// (cluster.Ways.Choose); MIG slices and whole GPUs keep apart whatever is wanted.

// wants tells the pods of a gang what the gang wants. An error says that it makes no sense.
func (d *Driver) wants(g *gang.Gang, pods []*gang.Pod) error {
	w, err := d.tellWant(g, pods)
	if err != nil {
		return err
	}
	if w.Any() && !slices.ContainsFunc(pods, func(p *gang.Pod) bool { return d.gpus.Asked(p.Obj) }) {
		return fmt.Errorf("it wants %s and asks for no GPU: which resource it gets a GPU by, its pod has to say; there are %s", w.Text(), d.gpus.Offers(d.nodes.Objects()))
	}
	return nil
}

// tellWant tells the pods, no more.
func (d *Driver) tellWant(g *gang.Gang, pods []*gang.Pod) (w gpus.Want, err error) {
	t, err := d.terms(g, pods[0].Obj)
	if err != nil {
		return w, err
	}
	for _, p := range pods {
		was := p.Want
		p.Want = t.Want
		p.Sign(d.fit)
		if was != p.Want && p.Claimed.Known { // what its claims count for may be another
			p.Claimed.Known = false
			if d.claims.Resolve(&p.Neighbour); p.Claimed.Lacks != "" {
				return w, fmt.Errorf("pod %s: %s", p.Obj.Name, p.Claimed.Lacks)
			}
		}
	}
	return t.Want, nil
}

// sharingOf says how a gang shares GPUs and by what that is enforced, where it has its place; or what keeps it to some
// of the nodes. "": whole GPUs, and it wants nothing of them.
func (d *Driver) sharingOf(g *gang.Gang) string {
	pods := g.Sorted()
	i := slices.IndexFunc(pods, func(p *gang.Pod) bool { return d.gpus.Asked(p.Obj) && !p.Over() })
	if i < 0 {
		return ""
	}
	p := pods[i]
	if p.At() == "" {
		if !p.Want.Any() || g.Phase != gang.Waiting {
			return ""
		}
		return fmt.Sprintf("what is enough for %s on %d of %d nodes", p.Want.Text(), len(d.nodesFor(pods).Names),
			len(d.nodes.Objects()))
	}
	obj := d.nodes.Object(p.At())
	if obj == nil {
		return ""
	}
	text, _ := d.gpus.Gives(&p.Replica, &p.Want, gpus.Requests(p.Obj), obj)
	if text = cmp.Or(text, d.claims.Gives(&p.Neighbour)); !p.Want.Any() {
		if text == gpus.WholeGPUs {
			return ""
		}
		return text
	}
	return text + ", for " + p.Want.Text()
}
