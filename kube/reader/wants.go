package reader

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/muster-gpu/muster/kube/fit"
	"github.com/muster-gpu/muster/kube/fit/shared"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/gpus"
)

// A pod asks for resources by name, and a scheduler cannot make others of them: a replica
// stays a replica. So what it needs besides - to be kept apart from others, memory, a part
// of the compute - chooses among the nodes that have what it names: a replica is enough
// where a share would be on a machine that shares its GPUs as that node does
// (cluster.Ways.Choose); MIG slices and whole GPUs keep apart whatever is wanted.
//
// To the engine a pod with one replica of a shared GPU is a pod with a share of a GPU. All of a gang is counted alike,
// so which nodes it goes to is decided when the engine is told of it, and again if it waits while it fits elsewhere.

// Wants tells the pods of a gang what the gang wants. An error says that it makes no sense.
func (r *Reader) Wants(g *gang.Gang, pods []*gang.Pod) error {
	w, err := r.TellWant(g, pods)
	if err != nil {
		return err
	}
	if w.Any() && !slices.ContainsFunc(pods, func(p *gang.Pod) bool { return r.GPUs.Asked(p.Obj) }) {
		return fmt.Errorf("it wants %s and asks for no GPU: which resource it gets a GPU by, its pod has to say; there are %s", w.Text(), r.GPUs.Offers(r.Nodes.Objects()))
	}
	return nil
}

// TellWant tells the pods, no more.
func (r *Reader) TellWant(g *gang.Gang, pods []*gang.Pod) (w gpus.Want, err error) {
	t, err := r.Terms(g, pods[0].Obj)
	if err != nil {
		return w, err
	}
	for _, p := range pods {
		was := p.Want
		p.Want = t.Want
		p.Sign(r.Fit)
		if was != p.Want && p.Claimed.Known { // what its claims count for may be another
			p.Claimed.Known = false
			if r.Claims.Resolve(&p.Neighbour); p.Claimed.Lacks != "" {
				return w, fmt.Errorf("pod %s: %s", p.Obj.Name, p.Claimed.Lacks)
			}
		}
	}
	return t.Want, nil
}

// SharingOf says how a gang shares GPUs and by what that is enforced, where it has its place; or what keeps it to some
// of the nodes. "": whole GPUs, and it wants nothing of them.
func (r *Reader) SharingOf(g *gang.Gang) string {
	pods := g.Sorted()
	i := slices.IndexFunc(pods, func(p *gang.Pod) bool { return r.GPUs.Asked(p.Obj) && !p.Over() })
	if i < 0 {
		return ""
	}
	p := pods[i]
	if p.At() == "" {
		if !p.Want.Any() || g.Phase != gang.Waiting {
			return ""
		}
		return fmt.Sprintf("what is enough for %s on %d of %d nodes", p.Want.Text(), len(r.NodesFor(pods).Names),
			len(r.Nodes.Objects()))
	}
	obj := r.Nodes.Object(p.At())
	if obj == nil {
		return ""
	}
	text, _ := r.GPUs.Gives(&p.Replica, &p.Want, gpus.Requests(p.Obj), obj)
	if text = cmp.Or(text, r.Claims.Gives(&p.Neighbour)); !p.Want.Any() {
		if text == gpus.WholeGPUs {
			return ""
		}
		return text
	}
	return text + ", for " + p.Want.Text()
}

// rooms finds what the pods of a gang could have, by the kinds of replicas.
func (r *Reader) rooms(pods []*gang.Pod) map[gpus.Kind]shared.Room {
	open := make([]gang.Pod, len(pods))
	list := make([]*gang.Pod, len(pods))
	for i, p := range pods {
		open[i].Neighbour = fit.Neighbour{Obj: p.Obj, Replica: p.Replica, Want: p.Want}
		open[i].Base = p.Base
		open[i].SettleOn(gpus.Kind{}, r.Fit)
		list[i] = &open[i]
	}
	found := map[gpus.Kind]shared.Room{}
	for _, name := range r.NodesFor(list).Names {
		s := r.Nodes.Replicas(name)
		k := r.GPUs.KindFor(&pods[0].Want, r.Nodes.Object(name))
		room := found[k]
		room.Kind = k
		if room.Most += s.Most; r.Nodes.Node(name).Up() {
			room.Free += max(0, s.Free)
		}
		found[k] = room
	}
	return found
}

// Share decides for the pods of a gang that want replicas how large these are.
func (r *Reader) Share(pods []*gang.Pod) {
	n, _ := gang.Replicas(pods)
	if n == 0 {
		return
	}
	best := shared.Best(r.rooms(pods), n)
	for _, p := range pods {
		p.SettleOn(best, r.Fit)
	}
}

// Elsewhere reports whether a gang that waits for replicas fits on GPUs that have
// more of them, or fewer, and not on those for which it waits.
func (r *Reader) Elsewhere(pods []*gang.Pod) bool {
	n, k := gang.Replicas(pods)
	return n > 0 && shared.Elsewhere(r.rooms(pods), n, k)
}
