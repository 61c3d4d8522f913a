//go:build linux

package server

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/internal/token"
	"github.com/muster-gpu/muster/local"
	"github.com/muster-gpu/muster/local/account"
	"github.com/muster-gpu/muster/local/rules"
	"github.com/muster-gpu/muster/store"
)

// world is a server of a machine on which all jobs are held, so nothing starts.
type world struct {
	t      testing.TB
	ctx    context.Context
	m      *local.Machine
	s      *Server
	h      http.Handler
	me     account.User
	tokens map[string]string // by caller: o(wner), s(tranger), p (operator), a(dmin)
}

func newWorld(t testing.TB) *world {
	t.Helper()
	me, err := account.UserOf(os.Getuid())
	if err != nil {
		t.Fatal(err)
	}
	spec, err := cluster.ParseShort("1x4xH100-80GB")
	if err != nil {
		t.Fatal(err)
	}
	spec.Nodes[0].Name = "box"
	ctx, stop := context.WithCancel(t.Context())
	m, err := local.Open(ctx,
		local.Options{Dir: t.TempDir(), Now: time.Now, Log: slog.New(slog.DiscardHandler), Shim: []string{"false"},
			Rules: config.Rules{Spec: *spec, Policy: "fifo", Placer: "best-fit"}})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	w := &world{t: t, ctx: ctx, m: m, s: New(m, Options{Info: Info{Version: "test"}, Hosts: []string{"box.example"}}),
		me: me, tokens: map[string]string{}}
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	w.h = w.s.guard(true)
	w.tokens["o"] = w.token(me.Name, api.RoleUser, time.Hour)
	for who, role := range map[string]string{"s": api.RoleUser, "p": api.RoleOperator, "a": api.RoleAdmin} {
		w.tokens[who] = w.token("somebody-else", role, time.Hour)
	}
	return w
}

// token makes a token in the store.
func (w *world) token(user, role string, valid time.Duration) string {
	w.t.Helper()
	text, hash := token.New()
	if _, err := w.m.Audit().AddToken(w.t.Context(),
		store.Token{Hash: hash, User: user, Role: role,
			Expires: time.Now().Add(valid).UnixNano()}); err != nil {
		w.t.Fatal(err)
	}
	return text
}

// job submits a held job as the owner.
func (w *world) job() int {
	w.t.Helper()
	ids, err := w.m.Submit(w.t.Context(), w.me,
		&api.Submission{Command: []string{"private"}, Hold: true, Env: []string{"KEY=hunter2"}}, "")
	if err != nil {
		w.t.Fatal(err)
	}
	return ids[0]
}

// answer is a recorder that ends a stream with its first flush.
type answer struct {
	*httptest.ResponseRecorder
	stop func()
}

func (a *answer) Flush() { a.stop() }

// ask makes a request as one of the callers; the names and values of the headers alternate.
func (w *world) ask(who, method, path, body string, header ...string) *httptest.ResponseRecorder {
	ctx, stop := context.WithCancel(w.ctx)
	defer stop()
	r := httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body))
	r.Host = "127.0.0.1:8765"
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if token := w.tokens[who]; token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	if host := r.Header.Get("Host"); host != "" {
		r.Host = host
	}
	out := &answer{httptest.NewRecorder(), stop}
	w.h.ServeHTTP(out, r)
	return out.ResponseRecorder
}

// mayUse lists the callers who may use each route: n (no identity), the o(wner) of the job, a s(tranger), an
// o(p)erator, an a(dmin).
var mayUse = map[string]string{
	"GET /healthz":                   "nospa",
	"GET /metrics":                   "ospa", // and everybody on this machine
	"GET /readyz":                    "nospa",
	"GET /login":                     "nospa",
	"GET /{$}":                       "nospa",
	"GET /jobs":                      "nospa",
	"GET /jobs/{id}":                 "nospa",
	"GET /submit":                    "nospa",
	"GET /services":                  "nospa",
	"GET /usage":                     "nospa",
	"GET /history":                   "nospa",
	"GET /assets/{name}":             "nospa",
	"GET /favicon.ico":               "nospa",
	"GET /openapi.json":              "nospa",
	"GET /openapi.yaml":              "nospa",
	"GET /openapi-3.0.json":          "nospa",
	"GET /openapi-3.0.yaml":          "nospa",
	"GET /schemas/{schema}":          "nospa",
	"GET /v1/me":                     "ospa",
	"POST /v1/logout":                "ospa",
	"POST /v1/dashboard":             "ospa",
	"GET /v1/tokens":                 "ospa",
	"POST /v1/tokens":                "ospa",
	"DELETE /v1/tokens/{id}":         "oa",
	"GET /v1/info":                   "ospa",
	"GET /v1/nodes":                  "ospa",
	"GET /v1/partitions":             "ospa",
	"GET /v1/queues":                 "ospa",
	"GET /v1/fair":                   "ospa",
	"GET /v1/usage":                  "ospa",
	"GET /v1/jobs/{id}/samples":      "ospa",
	"GET /v1/events":                 "ospa",
	"GET /v1/overview":               "ospa",
	"POST /v1/jobs":                  "ospa",
	"GET /v1/jobs":                   "ospa",
	"GET /v1/jobs/{id}":              "ospa",
	"GET /v1/jobs/{id}/why":          "ospa",
	"GET /v1/jobs/{id}/wait":         "ospa",
	"GET /v1/jobs/{id}/log":          "opa",
	"POST /v1/jobs/{id}/join":        "opa", // by the job's user, or root
	"GET /v1/jobs/{id}/tty":          "oa",
	"PATCH /v1/jobs/{id}":            "opa",
	"GET /v1/jobs/{id}/history":      "ospa",
	"POST /v1/nodes/{name}/drain":    "pa",
	"POST /v1/nodes/{name}/resume":   "pa",
	"GET /v1/audit":                  "ospa", // users see what concerns them
	"GET /v1/journal":                "a",
	"GET /v1/policy":                 "ospa",
	"GET /v1/speeds":                 "ospa",
	"POST /v1/policy":                "pa",
	"GET /v1/moves":                  "ospa",
	"POST /v1/moves":                 "pa",
	"POST /v1/config/reload":         "a",
	"POST /v1/jobs/{id}/signal":      "opa",
	"POST /v1/jobs/{id}/cancel":      "opa",
	"POST /v1/jobs/{id}/hold":        "opa",
	"POST /v1/jobs/{id}/release":     "opa",
	"POST /v1/jobs/{id}/requeue":     "opa",
	"POST /v1/jobs/{id}/suspend":     "opa",
	"POST /v1/jobs/{id}/resume":      "opa",
	"POST /v1/jobs/cancel":           "ospa", // other users' jobs are refused one by one
	"POST /v1/jobs/hold":             "ospa",
	"POST /v1/jobs/release":          "ospa",
	"GET /v1/services":               "ospa",
	"POST /v1/services":              "ospa",
	"GET /v1/services/{name}":        "ospa",
	"POST /v1/services/{name}/scale": "ospa", // whose service it is is the controller's business (serving/control)
	"DELETE /v1/services/{name}":     "ospa",
}

// bodies are the requests that routes need.
var bodies = map[string]string{
	"PATCH /v1/jobs/{id}":            `{"name": "other"}`,
	"POST /v1/jobs":                  `{"command": ["true"], "hold": true}`,
	"POST /v1/tokens":                `{}`,
	"POST /v1/policy":                `{"policy": "las", "dry_run": true}`,
	"POST /v1/moves":                 `{}`,
	"POST /v1/jobs/{id}/signal":      `{"signal": "USR1"}`,
	"POST /v1/jobs/cancel":           `{"names": ["none"]}`,
	"POST /v1/jobs/hold":             `{"names": ["none"]}`,
	"POST /v1/jobs/release":          `{"names": ["none"]}`,
	"POST /v1/services":              `{"text": "name: none"}`,
	"POST /v1/services/{name}/scale": `{"min": 1, "max": 1}`,
}

// Every role tries every route, on a job of its own or of another user; a route without an entry fails.
func TestAccess(t *testing.T) {
	w := newWorld(t)
	w.s.url.Store(new("http://127.0.0.1:8765"))
	routes := slices.Sorted(maps.Keys(access))
	if want := slices.Sorted(maps.Keys(mayUse)); !slices.Equal(routes, want) {
		t.Fatalf("the routes are\n%s\nthis test knows\n%s", strings.Join(routes, "\n"), strings.Join(want, "\n"))
	}
	for _, route := range w.s.routes() {
		if access[route] == "" {
			t.Errorf("%s: nobody may use it: it is missing in access", route)
		}
	}
	for _, route := range routes {
		method, pattern, _ := strings.Cut(route, " ")
		if _, p := w.s.mux.Handler(httptest.NewRequest(method, concrete(pattern, 1), nil)); p != route {
			t.Errorf("%s is in access, but %q answers", route, p)
		}
		for _, who := range []string{"n", "o", "s", "p", "a"} {
			got := w.ask(who, method, concrete(pattern, w.subject(route)), bodies[route])
			denied := got.Code == http.StatusUnauthorized || got.Code == http.StatusForbidden && pattern != "/login" ||
				strings.Contains(pattern, "/tokens/") && got.Code == http.StatusNotFound
			if want := !strings.Contains(mayUse[route], who); denied != want {
				t.Errorf("%s as %q: %d %s; denied should be %v", route, who, got.Code, got.Body, want)
			}
			if got.Code >= 400 && got.Header().Get("Content-Type") != "application/problem+json" {
				t.Errorf("%s as %q: %d is answered as %q", route, who, got.Code, got.Header().Get("Content-Type"))
			}
			if who == "n" && denied && got.Code != http.StatusUnauthorized {
				t.Errorf("%s without a name: %d, not 401", route, got.Code)
			}
		}
	}
}

// subject is the number that a route refers to: of a new job, one that is over, a new token of the owner.
func (w *world) subject(route string) int {
	switch {
	case !strings.Contains(route, "{id}"):
		return 1
	case strings.Contains(route, "/tokens/"):
		id, err := w.m.Audit().AddToken(w.t.Context(),
			store.Token{Hash: token.Secret(), User: w.me.Name, Role: api.RoleUser,
				Expires: time.Now().Add(time.Hour).UnixNano()})
		if err != nil {
			w.t.Fatal(err)
		}
		return int(id)
	}
	id := w.job()
	if strings.HasSuffix(route, "/wait") {
		if err := w.m.Act(w.t.Context(), id, "cancel", ""); err != nil {
			w.t.Fatal(err)
		}
	}
	return id
}

func concrete(pattern string, id int) string {
	return strings.NewReplacer("{id}", strconv.Itoa(id), "{name}", "box", "{schema}", "Job.json", "{$}",
		"").Replace(pattern)
}

// routes lists the routes that the server answers.
func (s *Server) routes() (list []string) {
	for path, item := range s.api.OpenAPI().Paths {
		for method, op := range map[string]*huma.Operation{"GET": item.Get, "POST": item.Post, "PATCH": item.Patch,
			"PUT": item.Put, "DELETE": item.Delete} {
			if op != nil {
				list = append(list, method+" "+path)
			}
		}
	}
	return append(list, s.plain...)
}

// What other users run, and where, is not shown; an environment only to its owner and admins.
func TestMasked(t *testing.T) {
	w := newWorld(t)
	id := w.job()
	for who, sees := range map[string][2]bool{"o": {true, true}, "s": {false, false}, "p": {true, false},
		"a": {true, true}} {
		for _, path := range []string{fmt.Sprintf("/v1/jobs/%d", id), fmt.Sprintf("/v1/jobs/%d/why", id), "/v1/jobs"} {
			text := w.ask(who, "GET", path, "").Body.String()
			sees := sees
			if path == "/v1/jobs" {
				sees[1] = false // a list has no environments at all
			}
			if got := [2]bool{strings.Contains(text, "\"private\"]"), strings.Contains(text, "hunter2")}; got != sees {
				t.Errorf("%s as %q: sees command, environment: %v, not %v\n%s", path, who, got, sees, text)
			}
		}
	}
}

// A token grants no more than its maker has, expires when it says so, and is nowhere in the store.
func TestTokens(t *testing.T) {
	w := newWorld(t)
	if got := w.ask("o", "POST", "/v1/tokens", `{"role": "admin"}`); got.Code != http.StatusForbidden {
		t.Errorf("a user makes an admin's token: %d", got.Code)
	}
	if got := w.ask("p", "POST", "/v1/tokens", `{"user": "`+w.me.Name+`"}`); got.Code != http.StatusForbidden {
		t.Errorf("an operator makes another's token: %d", got.Code)
	}
	var k api.Token
	got := w.ask("a", "POST", "/v1/tokens", `{"user": "ann", "role": "operator", "for": "30d", "name": "ci"}`)
	if err := json.Unmarshal(got.Body.Bytes(), &k); err != nil || k.Token == "" || k.User != "ann" {
		t.Fatalf("%d %s %v", got.Code, got.Body, err)
	}
	if days := time.Until(*k.Expires).Hours() / 24; days < 29 || days > 30 {
		t.Errorf("valid for %g days", days)
	}
	w.tokens["k"] = k.Token
	var me api.Me
	if err := json.Unmarshal(w.ask("k", "GET", "/v1/me", "").Body.Bytes(), &me); err != nil || me.User != "ann" ||
		me.Role != "operator" || me.Admin {
		t.Errorf("%+v %v", me, err)
	}
	if text := w.ask("a", "GET", "/v1/tokens", "").Body.String(); !strings.Contains(text, `"ci"`) ||
		strings.Contains(text, k.Token) {
		t.Errorf("the list: %s", text)
	}
	all, err := w.m.Audit().Tokens(t.Context())
	if err != nil || strings.Contains(fmt.Sprint(all), k.Token) {
		t.Errorf("the token is stored as it is: %v %v", all, err)
	}
	w.tokens["x"] = w.token("ann", api.RoleAdmin, -time.Second)
	for who, why := range map[string]string{"x": "expired"} {
		if got := w.ask(who, "GET", "/v1/me", ""); got.Code != http.StatusUnauthorized ||
			!strings.Contains(got.Body.String(), why) {
			t.Errorf("%s: %d %s", why, got.Code, got.Body)
		}
	}
	if got := w.ask("a", "DELETE", fmt.Sprintf("/v1/tokens/%d", k.ID), ""); got.Code != http.StatusNoContent {
		t.Errorf("revoke: %d %s", got.Code, got.Body)
	}
	if got := w.ask("k", "GET", "/v1/me", ""); got.Code != http.StatusUnauthorized {
		t.Errorf("a revoked token: %d", got.Code)
	}
}

// A link lets one browser in, once; changes need the token against forged requests (CSRF).
func TestSession(t *testing.T) {
	w := newWorld(t)
	w.s.url.Store(new("http://127.0.0.1:8765"))
	var link struct{ Path string }
	if err := json.Unmarshal(w.ask("o", "POST", "/v1/dashboard", "").Body.Bytes(), &link); err != nil {
		t.Fatal(err)
	}
	in := w.ask("", "GET", link.Path, "")
	cookies := in.Result().Cookies()
	if in.Code != http.StatusOK || len(cookies) != 1 || !cookies[0].HttpOnly ||
		cookies[0].SameSite != http.SameSiteStrictMode {
		t.Fatalf("%d %v", in.Code, cookies)
	}
	if again := w.ask("", "GET", link.Path, ""); again.Code != http.StatusForbidden {
		t.Errorf("the link works twice: %d", again.Code)
	}
	cookie := []string{"Cookie", cookies[0].Name + "=" + cookies[0].Value}
	var me api.Me
	if err := json.Unmarshal(w.ask("", "GET", "/v1/me", "", cookie...).Body.Bytes(), &me); err != nil ||
		me.User != w.me.Name || me.Role != api.RoleUser || me.CSRF == "" {
		t.Fatalf("%+v %v", me, err)
	}
	cancel := fmt.Sprintf("/v1/jobs/%d/cancel", w.job())
	if got := w.ask("", "POST", cancel, "", cookie...); got.Code != http.StatusForbidden ||
		!strings.Contains(got.Body.String(), "X-Muster-CSRF") {
		t.Errorf("a forged request: %d %s", got.Code, got.Body)
	}
	header := append(cookie, "X-Muster-CSRF", me.CSRF)
	if got := w.ask("", "POST", cancel, "", header...); got.Code != http.StatusOK {
		t.Errorf("cancel: %d %s", got.Code, got.Body)
	}
	if got := w.ask("", "POST", "/v1/logout", "", header...); got.Code != http.StatusNoContent {
		t.Errorf("logout: %d %s", got.Code, got.Body)
	}
	if got := w.ask("", "GET", "/v1/me", "", cookie...); got.Code != http.StatusUnauthorized {
		t.Errorf("after the logout: %d", got.Code)
	}
}

// A host name that was made to point here is refused; addresses and the server's own names are answered.
func TestHosts(t *testing.T) {
	w := newWorld(t)
	for host, want := range map[string]int{"evil.example": 421, "evil.example:8765": 421, "": 200,
		"localhost:8765": 200, "127.0.0.1": 200,
		"[::1]:8765": 200, "10.0.0.7:8765": 200, "Box.Example:8765": 200, "127.0.0.1.evil.example": 421} {
		if got := w.ask("o", "GET", "/v1/me", "", "Host", host); got.Code != want {
			t.Errorf("Host %q: %d, not %d", host, got.Code, want)
		}
	}
}

// A missing route and a wrong method are answered with problems, like all errors.
func TestNoRoute(t *testing.T) {
	w := newWorld(t)
	for path, want := range map[string]int{"/v1/nothing": 404, "/v1/nodes": 405, "/v1/jobs/x/log": 405} {
		got := w.ask("o", "POST", path, "")
		if got.Code != want || got.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("POST %s: %d %s", path, got.Code, got.Body)
		}
	}
	if got := w.ask("o", "GET", "/v1/jobs/x/log", ""); got.Code != 404 ||
		!strings.Contains(got.Body.String(), "not the number of a job") {
		t.Errorf("%d %s", got.Code, got.Body)
	}
	if got := w.ask("o", "GET", fmt.Sprintf("/v1/jobs/%d/log?from=-x", w.job()), ""); got.Code != 422 {
		t.Errorf("%d %s", got.Code, got.Body)
	}
}

// The user who runs the daemon is an admin at its socket; named users have their role.
func TestRoles(t *testing.T) {
	r := Roles{Operators: rules.Members{Users: []string{"ann"}}, Admins: rules.Members{Groups: []string{"root"}}}
	for _, c := range []struct {
		u    account.User
		want string
	}{{account.User{Name: "x", UID: 0}, api.RoleAdmin}, {account.User{Name: "x", UID: os.Getuid()}, api.RoleAdmin},
		{account.User{Name: "ann", UID: 77777, GID: 5}, api.RoleOperator},
		{account.User{Name: "bob", UID: 77778, GID: 5, Groups: []int{0}}, api.RoleAdmin},
		{account.User{Name: "eve", UID: 77779, GID: 5}, api.RoleUser}} {
		if got := r.roleOf(&c.u); got != c.want {
			t.Errorf("%+v: %s, not %s", c.u, got, c.want)
		}
	}
}
