package kube

import (
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/kube/books"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/look"
)

var (
	// ErrNotLeading is returned where this scheduler does not schedule.
	ErrNotLeading = look.ErrNotLeading
	// ErrNoJob is returned for a number that no gang has.
	ErrNoJob = look.ErrNoJob
)

// scene is what the books are written from.
func (d *Driver) scene(now cluster.Time) books.Scene {
	return books.Scene{Engine: d.eng, Gangs: d.gangs, Jobs: d.byID, Now: now}
}

// note books what became of a gang; it is called wherever its phase may have changed.
func (d *Driver) note(g *gang.Gang, now cluster.Time) { d.books.Note(g, d.scene(now)) }

// sample keeps the cluster's state for the last hour.
func (d *Driver) sample(now cluster.Time) {
	if d.books.Sample(d.scene(now)) {
		f := d.eng.Fragmentation()
		d.opt.Observe.Free(f.Free, min(f.Free, f.Usable))
	}
}

// see copies what there is to see, for look.Desk; it runs on the loop.
func (d *Driver) see() *look.Sight {
	now := d.clock()
	d.sample(now)
	return d.books.Sight(d.scene(now))
}
