package kube

import "github.com/muster-gpu/muster/cluster"

// agenda is the gangs that are to be settled, now or at a time.
type agenda struct {
	now   []*gang
	later map[string]*gang // by key, each at its time (gang.retry)
}

// touch has a gang be settled in the next step.
func (a *agenda) touch(g *gang) {
	if !g.dirty {
		g.dirty = true
		a.now = append(a.now, g)
	}
}

// at has a gang be settled at a time.
func (a *agenda) at(g *gang, at cluster.Time) {
	g.retry = at
	a.later[g.key] = g
}

// next is the first of these times; Never: there is none.
func (a *agenda) next() cluster.Time {
	at := cluster.Never
	for _, g := range a.later {
		at = min(at, g.retry)
	}
	return at
}

// due has those be settled now whose time has come.
func (a *agenda) due(now cluster.Time) {
	for key, g := range a.later {
		if g.retry <= now {
			delete(a.later, key)
			a.touch(g)
		}
	}
}
