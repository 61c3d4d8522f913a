package gateway

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/serving/batch"
)

// Errors of requests that no replica answers.
var (
	errLate    = errors.New("it could not be answered in time")
	errFull    = errors.New("too many requests wait")
	errNone    = errors.New("no replica answers")
	errGone    = errors.New("the service is gone")
	errLeft    = errors.New("the client has left")
	errReplica = errors.New("the replica failed")
)

// pool is a service in the gateway: its replicas, and the requests that wait for them.
type pool struct {
	server *Server
	name   string
	meters meters

	mu       sync.Mutex
	spec     Service
	replicas []*replica
	weighted bool // the replicas' weights differ
	waiting  batch.Queue
	calls    []*call // of the items of waiting, in the same order: by priority, then by arrival
	gone     int     // of calls: requests that have left
	retries  []retry
	timer    *time.Timer // of the next dispatch; nil: none is due
	due      time.Time
	count    counts
	perToken float64 // bytes of requests for each token of their prompts, as learned; 0: nothing yet
	bulk     bulk
	cold     bool // a request has waited since there was a replica
}

// call is a request that waits for a replica.
type call struct {
	infer    *infer // for a batch; nil: it waits for a replica of its own
	priority int
	arrived  time.Time
	patience time.Duration // after it nothing is sent
	got      chan grant    // receives once
	queued   bool          // it is in the queue
	left     bool          // it does not wait any more
	sent     bool          // in a batch
	bulk     bool          // it waits for whatever the others leave
	need     need          // of a bulk request
}

// grant is what a call waited for: a replica of its own, the answer of its batch, or an error.
type grant struct {
	to     *replica // for an answer: where it comes from
	answer []byte
	batch  int // samples
	err    error
}

// retry is a batch, or a request, for another replica than the one that died.
type retry struct {
	calls []*call
	avoid *replica
}

const waitingNormal = 1000

// update takes over a new configuration; what waits and runs goes on.
func (p *pool) update(s Service) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	same := s.Rule == p.spec.Rule && s.Batch == p.spec.Batch && s.LatencyMS == p.spec.LatencyMS &&
		s.DelayMS == p.spec.DelayMS && slices.Equal(s.Preferred, p.spec.Preferred) &&
		reflect.DeepEqual(s.TakesMS, p.spec.TakesMS)
	old := map[string]*replica{}
	for _, r := range p.replicas {
		old[r.spec.ID] = r
	}
	none := p.serving() == 0
	p.spec, p.replicas, p.weighted = s, nil, false
	for _, x := range s.Replicas {
		r := old[x.ID]
		if r == nil || r.spec.URL != x.URL {
			u, err := url.Parse(x.URL)
			if err != nil {
				return err
			}
			r = &replica{url: u}
		}
		if r.rule == nil || !same { // a rule learns: it is kept while it can be
			rule, err := batch.New(s.Rule, s.setting())
			if err != nil {
				return err
			}
			r.rule = rule
		}
		r.spec = x
		p.weighted = p.weighted || x.weight() != s.Replicas[0].weight()
		p.replicas = append(p.replicas, r)
	}
	p.cold = p.cold && p.serving() == 0
	if none && p.serving() > 0 { // what waited for the first replica is not late because of that
		for i := range p.waiting.Len() {
			p.waiting.At(i).At = p.now()
		}
	}
	if p.serving() == 0 && len(p.calls) > p.gone {
		p.server.wake.ring()
	}
	p.dispatch()
	return nil
}

// model is the name that replicas know.
func (p *pool) model() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return cmp.Or(p.spec.Model, p.name)
}

func (p *pool) now() cluster.Time { return cluster.Time(p.server.clock().UnixNano()) }

// serving is how many replicas take requests, or will again.
func (p *pool) serving() (n int) {
	for _, r := range p.replicas {
		if !r.spec.Draining {
			n++
		}
	}
	return n
}

// wait queues a call and waits for what it is granted.
func (p *pool) wait(ctx context.Context, c *call) grant {
	if c.bulk {
		return p.waitBulk(ctx, c)
	}
	p.mu.Lock()
	p.count.Arrived++
	c.arrived = p.server.clock()
	serving := p.serving()
	if c.infer == nil && p.waiting.Len() == 0 && len(p.retries) == 0 {
		if r := p.pick(c.arrived, nil); r != nil {
			p.take(r, c.arrived)
			p.mu.Unlock()
			return grant{to: r}
		}
	}
	switch {
	case serving == 0 && p.spec.ColdMS == 0:
		p.refused(reasonNone)
		p.mu.Unlock()
		return grant{err: errNone}
	case !p.makeRoom(serving, c.priority):
		p.refused(reasonFull)
		p.mu.Unlock()
		return grant{err: errFull}
	}
	c.got, c.patience = make(chan grant, 1), p.patience(c, serving)
	p.enqueue(c)
	if serving == 0 && !p.cold {
		p.cold = true
		p.meters.cold.Inc()
	}
	p.dispatch()
	p.mu.Unlock()
	if serving == 0 {
		p.server.wake.ring()
	}
	return p.await(ctx, c)
}

// await waits for what a queued call is granted.
func (p *pool) await(ctx context.Context, c *call) grant {
	timer := time.NewTimer(c.patience)
	defer timer.Stop()
	for {
		select {
		case g := <-c.got:
			return g
		case <-timer.C:
			if g, over := p.leave(c, errLate); over {
				return g
			}
		case <-ctx.Done():
			g, _ := p.leave(c, errLeft)
			return g
		}
	}
}

// patience is how long a call may wait for a replica, so that its answer is still in time. A service that never meets
// its goal gives requests half of it.
func (p *pool) patience(c *call, serving int) time.Duration {
	goal := p.spec.goal()
	switch {
	case serving == 0:
		return goal + millis(p.spec.ColdMS)
	case c.infer != nil: // the rule of batches knows more
		return goal
	}
	return max(goal-p.fastest(), goal/2)
}

// makeRoom makes sure that one more call may wait, if need be in the place of one of a lower priority.
func (p *pool) makeRoom(serving, priority int) bool {
	most := p.spec.Waiting
	if most == 0 {
		most = waitingNormal
	}
	if p.waiting.Len()-p.gone < most*max(1, serving) {
		return true
	}
	for _, c := range slices.Backward(p.calls) {
		if c.priority >= priority {
			return false
		}
		if !c.left {
			c.left = true
			p.gone++
			p.refused(reasonFull)
			c.got <- grant{err: errFull}
			return true
		}
	}
	return false
}

// enqueue adds a call behind those of its priority.
func (p *pool) enqueue(c *call) {
	p.waiting.Push(batch.Item{At: cluster.Time(c.arrived.UnixNano())})
	p.calls = append(p.calls, c)
	c.queued = true
	for i := len(p.calls) - 1; i > 0 && p.calls[i-1].priority < c.priority; i-- {
		p.calls[i], p.calls[i-1] = p.calls[i-1], p.calls[i]
		later, earlier := p.waiting.At(i), p.waiting.At(i-1)
		*later, *earlier = *earlier, *later
	}
}

// leave ends the wait of a call. What it was granted meanwhile is returned instead, and a call that is only late stays
// if its batch has been sent: then over is false.
func (p *pool) leave(c *call, err error) (g grant, over bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case g = <-c.got:
		return g, true
	default:
	}
	if c.sent && errors.Is(err, errLate) {
		return grant{}, false
	}
	c.left = true
	if c.bulk {
		p.leaveBulk(c)
		return grant{err: err}, true
	}
	if c.queued {
		p.gone++
	}
	if errors.Is(err, errLate) {
		p.dropped()
	} else {
		p.count.left++
	}
	p.forget()
	return grant{err: err}, true
}

// forget removes the calls that have left from the queue once they are the most of it.
func (p *pool) forget() {
	if p.gone < 64 || p.gone < len(p.calls)/2 {
		return
	}
	var kept []*call
	var waiting batch.Queue
	for i, c := range p.calls {
		if !c.left {
			waiting.Push(*p.waiting.At(i))
			kept = append(kept, c)
		}
	}
	p.waiting, p.calls, p.gone = waiting, kept, 0
}

// dispatch gives what waits to replicas; the lock is held.
func (p *pool) dispatch() {
	now := p.server.clock()
	p.dispatchRetries(now)
	for {
		for len(p.calls) > 0 && p.calls[0].left {
			p.pop()
		}
		if len(p.calls) == 0 {
			p.dispatchBulk(now)
			return
		}
		r := p.pick(now, nil)
		if r == nil {
			p.yield()
			p.wakeForReplica(now)
			return
		}
		if p.calls[0].infer != nil {
			if !p.dispatchBatch(r, now) {
				return
			}
			continue
		}
		c := p.pop()
		p.meters.queued(now.Sub(c.arrived))
		p.take(r, now)
		c.got <- grant{to: r}
	}
}

// dispatchRetries gives what another replica has failed to answer to those that are left.
func (p *pool) dispatchRetries(now time.Time) {
	waiting := p.retries[:0]
	for _, t := range p.retries {
		t.calls = slices.DeleteFunc(t.calls, func(c *call) bool { return c.left })
		r := p.pick(now, t.avoid)
		switch {
		case len(t.calls) == 0:
		case r != nil && t.calls[0].infer == nil:
			p.take(r, now)
			t.calls[0].got <- grant{to: r}
		case r != nil:
			p.take(r, now)
			for _, c := range t.calls {
				c.sent = true
			}
			go p.compute(r, t.calls, true)
		case p.hasOther(t.avoid):
			waiting = append(waiting, t)
			p.wakeForReplica(now)
		default:
			for _, c := range t.calls {
				c.got <- grant{to: t.avoid, err: errReplica}
			}
		}
	}
	clear(p.retries[len(waiting):])
	p.retries = waiting
}

// pop removes the first call.
func (p *pool) pop() *call {
	c := p.calls[0]
	p.waiting.Pop(1)
	p.calls[0] = nil
	p.calls = p.calls[1:]
	c.queued = false
	if c.left {
		p.gone--
	}
	return c
}

// dispatchBatch lets a replica's rule choose from what waits, and sends that; false: the rule waits for more.
func (p *pool) dispatchBatch(r *replica, now time.Time) bool {
	choice := r.rule.Next(&p.waiting, cluster.Time(now.UnixNano()))
	for range choice.Drop {
		if c := p.pop(); !c.left {
			c.left = true
			p.dropped()
			c.got <- grant{err: errLate}
		}
	}
	if choice.Send == 0 {
		if choice.Again != cluster.Never {
			p.wakeAt(time.Unix(0, int64(choice.Again)), now)
		}
		return choice.Drop > 0
	}
	var list []*call
	samples := 0
	for range choice.Send {
		c := p.calls[0]
		if !c.left {
			if c.infer == nil || len(list) > 0 &&
				(!c.infer.joins(list[0].infer) || samples+c.infer.n > p.spec.Batch) {
				break // it begins a batch of its own
			}
			list = append(list, c)
			samples += c.infer.n
			c.sent = true
			p.meters.queued(now.Sub(c.arrived))
		}
		p.pop()
	}
	if len(list) > 0 {
		p.take(r, now)
		go p.compute(r, list, false)
	}
	return true
}

// wakeForReplica has what waits looked at again when a replica may be tried again.
func (p *pool) wakeForReplica(now time.Time) {
	for _, r := range p.replicas {
		if now.Before(r.shut) {
			p.wakeAt(r.shut, now)
		}
	}
}

// wakeAt has what waits looked at again at an instant, if not before.
func (p *pool) wakeAt(at, now time.Time) {
	if p.timer != nil {
		if !at.Before(p.due) {
			return
		}
		p.timer.Stop()
	}
	p.due = at
	p.timer = time.AfterFunc(max(at.Sub(now), time.Microsecond), func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.timer = nil
		p.dispatch()
	})
}

// compute sends a batch and hands out its parts. A batch whose replica died is sent once more, to another.
func (p *pool) compute(r *replica, list []*call, again bool) {
	samples := 0
	for _, c := range list {
		samples += c.infer.n
	}
	began := p.server.clock()
	parts, err := p.post(r, list)
	took := p.server.clock().Sub(began)
	var status *statusError
	if callersFault(err) && len(list) > 1 { // at least one is wrong, but which?
		for _, c := range list {
			one, err := p.post(r, []*call{c})
			if err != nil {
				c.got <- grant{to: r, err: err}
			} else {
				c.got <- grant{to: r, answer: one[0], batch: c.infer.n}
			}
		}
		p.done(r, result{took: p.server.clock().Sub(began)})
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		r.rule.Done(len(list), took)
		p.countBatch(r, samples, took, list[0].bulk)
	}
	overloaded := errors.As(err, &status) && status.code == http.StatusTooManyRequests
	failed := err != nil && !callersFault(err) && !overloaded
	p.finish(r, result{took: took, bulk: list[0].bulk, failed: failed})
	if err != nil && !again && errors.Is(err, errDied) && p.hasOther(r) {
		p.retryBatch(r, list)
		return
	}
	for i, c := range list {
		if err != nil {
			c.got <- grant{to: r, err: err}
		} else {
			c.got <- grant{to: r, answer: parts[i], batch: samples}
		}
	}
	p.dispatch()
}

// retryBatch queues the calls of a batch whose replica died, but for those that have left or are late.
func (p *pool) retryBatch(died *replica, list []*call) {
	now := p.server.clock()
	var calls []*call
	for _, c := range list {
		if c.left {
			continue
		}
		if now.Sub(c.arrived) >= c.patience {
			p.dropped()
			c.got <- grant{to: died, err: errLate}
			continue
		}
		c.sent = false
		calls = append(calls, c)
		p.retried()
	}
	p.retries = append(p.retries, retry{calls, died})
	p.dispatch()
}

// secondReplica waits for a replica other than the one that died, for a request that came at an instant.
func (p *pool) secondReplica(ctx context.Context, died *replica, arrived time.Time) grant {
	p.mu.Lock()
	c := &call{arrived: arrived, got: make(chan grant, 1)}
	c.patience = p.spec.goal() - p.server.clock().Sub(arrived)
	if !p.hasOther(died) || c.patience <= 0 {
		p.mu.Unlock()
		return grant{err: errReplica}
	}
	p.retried()
	p.retries = append(p.retries, retry{[]*call{c}, died})
	p.dispatch()
	p.mu.Unlock()
	return p.await(ctx, c)
}

// hasOther reports whether there is another replica than one.
func (p *pool) hasOther(than *replica) bool {
	return slices.ContainsFunc(p.replicas, func(r *replica) bool { return r != than && !r.spec.Draining })
}

// close ends everything that waits.
func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer != nil {
		p.timer.Stop()
	}
	for _, t := range p.retries {
		p.calls = append(p.calls, t.calls...)
	}
	for _, c := range append(p.calls, p.bulk.calls...) {
		if !c.left {
			c.left = true
			c.got <- grant{err: errGone}
		}
	}
	p.bulk.calls = nil
	p.waiting, p.calls, p.retries, p.gone = batch.Queue{}, nil, nil, 0
}
