package look

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/show"
)

// A copy serves all requests within some multiple of the time that it took to make.
const (
	keepLeast = 100 * time.Millisecond
	keepMost  = 2 * time.Second
	keepShare = 20
)

// ErrNotLeading is returned where this scheduler does not schedule.
var ErrNotLeading = errors.New(
	"this scheduler does not lead, or has not seen the whole cluster yet; ask again in a moment")

// Loop is what a desk has to know of the scheduler's loop.
type Loop struct {
	Ready func() bool   // whether it schedules
	Put   func(func())  // has something done on it
	See   func() *Sight // copies what there is to see; runs on it
	Now   func() time.Time
	Zone  int // of the times that people see, in seconds east of UTC
}

// Desk takes what people ask of a cluster to the loop, from any goroutine. Requests ask for a copy, small rows without
// text, of which the loop makes at most one at a time; what becomes of it - selecting, writing, sending - costs the
// loop nothing.
type Desk struct {
	loop Loop
	over chan struct{} // closed when the loop has ended

	mu   sync.Mutex
	last *Sight
	keep time.Duration // how long that does

	watchMu sync.Mutex
	watch   map[chan struct{}]bool
}

// NewDesk is the desk of a loop.
func NewDesk(loop Loop) *Desk {
	return &Desk{loop: loop, over: make(chan struct{}), watch: map[chan struct{}]bool{}}
}

// Close answers all that is asked from now on with ErrNotLeading.
func (d *Desk) Close() { close(d.over) }

// Over is closed when the desk is.
func (d *Desk) Over() <-chan struct{} { return d.over }

// Ask runs f on the loop.
func (d *Desk) Ask(ctx context.Context, f func()) error {
	if !d.loop.Ready() {
		return ErrNotLeading
	}
	done := make(chan struct{})
	d.loop.Put(func() { f(); close(done) })
	select {
	case <-done:
		return nil
	case <-d.over:
		return ErrNotLeading
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Look is the cluster as it is now, or was a moment ago.
func (d *Desk) Look(ctx context.Context) (*Sight, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if l := d.last; l != nil && d.loop.Ready() && d.loop.Now().UnixNano()-int64(l.At) < int64(d.keep) {
		return l, nil
	}
	type made struct {
		sight *Sight
		took  time.Duration
	}
	got := make(chan made, 1)
	if err := d.Ask(ctx, func() {
		began := d.loop.Now()
		l := d.loop.See()
		got <- made{l, d.loop.Now().Sub(began)}
	}); err != nil {
		return nil, err
	}
	m := <-got
	d.last, d.keep = m.sight, min(max(keepShare*m.took, keepLeast), keepMost)
	return d.last, nil
}

// Tell tells those that watch that something changed.
func (d *Desk) Tell() {
	d.watchMu.Lock()
	defer d.watchMu.Unlock()
	for c := range d.watch {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// Reader answers what a copy is enough for.
type Reader struct{ desk *Desk }

// Reader reads what the desk shows.
func (d *Desk) Reader() Reader { return Reader{d} }

// Watch begins to watch; which jobs changed is not said.
func (r Reader) Watch() (changed <-chan struct{}, take func() ([]int, bool), stop func()) {
	c, d := make(chan struct{}, 1), r.desk
	d.watchMu.Lock()
	defer d.watchMu.Unlock()
	d.watch[c] = true
	return c, func() ([]int, bool) { return []int{}, true }, func() {
		d.watchMu.Lock()
		defer d.watchMu.Unlock()
		delete(d.watch, c)
	}
}

// Now is the scheduler's clock.
func (r Reader) Now() time.Time { return r.desk.loop.Now() }

// Jobs lists gangs, the latest first.
func (r Reader) Jobs(ctx context.Context, f ask.Filter) ([]show.Job, error) {
	l, err := r.desk.Look(ctx)
	if err != nil {
		return nil, err
	}
	rows := l.Choose(f)
	list := make([]show.Job, len(rows))
	for i, row := range rows {
		list[i] = row.Listed(l.At)
	}
	return list, nil
}

// History says what happened to a gang since this scheduler leads.
func (r Reader) History(ctx context.Context, id int) ([]show.Moment, error) {
	l, err := r.desk.Look(ctx)
	if err != nil {
		return nil, err
	}
	row, err := l.One(id)
	if err != nil {
		return nil, err
	}
	list := []show.Moment{}
	for _, m := range row.Moments {
		list = append(list, show.Moment{At: *Instant(m.At), State: m.State, Text: m.Text})
	}
	return list, nil
}

// Samples are empty: what pods use, the cluster's own monitoring measures.
func (r Reader) Samples(ctx context.Context, id int) (show.Samples, error) {
	l, err := r.desk.Look(ctx)
	if err == nil {
		_, err = l.One(id)
	}
	return show.Samples{Every: 1, Points: []show.Point{}}, err
}

// Nodes lists the nodes.
func (r Reader) Nodes(ctx context.Context) ([]show.Node, error) {
	l, err := r.desk.Look(ctx)
	if err != nil {
		return nil, err
	}
	return l.ListNodes(), nil
}

// Queues lists the queues with what they hold.
func (r Reader) Queues(ctx context.Context) ([]show.Queue, error) {
	l, err := r.desk.Look(ctx)
	if err != nil {
		return nil, err
	}
	return l.ListQueues(), nil
}

// Overview is the whole cluster in one answer.
func (r Reader) Overview(ctx context.Context) (show.Overview, error) {
	l, err := r.desk.Look(ctx)
	if err != nil {
		return show.Overview{}, err
	}
	return l.Overview(), nil
}

// Usage reports what gangs used since a time, from the scheduler's own books.
func (r Reader) Usage(ctx context.Context, by string, since time.Time) (show.Usage, error) {
	if err := CheckBy(by); err != nil {
		return show.Usage{}, err
	}
	l, err := r.desk.Look(ctx)
	if err != nil {
		return show.Usage{}, err
	}
	return l.Usage(by, since, time.FixedZone("", r.desk.loop.Zone))
}
