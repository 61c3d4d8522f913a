package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Bulk is what becomes of requests that wait for whatever the others leave (BulkHeader). They are not in the tally of
// their service.
type Bulk struct {
	Waiting  int     `json:"waiting"`
	Answered int64   `json:"answered"`
	Failed   int64   `json:"failed"`
	Needed   float64 `json:"needed_per_s"` // so that all that was announced is answered by its time
}

const (
	mostBulk     = 1000             // requests that wait for each service
	bulkPatience = 10 * time.Minute // of one request; its client asks again
	mostNeeds    = 100              // files that are known at once
	needFor      = time.Minute      // after the last request of a file that was put off it is forgotten
	answeredFor  = 3 * time.Second  // ... of one whose requests all have answers
)

var errYield = errors.New("a request that does not wait needs the replica")

// need is what a file of requests says of itself.
type need struct {
	left int
	by   time.Time
	open int       // requests that have no answer yet
	till time.Time // when it is forgotten, unless requests of it wait
}

// readBulk reads the header of a bulk request. What it says is a claim: it makes a service run more replicas at most,
// up to its maximum.
func readBulk(r *http.Request) (n need, bulk bool, err error) {
	text := r.Header.Get(BulkHeader)
	if text == "" {
		return need{}, false, nil
	}
	for part := range strings.SplitSeq(text, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		v, err := strconv.ParseInt(value, 10, 64)
		if err != nil || v < 0 {
			return need{}, true, fmt.Errorf("%s: %q is not such as left=100;by=1800000000", BulkHeader, text)
		}
		switch name {
		case "left":
			n.left = int(min(v, 1e9))
		case "by":
			n.by = time.Unix(min(v, 1e11), 0)
		}
	}
	return n, true, nil
}

// bulkOf is readBulk, and refuses a request whose header is wrong.
func bulkOf(a *answer, r *http.Request) (n need, bulk, ok bool) {
	n, bulk, err := readBulk(r)
	if err != nil {
		a.fail(http.StatusBadRequest, err.Error())
	}
	a.need = n
	return n, bulk, err == nil
}

// bulk is what waits for whatever the others leave; the lock of its pool guards it.
type bulk struct {
	calls   []*call
	running map[*attempt]context.CancelCauseFunc // passed on to replicas
	needs   []need
	count   Bulk
}

// announce notes what is left of a file, by a request of it.
func (b *bulk) announce(n need, now time.Time) {
	if n.by.IsZero() {
		return
	}
	o := b.file(n.by)
	if o == nil {
		b.needs = slices.DeleteFunc(b.needs, func(o need) bool { return !b.counts(&o, now) })
		if len(b.needs) >= mostNeeds {
			return
		}
		b.needs = append(b.needs, n)
		o = &b.needs[len(b.needs)-1]
	}
	o.left, o.till = n.left, now.Add(needFor)
	o.open++
}

// file is what is known of the file that is to be answered by a time; nil: nothing.
func (b *bulk) file(by time.Time) *need {
	i := slices.IndexFunc(b.needs, func(o need) bool { return o.by.Equal(by) })
	if i < 0 {
		return nil
	}
	return &b.needs[i]
}

// counts reports whether a file is still to be answered.
func (b *bulk) counts(n *need, now time.Time) bool {
	return !now.After(n.till) || slices.ContainsFunc(b.calls, func(c *call) bool { return c.need.by.Equal(n.by) })
}

// ends notes that a request of a file has its answer, or is put off.
func (b *bulk) ends(n need, answered bool, now time.Time) {
	o := b.file(n.by)
	if o == nil {
		return
	}
	if o.open--; answered {
		if o.left = max(0, o.left-1); o.open <= 0 { // or the next one would be here
			o.till = now.Add(answeredFor)
		}
	}
}

// report is a copy of the counts.
func (b *bulk) report(now time.Time) *Bulk {
	if b.count == (Bulk{}) && len(b.calls) == 0 && len(b.needs) == 0 {
		return nil
	}
	c := b.count
	c.Waiting = len(b.calls)
	for _, n := range b.needs {
		if b.counts(&n, now) {
			c.Needed += float64(n.left) / max(1, n.by.Sub(now).Seconds())
		}
	}
	return &c
}

// waitBulk queues a call behind all others, also where the first replica has yet to start.
func (p *pool) waitBulk(ctx context.Context, c *call) grant {
	p.mu.Lock()
	c.arrived, c.patience, c.got = p.server.clock(), bulkPatience, make(chan grant, 1)
	p.bulk.announce(c.need, c.arrived)
	serving := p.serving()
	switch {
	case serving == 0 && p.spec.ColdMS == 0:
		p.mu.Unlock()
		return grant{err: errNone}
	case len(p.bulk.calls) >= mostBulk:
		p.mu.Unlock()
		return grant{err: errFull}
	}
	p.bulk.calls = append(p.bulk.calls, c)
	p.dispatch()
	p.mu.Unlock()
	if serving == 0 && !c.need.by.IsZero() {
		p.server.wake.ring()
	}
	return p.await(ctx, c)
}

// leaveBulk takes a call out of the queue.
func (p *pool) leaveBulk(c *call) {
	p.bulk.calls = slices.DeleteFunc(p.bulk.calls, func(o *call) bool { return o == c })
}

// dispatchBulk gives replicas that would be idle what may wait. A batch takes at most half of the goal, so that a
// request that comes meanwhile is in time; of the requests that are passed on a replica gets half of what it could.
func (p *pool) dispatchBulk(now time.Time) {
	for len(p.bulk.calls) > 0 {
		c := p.bulk.calls[0]
		r := p.idle(now, c.infer != nil)
		if r == nil {
			return
		}
		p.take(r, now)
		if c.infer == nil {
			p.bulk.calls = p.bulk.calls[1:]
			c.got <- grant{to: r}
			continue
		}
		list := p.bulkBatch()
		for _, x := range list {
			x.sent = true
			p.leaveBulk(x)
		}
		go p.compute(r, list, true)
	}
}

// idle finds a replica for bulk requests: one that computes nothing, or that answers the fewest and less than half of
// what it could.
func (p *pool) idle(now time.Time, batch bool) (best *replica) {
	for _, r := range p.replicas {
		most := max(1, p.atOnce(r)/2)
		if batch {
			most = 1
		}
		if p.open(r, now) && r.busy < most && (best == nil || r.busy < best.busy) {
			best = r
		}
	}
	return best
}

// bulkBatch chooses a batch from the front of what waits.
func (p *pool) bulkBatch() (list []*call) {
	setting := p.spec.setting()
	samples := 0
	for _, c := range p.bulk.calls {
		if c.infer == nil || len(list) > 0 && (!c.infer.joins(list[0].infer) || samples+c.infer.n > p.spec.Batch ||
			2*setting.Takes(samples+c.infer.n) > setting.Goal) {
			break
		}
		list = append(list, c)
		samples += c.infer.n
	}
	return list
}

// yield takes replicas from as many bulk requests as others wait.
func (p *pool) yield() {
	n := len(p.calls) - p.gone
	for x, cancel := range p.bulk.running {
		if n--; n < 0 {
			return
		}
		cancel(errYield)
		delete(p.bulk.running, x)
	}
}

// yields lets a bulk request be ended when another needs its replica.
func (p *pool) yields(x *attempt, cancel context.CancelCauseFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bulk.running == nil {
		p.bulk.running = map[*attempt]context.CancelCauseFunc{}
	}
	p.bulk.running[x] = cancel
}

// countBulk counts an answer to a bulk request.
func (p *pool) countBulk(well bool) {
	if well {
		p.bulk.count.Answered++
	} else {
		p.bulk.count.Failed++
	}
}
