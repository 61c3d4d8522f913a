package gateway

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/http/httputil"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/muster-gpu/muster/internal/token"
)

// Server is the gateway's HTTP handler.
type Server struct {
	clock     func() time.Time
	log       *slog.Logger
	access    *AccessLog
	limits    Limits
	transport *transport
	buffers   *buffers
	reverse   *httputil.ReverseProxy
	metrics   *metrics
	wake      alarm
	kept      atomic.Int64 // bytes of bodies in memory
	began     time.Time

	mu    sync.Mutex // of updates
	state atomic.Pointer[state]
}

// state is what the handlers look at: it is replaced as a whole.
type state struct {
	pools map[string]*pool
	paths map[string]*pool
	names []string
	inner []string        // of names: those that no caller can use
	keys  map[string]*key // by hash; nil: callers need none
}

type key struct {
	Key
	limit *rate.Limiter // nil: none
}

// Options are how a gateway runs.
type Options struct {
	Clock  func() time.Time
	Log    *slog.Logger // nil: the default
	Access *AccessLog   // nil: none is written
	Limits Limits
}

// Limits keep slow and hostile clients from holding what others need; 0 is the default of each.
type Limits struct {
	Header     time.Duration // for a request's head; 10 s
	Body       time.Duration // for its body, and longer while it comes at BodyRate; 30 s
	BodyRate   int64         // bytes per second; 64 KiB
	WriteStall time.Duration // for a client to take a part of its answer; a minute
	Idle       time.Duration // for the next request of a connection; two minutes
	Buffered   int64         // bytes of bodies in memory; 1 GiB
}

func (l Limits) orDefaults() Limits {
	return Limits{Header: cmp.Or(l.Header, 10*time.Second), Body: cmp.Or(l.Body, 30*time.Second),
		BodyRate: cmp.Or(l.BodyRate, 64<<10), WriteStall: cmp.Or(l.WriteStall, time.Minute),
		Idle: cmp.Or(l.Idle, 2*time.Minute), Buffered: cmp.Or(l.Buffered, 1<<30)}
}

// New makes a gateway that serves nothing yet.
func New(o Options) *Server {
	t, b := newTransport(o.Clock), &buffers{}
	s := &Server{clock: o.Clock, log: cmp.Or(o.Log, slog.Default()), access: o.Access, transport: t, buffers: b,
		reverse: newProxy(t, b, o.Clock), began: o.Clock(), limits: o.Limits.orDefaults()}
	s.reverse.ErrorLog = slog.NewLogLogger(s.log.Handler(), slog.LevelDebug)
	s.metrics = newMetrics(s)
	s.state.Store(&state{})
	return s
}

// Update takes over a configuration: what is new begins, what is gone ends, what waits and runs goes on.
func (s *Server) Update(c *Config) error {
	if err := c.Check(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.state.Load()
	next := &state{pools: map[string]*pool{}, paths: map[string]*pool{}}
	if c.NeedsKey || len(c.Keys) > 0 {
		next.keys = map[string]*key{}
	}
	for i := range c.Services {
		x := c.Services[i]
		p := old.pools[x.Name]
		if p == nil {
			p = &pool{server: s, name: x.Name, meters: s.metrics.of(x.Name)}
		}
		if err := p.update(x); err != nil {
			return err
		}
		next.pools[x.Name] = p
		next.names = append(next.names, x.Name)
		if x.Inner {
			next.inner = append(next.inner, x.Name)
		}
		if path := strings.Trim(x.Path, "/"); path != "" {
			next.paths[path] = p
		}
	}
	slices.Sort(next.names)
	for _, k := range c.Keys {
		n := &key{Key: k}
		if was := old.keys[k.Hash]; was != nil && was.Rate == k.Rate && was.Burst == k.Burst {
			n.limit = was.limit
		} else if k.Rate > 0 {
			n.limit = rate.NewLimiter(rate.Limit(k.Rate), max(1, k.Burst))
		}
		next.keys[k.Hash] = n
	}
	s.state.Store(next)
	for name, p := range old.pools {
		if next.pools[name] == nil {
			p.close()
			s.metrics.end(name)
		}
	}
	return nil
}

// Close ends what waits, and the connections to replicas that are not used.
func (s *Server) Close() {
	for _, p := range s.state.Load().pools {
		p.close()
	}
	s.transport.CloseIdleConnections()
}

// Report is what became of requests since the gateway began, by service.
func (s *Server) Report() *Report {
	st := s.state.Load()
	r := &Report{Began: s.began.UnixNano(), Services: make([]Served, 0, len(st.names))}
	for _, name := range st.names {
		r.Services = append(r.Services, st.pools[name].served())
	}
	return r
}

// fail answers with an error, in the form of the protocol that the caller speaks.
func (a *answer) fail(status int, text string) {
	a.Header().Set("Content-Type", "application/json")
	a.WriteHeader(status)
	var form any = map[string]string{"error": text}
	if a.openAI {
		kind := "invalid_request_error"
		if status >= 500 {
			kind = "server_error"
		}
		form = map[string]any{"error": map[string]any{"message": text, "type": kind, "code": status}}
	}
	_ = json.NewEncoder(a).Encode(form) // the client may be gone
}

func (a *answer) writeJSON(v any) {
	a.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(a).Encode(v) // the client may be gone
}

// statusLeft is what the log and the metrics call a request whose client left before there was an answer.
const statusLeft = 499

// ServeHTTP answers a request: the Open Inference Protocol below /v2, OpenAI's below /v1, anything else by its path.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := s.clock()
	a := &answer{ResponseWriter: w, server: s, control: http.NewResponseController(w), http2: r.ProtoMajor == 2}
	if r.Body != nil && r.Body != http.NoBody {
		body := &pacedBody{ReadCloser: r.Body, answer: a, began: began}
		body.setDeadline(began.Add(s.limits.Body)) // now: it holds for a body that is not read, too
		own := *r                                  // the server looks at the body of its request when it ends
		own.Body = body
		r = &own
	}
	defer func() { // also where the connection breaks in the middle, which the proxy reports as a panic
		if a.http2 {
			a.due = time.Time{}
			_ = a.control.SetWriteDeadline(s.clock().Add(s.limits.WriteStall)) // of what is not sent yet
		}
		s.account(a, began)
	}()
	st := s.state.Load()
	first, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	switch {
	case first == "v2":
		s.protocol(a, r, st, rest)
	case first == "v1":
		a.openAI = true
		s.openAI(a, r, st, rest)
	case st.paths[first] != nil:
		p := st.paths[first]
		if k, ok := s.caller(a, r, st); ok && s.may(a, k, p) && s.inRate(a, k) {
			s.proxy(a, r, p, forward{priority: k.priority(), prefix: "/" + first})
		}
	default:
		if _, ok := s.caller(a, r, st); ok { // without a key it is not said which paths there are
			a.fail(http.StatusNotFound, "no service answers at this path")
		}
	}
}

// account writes an answer into the metrics and the access log.
func (s *Server) account(a *answer, began time.Time) {
	now := s.clock()
	status := cmp.Or(a.status, statusLeft)
	service := ""
	if a.pool != nil {
		service = a.pool.name
		a.pool.meters.duration.Observe(now.Sub(began).Seconds())
		if !a.need.by.IsZero() {
			answered := status < 500 && status != http.StatusTooManyRequests && status != statusLeft
			a.pool.mu.Lock()
			a.pool.bulk.ends(a.need, answered, now)
			a.pool.mu.Unlock()
		}
	}
	s.metrics.count(service, status)
	s.access.write(a, service, status, began, now)
}

// noKey is the caller of a gateway without keys.
var noKey = &key{}

func (k *key) priority() int { return k.Priority }

// caller finds the caller's key; false: it has none, and the answer has been given.
func (s *Server) caller(a *answer, r *http.Request, st *state) (*key, bool) {
	if st.keys == nil {
		return noKey, true
	}
	kind, text, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(kind, "Bearer") {
		text = r.Header.Get("X-Api-Key")
	}
	k := st.keys[token.Hash(strings.TrimSpace(text))]
	if k == nil {
		a.Header().Set("WWW-Authenticate", "Bearer")
		a.fail(http.StatusUnauthorized, "a key is needed: Authorization: Bearer KEY")
		return nil, false
	}
	a.key = k.Name
	r.Header.Del("Authorization") // the key is the gateway's, not the replica's
	r.Header.Del("X-Api-Key")
	return k, true
}

func (k *key) allows(service string) bool {
	return len(k.Services) == 0 || slices.Contains(k.Services, service)
}

// may checks whether a key may use a service; false: the answer has been given.
func (s *Server) may(a *answer, k *key, p *pool) bool {
	a.pool = p
	if !k.allows(p.name) {
		a.fail(http.StatusForbidden, "this key is not for service "+p.name)
		return false
	}
	return true
}

// longestRetry bounds, in seconds, for how long a caller is told to wait.
const longestRetry = 3600

// inRate counts a request of a key and checks its rate; false: the answer has been given.
func (s *Server) inRate(a *answer, k *key) bool {
	if k.limit == nil || k.limit.AllowN(s.clock(), 1) {
		return true
	}
	a.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(min(longestRetry, 1/k.Rate)))))
	a.fail(http.StatusTooManyRequests, fmt.Sprintf("more than the %g requests a second of this key", k.Rate))
	return false
}

// noModel answers a request that names no service; the caller sees those that it may use.
func (s *Server) noModel(a *answer, st *state, k *key, name string) {
	a.Header().Set(UnknownHeader, "true")
	a.fail(http.StatusNotFound, fmt.Sprintf("no model %q; there are %s", name, strings.Join(st.visible(k), ", ")))
}

// visible is the names of the services that a key may use.
func (st *state) visible(k *key) []string {
	return slices.DeleteFunc(slices.Clone(st.names), func(n string) bool {
		return !k.allows(n) || slices.Contains(st.inner, n)
	})
}

// protocol answers the Open Inference Protocol, version 2.
func (s *Server) protocol(a *answer, r *http.Request, st *state, path string) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case path == "":
		a.writeJSON(map[string]any{"name": "muster-gateway", "version": "2", "extensions": []string{}})
		return
	case path == "health/live":
		a.writeJSON(map[string]bool{"live": true})
		return
	case path == "health/ready":
		if st.pools == nil {
			a.fail(http.StatusServiceUnavailable, "there is no configuration yet")
			return
		}
		a.writeJSON(map[string]bool{"ready": true})
		return
	case parts[0] != "models" || len(parts) < 2:
		a.fail(http.StatusNotFound, "the protocol has no such path")
		return
	}
	k, ok := s.caller(a, r, st)
	if !ok {
		return
	}
	p := st.named(parts[1])
	if p == nil {
		s.noModel(a, st, k, parts[1])
		return
	}
	if !s.may(a, k, p) || !s.inRate(a, k) {
		return
	}
	last := parts[len(parts)-1]
	switch {
	case last == "ready" && len(parts) == 3:
		if !st.ready(p) {
			a.fail(http.StatusServiceUnavailable, errNone.Error())
			return
		}
		a.writeJSON(map[string]bool{"ready": true})
	case last == "infer" && len(parts) == 3 && r.Method == http.MethodPost && p.votes():
		s.vote(a, r, st, p, k.priority())
	case last == "infer" && len(parts) == 3 && r.Method == http.MethodPost && p.largest() > 1 &&
		r.Header.Get("Inference-Header-Content-Length") == "": // then the data is binary, which is passed on as it is
		s.infer(a, r, p, k.priority())
	default: // metadata, other versions, extensions: the replica's
		s.proxy(a, r, p, forward{priority: k.priority(), inference: last == "infer"})
	}
}

// infer answers one request as part of a batch.
func (s *Server) infer(a *answer, r *http.Request, p *pool, priority int) {
	body, ok := s.readBody(a, r)
	if !ok {
		return
	}
	defer s.release(len(body))
	x, err := readInfer(body)
	if err != nil {
		a.fail(http.StatusBadRequest, err.Error())
		return
	}
	if most := p.largest(); x.n > most {
		a.tooMany(x.n, most)
		return
	}
	need, bulk, ok := bulkOf(a, r)
	if !ok {
		return
	}
	began := s.clock()
	g := p.wait(r.Context(), &call{infer: x, priority: priority, bulk: bulk, need: need})
	if g.to != nil {
		a.replica, a.batch = g.to.spec.ID, g.batch
	}
	if g.err != nil {
		if errors.Is(g.err, errReplica) || errors.Is(g.err, errSlow) {
			p.answered(s.clock().Sub(began), callersFault(g.err), bulk)
		}
		a.refuse(p, g)
		return
	}
	p.answered(s.clock().Sub(began), true, bulk)
	a.Header().Set("Content-Type", "application/json")
	_, _ = a.Write(g.answer) // the client may be gone
}

func (a *answer) tooMany(samples, most int) {
	text := fmt.Sprintf("%d samples; this model takes up to %d at once", samples, most)
	a.fail(http.StatusRequestEntityTooLarge, text)
}

// openAI answers OpenAI's interface: the model that the body names is the service.
func (s *Server) openAI(a *answer, r *http.Request, st *state, path string) {
	k, ok := s.caller(a, r, st)
	if !ok {
		return
	}
	if path, one, _ := strings.Cut(path, "/"); path == "models" && r.Method == http.MethodGet {
		list := []map[string]any{}
		for _, n := range st.visible(k) {
			model := map[string]any{"id": n, "object": "model", "owned_by": "muster"}
			if n == one {
				a.writeJSON(model)
				return
			}
			list = append(list, model)
		}
		if one != "" {
			s.noModel(a, st, k, one)
			return
		}
		a.writeJSON(map[string]any{"object": "list", "data": list})
		return
	}
	if !s.inRate(a, k) { // before its body takes room that others need
		return
	}
	body, ok := s.readBody(a, r)
	if !ok {
		return
	}
	defer s.release(len(body))
	model, err := modelOf(r.Header.Get("Content-Type"), body)
	if err == nil && model == "" {
		err = fmt.Errorf("model: the body names none; there are %s", strings.Join(st.visible(k), ", "))
	}
	if err != nil {
		a.fail(http.StatusBadRequest, err.Error())
		return
	}
	p := st.named(model)
	if p == nil {
		s.noModel(a, st, k, model)
		return
	}
	if !s.may(a, k, p) {
		return
	}
	f := forward{priority: k.priority(), inference: true, language: true, sent: len(body), came: s.clock()}
	if first := st.pools[p.prompts()]; first != nil && strings.HasSuffix(path, "completions") {
		if body, f.kept, ok = s.prompt(a, r, first, body, f.priority); !ok {
			return
		}
		defer f.kept.fetched() // or nothing will fetch it any more
	}
	setBody(r, body)
	s.proxyWhole(a, r, p, f)
}

// refuse says why a request was not answered, and when to try again.
func (a *answer) refuse(p *pool, g grant) {
	status := http.StatusServiceUnavailable
	var said *statusError
	switch {
	case errors.Is(g.err, errLeft):
		return // no client is left to answer
	case errors.Is(g.err, errFull) || errors.Is(g.err, errLate):
		status = http.StatusTooManyRequests
	case callersFault(g.err):
		errors.As(g.err, &said)
		a.fail(said.code, said.Error())
		return
	case errors.As(g.err, &said) && (said.code == status || said.code == http.StatusTooManyRequests):
		status = said.code // it has too much to do
	case errors.Is(g.err, errReplica):
		a.fail(http.StatusBadGateway, g.err.Error())
		return
	case errors.Is(g.err, errSlow):
		a.fail(http.StatusGatewayTimeout, g.err.Error())
		return
	case errors.Is(g.err, errGone):
		a.fail(http.StatusNotFound, g.err.Error())
		return
	}
	a.Header().Set("Retry-After", strconv.Itoa(int(min(60, max(1, p.backlog().Seconds())))))
	a.fail(status, g.err.Error())
}

// named is the service that a caller names; nil: there is none.
func (st *state) named(name string) *pool {
	if slices.Contains(st.inner, name) {
		return nil
	}
	return st.pools[name]
}

// votes reports whether other services answer for this one.
func (p *pool) votes() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.spec.Voters) > 0
}

// ready reports whether a replica answers, of a service or of one that votes for it.
func (st *state) ready(p *pool) bool {
	p.mu.Lock()
	list := p.spec.Voters
	p.mu.Unlock()
	return p.ready() || slices.ContainsFunc(list, func(v Voter) bool { return st.pools[v.Name].ready() })
}

// prompts is the name of the service that computes prompts; "": its own replicas do.
func (p *pool) prompts() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.spec.Prompts
}

// largest is the largest batch.
func (p *pool) largest() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.spec.Batch
}

func (p *pool) ready() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.serving() > 0
}

// backlog is about how long the replicas have to do with what waits: before, it is no use to try again.
func (p *pool) backlog() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.serving() == 0 {
		return millis(p.spec.ColdMS)
	}
	atOnce := 0
	for _, r := range p.replicas {
		atOnce += p.atOnce(r) * max(1, p.spec.Batch)
	}
	return time.Duration(float64(p.fastest()) * float64(p.waitingNow()) / float64(max(1, atOnce)))
}
