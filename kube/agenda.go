package kube

import (
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/kube/gang"
)

// agenda is the gangs that are to be settled, now or at a time.
type agenda struct {
	now   []*gang.Gang
	later map[string]*gang.Gang // by key, each at its time (gang.Gang.Retry)
}

// touch has a gang be settled in the next step.
func (a *agenda) touch(g *gang.Gang) {
	if !g.Dirty {
		g.Dirty = true
		a.now = append(a.now, g)
	}
}

// at has a gang be settled at a time.
func (a *agenda) at(g *gang.Gang, at cluster.Time) {
	g.Retry = at
	a.later[g.Key] = g
}

// cancel forgets the time at which a gang is to be settled.
func (a *agenda) cancel(g *gang.Gang) {
	g.Retry = 0
	delete(a.later, g.Key)
}

// next is the first of these times; Never: there is none.
func (a *agenda) next() cluster.Time {
	at := cluster.Never
	for _, g := range a.later {
		at = min(at, g.Retry)
	}
	return at
}

// due has those be settled now whose time has come.
func (a *agenda) due(now cluster.Time) {
	for key, g := range a.later {
		if g.Retry <= now {
			delete(a.later, key)
			a.touch(g)
		}
	}
}
