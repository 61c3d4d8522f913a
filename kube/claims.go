package kube

import (
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/kube/fit"
	"github.com/muster-gpu/muster/kube/fit/claims"
	"github.com/muster-gpu/muster/kube/fit/shared"
	"github.com/muster-gpu/muster/kube/gang"
)

// newClaims makes what is known of resource claims and devices.
func (d *Driver) newClaims() *claims.Claims {
	return claims.New(d.opt.Drivers, claims.Books{
		Part: func(p *fit.Neighbour) *claims.Pod { return &gang.PodOf(p).Claimed },
		Find: func(uid types.UID) *fit.Neighbour {
			if p := d.pods[uid]; p != nil {
				return &p.Neighbour
			}
			return nil
		},
		Nodes: func() []*v1.Node { return d.nodes.Objects() },
		Ours:  func(p *fit.Neighbour) bool { return gang.PodOf(p).Gang != nil },
		Open: func(p *fit.Neighbour) bool {
			q := gang.PodOf(p)
			return q.Gang != nil && q.Node == "" && !q.Binding && !q.Over() && q.Gang.Phase != gang.Starting
		},
		Same:    gang.SameGang,
		Room:    func(pods []*fit.Neighbour, node string) int { return d.reader.FreeFor(gang.PodsOf(pods), node) },
		Speeds:  func() any { return d.cfg.Speeds },
		Sharer:  func(p *fit.Neighbour) shared.Sharer { return d.reader.SharerOf(gang.PodOf(p)) },
		Changed: d.claimsChanged,
		Resolved: func(p *fit.Neighbour) {
			q := gang.PodOf(p)
			q.Request = q.Claimed.Counts.Add(d.gpus.RequestOf(q.Obj))
			q.Around = fit.Around(q.Obj) + q.Claimed.Wants
		},
		Learnt: func(p *fit.Neighbour) { d.agenda.touch(gang.PodOf(p).Gang) },
	})
}

// claimsChanged books that claims are others than they were, or also the devices that there are.
func (d *Driver) claimsChanged(devices bool) {
	d.nodes.SizesDirty, d.nodes.Dirty = d.nodes.SizesDirty || devices, true
	d.nodes.World.Changed()
}

// grantAll chooses the devices of all pods of a gang that has its places; why says which cannot have them, and then
// none has.
func (d *Driver) grantAll(g *gang.Gang) (why string) {
	var list []claims.Place
	for _, s := range g.Places.Needed() {
		if p := g.Pods[s.Pod]; !p.Claimed.Busy {
			list = append(list, claims.Place{Pod: &p.Neighbour, Node: s.Node, Obj: d.nodes.Object(s.Node)})
		}
	}
	if why = d.claims.GrantAll(list); why != "" {
		d.agenda.touch(g)
	}
	return why
}

// grant chooses the devices of a pod that goes to a node; why says what is missing.
func (d *Driver) grant(p *gang.Pod, node string) (why string) {
	return d.claims.Grant(claims.Place{Pod: &p.Neighbour, Node: node, Obj: d.nodes.Object(node)})
}

// ungrant forgets what is on its way for a pod: it is written, or will not be.
func (d *Driver) ungrant(p *gang.Pod) {
	if d.claims.Ungrant(&p.Neighbour) && p.Gang != nil {
		d.agenda.touch(p.Gang)
	}
}

// leftover takes back what an earlier scheduler, or an earlier start, reserved for pods of a gang that are not bound,
// and reports whether there is any.
func (d *Driver) leftover(g *gang.Gang) bool {
	busy := false
	for _, p := range g.Sorted() {
		if p.Node != "" || p.Binding || len(p.Claimed.Keys) == 0 {
			continue
		}
		if d.claims.HoldLeft(&p.Neighbour) {
			d.takeBack(p)
		}
		busy = busy || p.Claimed.Busy
	}
	if busy && g.Phase == gang.Gathering {
		g.Refused = "devices of an earlier start are being taken back"
	}
	return busy
}

// takeBack takes back what is reserved for a pod that could not be bound. Its claims count as taken until that is done.
func (d *Driver) takeBack(p *gang.Pod) {
	d.writer.TakeBack(p.Obj, d.claims.Given(&p.Neighbour), func(done []*resourceapi.ResourceClaim) {
		d.claims.Written(done)
		d.ungrant(p)
	})
}
