package front

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/api"
)

// How long what the API server said of a user holds - a no shorter, because it
// is often followed by a right - and when what it said of
// its own proxy is asked again.
const (
	cacheFor   = 10 * time.Second
	refusedFor = 2 * time.Second
	cacheMost  = 10_000
	proxyFor   = time.Minute
	proxyAgain = 5 * time.Second
)

// cache remembers answers for a short while.
type cache[V any] struct {
	most int // 0: cacheMost
	mu   sync.Mutex
	m    map[string]kept[V]
}

type kept[V any] struct {
	v     V
	until time.Time
}

func (c *cache[V]) get(key string, now time.Time) (v V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k, ok := c.m[key]
	return k.v, ok && now.Before(k.until)
}

func (c *cache[V]) put(key string, v V, until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.m == nil || len(c.m) >= cmp.Or(c.most, cacheMost) {
		c.m = map[string]kept[V]{}
	}
	c.m[key] = kept[V]{v, until}
}

func keep(yes bool) time.Duration {
	if yes {
		return cacheFor
	}
	return refusedFor
}

// person is who asks, as the cluster knows them.
type person struct {
	f      *Front
	ctx    context.Context // of the request: what they may is asked within it
	name   string
	uid    string
	groups []string
	extra  map[string][]string
}

func (p *person) in(ctx context.Context) *person {
	q := *p
	q.ctx = ctx
	return &q
}

// Me is the person. An admin is who may change queues.
func (p *person) Me() api.Me {
	me := api.Me{User: p.name, Role: api.RoleUser, ReadOnly: true}
	if p.may(authorizationv1.ResourceAttributes{Group: "muster.sh", Resource: "queues", Verb: "update"}) {
		me.Role, me.Admin = api.RoleAdmin, true
	}
	return me
}

// Owns reports whether a user may see a namespace's jobs in full: whether the user may get
// its pods.
func (p *person) Owns(namespace string) bool {
	return p.may(authorizationv1.ResourceAttributes{Resource: "pods", Verb: "get", Namespace: namespace})
}

func (p *person) may(a authorizationv1.ResourceAttributes) bool {
	ok, err := p.f.allowed(p.ctx, p, &a)
	return ok && err == nil
}

// key tells people apart, with all that rights may depend on.
func (p *person) key() string {
	text, err := json.Marshal([]any{p.name, p.uid, p.groups, p.extra})
	if err != nil {
		panic(err) // of texts
	}
	return string(text)
}

// identify is who a request comes from. What the API server's proxy says counts
// only if it shows the certificate that the cluster names for it.
func (f *Front) identify(r *http.Request) (*person, error) {
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		return f.viaProxy(r)
	}
	kind, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	switch {
	case r.Header.Get("Authorization") == "":
		return nil, errors.New(nobody)
	case !ok || !strings.EqualFold(kind, "Bearer") || token == "":
		return nil, errors.New("the header Authorization must be: Bearer, a space, a token")
	}
	return f.byToken(r.Context(), token)
}

// byToken asks the API server whose token it is.
func (f *Front) byToken(ctx context.Context, token string) (*person, error) {
	key := fmt.Sprintf("%x", sha256.Sum256([]byte(token)))
	now := f.opt.Now()
	p, ok := f.people.get(key, now)
	if !ok {
		t, err := f.opt.Client.AuthenticationV1().TokenReviews().Create(ctx,
			&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
		if err != nil {
			return nil, fmt.Errorf("the API server cannot be asked whose token it is: %w", err)
		}
		if t.Status.Authenticated {
			p = &person{f: f, name: t.Status.User.Username, uid: t.Status.User.UID, groups: t.Status.User.Groups,
				extra: map[string][]string{}}
			for k, v := range t.Status.User.Extra {
				p.extra[k] = v
			}
		}
		f.people.put(key, p, now.Add(keep(p != nil)))
	}
	if p == nil {
		return nil, errors.New("the cluster does not know the token")
	}
	return p, nil
}

// may reports whether a user may use a route, and else what they lack. The
// route is a resource of the group view.muster.sh, as the API server reads it.
func (f *Front) may(r *http.Request, p *person, route string) (ok bool, why string, err error) {
	parts := strings.SplitN(strings.Trim(route, "/"), "/", 3)
	a := authorizationv1.ResourceAttributes{Group: Group, Version: Version, Resource: parts[0], Verb: "list"}
	if len(parts) > 1 {
		a.Name, a.Verb = parts[1], "get"
	}
	if len(parts) > 2 {
		a.Subresource = parts[2]
	}
	if watch := r.URL.Query().Get("watch"); watch == "true" || watch == "1" {
		a.Verb = "watch"
	}
	if r.Method == http.MethodPost {
		a.Verb = "create"
	}
	switch ok, err = f.allowed(r.Context(), p, &a); {
	case ok || err != nil:
		return ok, "", err
	case a.Verb == "create":
		return false, fmt.Sprintf(
			"%s may not create %s in the API group %s: a ClusterRole with that verb lets people have pods moved",
			p.name, a.Resource, Group), nil
	}
	return false, fmt.Sprintf("%s may not %s %s in the API group %s: a ClusterRole with the verbs get, list and watch on all of that group's resources lets people look", p.name, a.Verb,
		a.Resource, Group), nil
}

// allowed asks the API server whether a user may do something.
func (f *Front) allowed(ctx context.Context, p *person, a *authorizationv1.ResourceAttributes) (bool, error) {
	b := *a
	b.Name = "" // a right on one number would be no use to anybody; so the cache stays small
	key, now := fmt.Sprintf("%s\x00%v", p.key(), b), f.opt.Now()
	if ok, known := f.rights.get(key, now); known {
		return ok, nil
	}
	extra := map[string]authorizationv1.ExtraValue{}
	for k, v := range p.extra {
		extra[k] = v
	}
	s, err := f.opt.Client.AuthorizationV1().SubjectAccessReviews().Create(ctx,
		&authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: p.name, UID: p.uid, Groups: p.groups, Extra: extra, ResourceAttributes: &b}}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	f.rights.put(key, s.Status.Allowed, now.Add(keep(s.Status.Allowed)))
	return s.Status.Allowed, nil
}

// proxies is how the API server's proxy is known.
type proxies struct {
	mu     sync.Mutex
	at     time.Time
	roots  *x509.CertPool
	names  []string // of its certificate; none: any that the roots vouch for
	user   []string // headers
	group  []string
	extra  []string // prefixes
	uid    []string
	failed error
}

// viaProxy is the person whom the API server's proxy names.
func (f *Front) viaProxy(r *http.Request) (*person, error) {
	cert, now := r.TLS.PeerCertificates[0], f.opt.Now()
	between := x509.NewCertPool()
	for _, c := range r.TLS.PeerCertificates[1:] {
		between.AddCert(c)
	}
	px := &f.proxy
	px.mu.Lock()
	defer px.mu.Unlock()
	verify := func() error {
		if px.failed != nil {
			return px.failed
		}
		if _, err := cert.Verify(
			x509.VerifyOptions{Roots: px.roots, Intermediates: between, CurrentTime: now,
				KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
			return fmt.Errorf("the client certificate is not that of the API server's proxy: %w", err)
		}
		if len(px.names) > 0 && !slices.Contains(px.names, cert.Subject.CommonName) {
			return fmt.Errorf("the client certificate's name %q is none of those that the API server's proxy may have",
				cert.Subject.CommonName)
		}
		return nil
	}
	err := verify()
	if age := now.Sub(px.at); px.at.IsZero() || age >= proxyFor || err != nil && age >= proxyAgain {
		px.failed = px.read(r.Context(), f)
		px.at = now
		err = verify()
	}
	if err != nil {
		return nil, err
	}
	p := &person{f: f, name: first(r.Header, px.user), uid: first(r.Header, px.uid), extra: map[string][]string{}}
	if p.name == "" {
		return nil, errors.New("the API server's proxy does not say who asks")
	}
	for _, h := range px.group {
		p.groups = append(p.groups, r.Header.Values(h)...)
	}
	for name, values := range r.Header {
		for _, prefix := range px.extra {
			if len(name) > len(prefix) && strings.EqualFold(name[:len(prefix)], prefix) {
				k := strings.ToLower(name[len(prefix):])
				if plain, err := url.PathUnescape(k); err == nil {
					k = plain
				}
				p.extra[k] = append(p.extra[k], values...)
			}
		}
	}
	return p, nil
}

func first(h http.Header, names []string) string {
	for _, n := range names {
		if v := h.Get(n); v != "" {
			return v
		}
	}
	return ""
}

// read reads what the cluster says of its proxy.
func (px *proxies) read(ctx context.Context, f *Front) error {
	const where = "the ConfigMap extension-apiserver-authentication of kube-system"
	m, err := f.opt.Client.CoreV1().ConfigMaps("kube-system").Get(ctx, "extension-apiserver-authentication",
		metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("%s cannot be read, so that no request can come through the API server: %w", where, err)
	}
	px.roots = x509.NewCertPool()
	if !px.roots.AppendCertsFromPEM([]byte(m.Data["requestheader-client-ca-file"])) {
		return fmt.Errorf("%s holds no requestheader-client-ca-file: the API server has no aggregation layer", where)
	}
	for key, to := range map[string]*[]string{"requestheader-allowed-names": &px.names,
		"requestheader-username-headers": &px.user,
		"requestheader-group-headers":    &px.group, "requestheader-extra-headers-prefix": &px.extra,
		"requestheader-uid-headers": &px.uid} {
		*to = nil
		if text := m.Data[key]; text != "" {
			if err := json.Unmarshal([]byte(text), to); err != nil {
				return fmt.Errorf("%s: %s: %w", where, key, err)
			}
		}
	}
	return nil
}
