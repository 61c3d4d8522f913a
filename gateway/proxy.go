package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/muster-gpu/muster/gateway/http1"
	"github.com/muster-gpu/muster/serving/tally"
)

// buffers are shared by all copies of bodies. They are small, because each open stream holds one.
type buffers struct{ pool sync.Pool }

const bufferSize = 8 << 10

func (b *buffers) Get() []byte {
	if p, ok := b.pool.Get().(*[]byte); ok {
		return *p
	}
	return make([]byte, bufferSize)
}

func (b *buffers) Put(p []byte) { b.pool.Put(&p) }

var errSlow = errors.New("the replica does not answer in time")

// forward is how a request is passed on.
type forward struct {
	priority   int
	prefix     string    // of its path, which the replica does not see
	inference  bool      // it only has a model compute
	repeatable bool      // it may be answered twice
	bulk       bool      // it waits for whatever the others leave
	language   bool      // it is for a language model, whose tokens count
	sent       int       // bytes of its body, if it is
	came       time.Time // zero: when it is passed on
	kept       *kept     // of its prompt, at another replica; nil: nothing
}

// attempt is a request that a replica has been given; it travels in the context of requests to the reverse proxy.
type attempt struct {
	forward
	to           *replica
	began        time.Time
	first        time.Duration // until the answer began
	status       int           // 0: no answer came
	err          error         // why the replica failed
	complete     bool          // the answer has come whole
	clientFailed bool          // to send its body: the replica is not to blame
	gotByte      atomic.Bool   // of the answer
	replayable   bool          // the body is in memory, and this is the first attempt
	retry        bool          // another replica is to be asked
	watchdog     *time.Timer   // fires when the replica has been silent for too long
	stall        time.Duration // longest silence once it has begun to answer
	clock        func() time.Time
	stream       *stream // nil: the answer is not a stream
	tail         []byte  // the end of a language model's answer
}

type attemptKey struct{}

// newProxy passes requests on to the replica of their attempt, bodies and streams as they come: those requests that
// relay does not pass on directly.
func newProxy(transport http.RoundTripper, pool *buffers, clock func() time.Time) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Transport: tracer{transport}, BufferPool: pool,
		Rewrite: func(p *httputil.ProxyRequest) {
			x := attemptOf(p.In)
			if x.prefix != "" {
				p.Out.URL.Path = strings.TrimPrefix(p.Out.URL.Path, x.prefix)
				p.Out.URL.RawPath = strings.TrimPrefix(p.Out.URL.RawPath, x.prefix)
			}
			p.SetURL(x.to.url)
			p.Out.Host = p.In.Host
			p.SetXForwarded()
		},
		ModifyResponse: func(r *http.Response) error {
			if r.StatusCode < http.StatusContinue {
				return fmt.Errorf("%d is no status", r.StatusCode)
			}
			x := attemptOf(r.Request)
			x.answers(r, clock().Sub(x.began))
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			attemptOf(r).fails(r.Context(), w.(*answer), err)
		},
	}
}

// transport sends requests to replicas: plain ones by a client that does not change goroutines; what needs TLS, and
// may be HTTP/2, by net/http's.
type transport struct {
	plain  *http1.Client
	secure *http.Transport
}

func newTransport(clock func() time.Time) *transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.Proxy, t.MaxIdleConns, t.MaxIdleConnsPerHost, t.DisableCompression = nil, 0, 1024, true
	t.MaxResponseHeaderBytes = 256 << 10
	return &transport{http1.New(clock), t}
}

// RoundTrip sends a request.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme == "https" {
		return t.secure.RoundTrip(r)
	}
	return t.plain.RoundTrip(r)
}

func (t *transport) CloseIdleConnections() {
	t.plain.CloseIdleConnections()
	t.secure.CloseIdleConnections()
}

func attemptOf(r *http.Request) *attempt { return r.Context().Value(attemptKey{}).(*attempt) }

// tracer notes when the first byte of an answer comes. The reverse proxy makes a trace for each request, which is
// used, since joining two traces costs more than the rest of the gateway.
type tracer struct{ http.RoundTripper }

// RoundTrip sends a request.
func (t tracer) RoundTrip(r *http.Request) (*http.Response, error) {
	x := attemptOf(r)
	if trace := httptrace.ContextClientTrace(r.Context()); trace != nil {
		trace.GotFirstResponseByte = func() { x.gotByte.Store(true) }
	}
	return t.RoundTripper.RoundTrip(r)
}

// answers takes the head of a replica's answer.
func (x *attempt) answers(r *http.Response, after time.Duration) {
	x.status, x.first = r.StatusCode, after
	x.watchdog.Stop()
	if strings.HasPrefix(r.Header.Get("Content-Type"), "text/event-stream") {
		x.stream = &stream{clock: x.clock}
	}
	if r.StatusCode != http.StatusSwitchingProtocols { // there the body is the connection, which may be quiet
		r.Body = &watchedBody{r.Body, x}
	}
}

// watchedBody is a replica's answer that must keep coming.
type watchedBody struct {
	io.ReadCloser
	attempt *attempt
}

func (b *watchedBody) Read(p []byte) (int, error) {
	x := b.attempt
	x.watchdog.Reset(x.stall)
	n, err := b.ReadCloser.Read(p)
	x.watchdog.Stop()
	if n > 0 && x.stream != nil {
		x.stream.part(p[:n])
		x.kept.fetched()
	}
	if n > 0 && x.language {
		x.end(p[:n])
	}
	switch {
	case err == io.EOF:
		x.complete = true
	case err != nil:
		x.err = err
	}
	return n, err
}

// stream is an answer of server-sent events, each of which is taken for a token.
type stream struct {
	clock       func() time.Time
	first, last time.Time
	events      int
}

func (s *stream) part(p []byte) {
	s.last = s.clock()
	if s.first.IsZero() {
		s.first = s.last
	}
	s.events += bytes.Count(p, []byte("\n\n")) + bytes.Count(p, []byte("\n\r\n"))
}

// count counts the stream as the answer to a request that came at an instant.
func (s *stream) count(t *tally.Tally, came time.Time) {
	if s.events == 0 {
		return
	}
	t.TTFT.Add(s.first.Sub(came), 1)
	if s.events > 1 {
		t.TPOT.Add(s.each(), 1)
	}
}

// each is the mean time of an event after the first.
func (s *stream) each() time.Duration { return s.last.Sub(s.first) / time.Duration(max(1, s.events-1)) }

// fails answers for a replica that did not, unless another can be asked.
func (x *attempt) fails(ctx context.Context, w *answer, err error) {
	if slow := context.Cause(ctx); errors.Is(slow, errSlow) {
		x.err = slow
		w.fail(http.StatusGatewayTimeout, slow.Error())
		return
	}
	if errors.Is(context.Cause(ctx), errYield) {
		w.Header().Set("Retry-After", "1")
		w.fail(http.StatusServiceUnavailable, errYield.Error())
		return
	}
	var body bodyError
	switch {
	case ctx.Err() != nil:
		return // no client is left to answer
	case errors.As(err, &body):
		x.clientFailed = true
		w.refuseBody(body.error)
		return
	}
	x.err = err
	var dial *net.OpError
	unsent := errors.As(err, &dial) && dial.Op == "dial"
	if x.replayable && !x.bulk && !x.gotByte.Load() && (unsent || x.repeatable) {
		x.retry = true
		return
	}
	w.fail(http.StatusBadGateway, errReplica.Error()+": "+err.Error())
}

// bodyError is an error of the client's body, not of the replica.
type bodyError struct{ error }

func (e bodyError) Unwrap() error { return e.error }

// idempotent reports whether a request has the same effect if it is answered twice, by its method (RFC 9110, section
// 9.2.2), or because it says so.
func idempotent(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	return r.Header.Get("Idempotency-Key") != ""
}

// pass gives a request to a replica that was granted, and to another if that one died before it answered.
func (s *Server) pass(a *answer, r *http.Request, p *pool, to *replica, came time.Time, f forward) {
	x := s.try(a, r, p, to, came, f, true)
	if !x.retry {
		return
	}
	g := p.secondReplica(r.Context(), to, came)
	if errors.Is(g.err, errReplica) { // what it was granted is otherwise counted already
		p.answered(0, false, f.bulk)
	}
	if g.err != nil {
		if !errors.Is(g.err, errLeft) {
			a.fail(http.StatusBadGateway, errReplica.Error()+": "+x.err.Error())
		}
		return
	}
	if r.GetBody != nil {
		r.Body, _ = r.GetBody() // a reader of bytes: no error
	}
	s.try(a, r, p, g.to, came, f, false)
}

// try gives a request to a replica.
func (s *Server) try(a *answer, r *http.Request, p *pool, to *replica, came time.Time, f forward, first bool) *attempt {
	ctx, cancel := context.WithCancelCause(r.Context())
	wait, stall := p.times()
	x := &attempt{forward: f, to: to, began: s.clock(), clock: s.clock, stall: stall,
		replayable: first && (r.GetBody != nil || r.ContentLength == 0)}
	x.watchdog = time.AfterFunc(wait, func() { cancel(errSlow) })
	if b, ok := r.Body.(*passedBody); ok {
		b.progress = func() { x.watchdog.Reset(wait) }
	}
	a.replica = to.spec.ID
	f.kept.given()
	if f.bulk {
		p.yields(x, cancel)
	}
	defer func() { // also where the connection breaks in the middle, which the proxy reports as a panic
		x.watchdog.Stop()
		left := x.clientFailed || r.Context().Err() != nil && !x.complete
		slow, yielded := errors.Is(context.Cause(ctx), errSlow), errors.Is(context.Cause(ctx), errYield)
		cancel(nil)
		now := s.clock()
		overload := x.status == http.StatusServiceUnavailable || x.status == http.StatusTooManyRequests
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.bulk.running, x)
		if x.complete && x.stream == nil && x.status/100 == 2 && p.spec.Batch == 1 &&
			(f.inference && !f.language || p.spec.Path != "") {
			p.countBatch(to, 1, to.each(x.began, now), f.bulk)
		}
		p.finish(to, result{took: now.Sub(x.began), bulk: f.bulk, first: x.first, overload: overload, left: left &&
			!slow || yielded,
			failed: slow || !left && x.err != nil || x.status == http.StatusBadGateway ||
				x.status == http.StatusServiceUnavailable})
		switch {
		case x.retry, yielded:
		case left && !slow:
			p.count.left++
		default:
			well := x.err == nil && x.status != 0 && x.status < http.StatusInternalServerError
			if well && f.language && !f.bulk && x.status < http.StatusBadRequest {
				p.countLanguage(x, came, now)
				break
			}
			p.countAnswer(now.Sub(came), well, f.bulk)
			if x.stream != nil && x.err == nil && !f.bulk {
				x.stream.count(&p.count.Tally, came)
			}
		}
		p.dispatch()
	}()
	s.relay(ctx, a, r, x)
	return x
}

// passedBody is a body that is too large to be kept: what has been read, then the rest as it comes.
type passedBody struct {
	io.Reader
	*pacedBody
}

func (b *passedBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err != nil && err != io.EOF {
		err = bodyError{err}
	}
	return n, err
}

// proxy waits for a replica and passes the request on. Its body is read before, so that a slow client holds no replica.
func (s *Server) proxy(a *answer, r *http.Request, p *pool, f forward) {
	body, whole, err := s.keep(r, replayedBody)
	if err != nil {
		a.refuseBody(err)
		return
	}
	defer s.release(len(body))
	switch paced, ok := r.Body.(*pacedBody); {
	case whole:
		setBody(r, body)
	case ok:
		r.Header.Del("Expect") // the client has been told to continue
		r.Body = &passedBody{io.MultiReader(bytes.NewReader(body), paced), paced}
	}
	s.proxyWhole(a, r, p, f)
}

// setBody gives a request a body that is in memory.
func setBody(r *http.Request, body []byte) {
	r.Header.Del("Expect") // the client has been told to continue
	r.ContentLength, r.TransferEncoding = int64(len(body)), nil
	if len(body) == 0 {
		r.Body, r.GetBody = http.NoBody, nil
		return
	}
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	r.Body, _ = r.GetBody() // no error, see above
}

// proxyWhole passes on a request whose body has been seen to.
func (s *Server) proxyWhole(a *answer, r *http.Request, p *pool, f forward) {
	need, bulk, ok := bulkOf(a, r)
	if !ok {
		return
	}
	if strings.ContainsFunc(r.Header.Get("Upgrade"), func(c rune) bool { return c < ' ' || c > '~' }) {
		a.fail(http.StatusBadRequest, "Upgrade: the name of a protocol is printable")
		return
	}
	r.Header.Del(BulkHeader)
	f.bulk = bulk
	began := f.came
	if began.IsZero() {
		began = s.clock()
	}
	g := p.wait(r.Context(), &call{priority: f.priority, bulk: bulk, need: need})
	if g.err != nil {
		a.refuse(p, g)
		return
	}
	f.repeatable = f.inference || idempotent(r)
	s.pass(a, r, p, g.to, began, f)
}
