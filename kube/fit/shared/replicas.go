package shared

import (
	"fmt"
	"math/bits"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/kube/fit"
	"github.com/muster-gpu/muster/kube/gpus"
)

// Books are what is asked of the user, which counts GPUs and knows gangs.
type Books struct {
	Speeds func() any                        // what the engine knows of them
	Nodes  func() []cluster.Node             // as the engine has them
	On     func(node string) gpus.Replicas   // with what pods hold of them
	Ways   func(node string) cluster.Sharing // how a node that is there shares its GPUs
	Sharer func(p *fit.Neighbour) Sharer     // what is known of a pod
	Same   func(p, q *fit.Neighbour) bool    // two pods are of one gang
}

// Replicas is the predicate of replicas of shared GPUs, and beside which other pods they are.
type Replicas struct {
	Names *gpus.Names
	Books Books
}

// replica is the need of one of them.
type replica struct{}

// Read reads whether a pod asks for one.
func (f Replicas) Read(obj *v1.Pod, requests v1.ResourceList) (fit.Need, bool, error) {
	r := f.Names.RequestIn(requests)
	if f.Names.ReplicaIn(obj, requests, &r).One {
		return replica{}, false, nil
	}
	return nil, false, nil
}

// Key is what replica it is to be, and beside which others.
func (f Replicas) Key(p *fit.Neighbour) string {
	switch {
	case !p.Replica.One:
		return ""
	case !Known(f.Books.Speeds()):
		return fmt.Sprint(p.Replica)
	}
	return fmt.Sprint(p.Replica, f.Books.Sharer(p))
}

// Limit bounds nodes by what they have of them, and by how slow pods there would be.
func (f Replicas) Limit(l *fit.Look, p *fit.Neighbour) {
	if p.Replica.One {
		f.limitCount(l, p)
		f.limitSpeed(l, p)
	}
}

// limitCount bounds nodes where the engine counts more replicas than there are: of a GPU some of whose replicas others
// have, or are not healthy.
func (f Replicas) limitCount(l *fit.Look, p *fit.Neighbour) {
	for _, believed := range f.Books.Nodes() {
		s := f.Books.On(believed.Name)
		if s.Of == 0 || s.Name != p.Replica.Name {
			continue
		}
		whole := gpus.Whole(&believed)
		good := whole - bits.OnesCount64(believed.Bad&(uint64(1)<<whole-1))
		if int64(good*s.Of) > s.Most-s.Aside {
			l.Most(believed.Name, max(0, s.Free), "too little "+string(s.Name))
		}
	}
}

// limitSpeed bounds nodes where a pod with a replica, or one that is there, could be slower than it asks for.
func (f Replicas) limitSpeed(l *fit.Look, p *fit.Neighbour) {
	speeds := f.Books.Speeds()
	if !Known(speeds) {
		return
	}
	kind, more := f.Books.Sharer(p), 0
	for _, q := range l.Pods {
		if q.Replica.One {
			more++
		}
	}
	for _, name := range l.Ask.Nodes {
		s := f.Books.On(name)
		if s.Of < 2 || s.Name != p.Replica.Name {
			continue
		}
		company, there := CompanyOf(speeds, f.Books.Ways(name)), f.sharers(l, name, p)
		most, why := 0, ""
		for ; most < more && why == ""; most++ {
			why = company.Slowed(there, kind, most+1, s.Of)
		}
		if why != "" {
			l.Most(name, int64(most-1), why)
		}
	}
}

// sharers lists the pods with replicas on a node, but for a pod's gang, one for each replica.
func (f Replicas) sharers(l *fit.Look, node string, but *fit.Neighbour) (list []Sharer) {
	for q := range l.On(node) {
		if q.Replica.Name == but.Replica.Name && !f.Books.Same(q, but) {
			for range q.Replica.N {
				list = append(list, f.Books.Sharer(q))
			}
		}
	}
	return list
}

// How large the share of a replica is depends on the node, and all of a gang is to be counted alike: so a gang goes to
// nodes whose GPUs have equally many.

// Room is what nodes with replicas of one kind have.
type Room struct {
	gpus.Kind
	Most, Free int64
}

// better reports whether pods that want n replicas should rather be here: where they fit now, where what they want is
// enforced, else where there are more.
func (a Room) better(b Room, n int64) bool {
	switch {
	case (a.Free >= n) != (b.Free >= n):
		return a.Free >= n
	case a.MPS != b.MPS:
		return a.MPS
	case a.Free >= n:
		return a.Free > b.Free
	}
	return a.Most > b.Most
}

// Best is the kind that is best for pods that want n replicas.
func Best(found map[gpus.Kind]Room, n int64) (best gpus.Kind) {
	for k := range found {
		if a, b := found[k], found[best]; best.Of == 0 || a.better(b, n) || !b.better(a, n) && k.Of < best.Of {
			best = k
		}
	}
	return best
}

// Elsewhere reports whether pods that want n replicas fit on GPUs of another kind, and not on those of theirs.
func Elsewhere(found map[gpus.Kind]Room, n int64, theirs gpus.Kind) bool {
	if found[theirs].Free >= n {
		return false
	}
	for _, r := range found {
		if r.Free >= n {
			return true
		}
	}
	return false
}
