package main

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/muster-gpu/muster/web"
)

// codeFor is how long the link to the dashboard works that has not been opened.
const codeFor = 2 * time.Minute

// door lets one browser in: it brings the code of the link, once, and is given a
// cookie. Everybody on this machine can reach the port.
type door struct {
	mu      sync.Mutex
	code    string // "": it was used
	until   time.Time
	session string
	cookie  string
	now     func() time.Time
	next    http.Handler
	pages   *http.ServeMux
}

// serveDashboard serves the dashboard of a cluster at a loopback address until
// the context ends.
func serveDashboard(ctx context.Context, out io.Writer, address string, next http.Handler, now func() time.Time) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	at, ok := l.Addr().(*net.TCPAddr)
	if !ok || !at.IP.IsLoopback() {
		return errors.Join(fmt.Errorf("%w: --dashboard %s: only an address of this machine alone will do, such as 127.0.0.1:0: who reaches the port acts as you", errUsage, address), l.Close())
	}
	d := &door{code: rand.Text() + rand.Text(), until: now().Add(codeFor), session: rand.Text() + rand.Text(),
		cookie: fmt.Sprintf("muster_cluster_%d", at.Port),
		now:    now, next: next, pages: http.NewServeMux()}
	for pattern, page := range web.Pages() {
		d.pages.HandleFunc(pattern, page)
	}
	s := &http.Server{Handler: d, ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 64 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx }}
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stop()
	if _, err := fmt.Fprintf(out, "http://%s/login?code=%s\n", l.Addr(), d.code); err != nil {
		return err
	}
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	host, _, err := net.SplitHostPort(r.Host)
	if ip := net.ParseIP(host); err != nil || host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		// a name that was made to point here
		deny(w, http.StatusMisdirectedRequest, "this is not the address of the dashboard")
		return
	}
	switch {
	case r.URL.Path == "/login":
		d.login(w, r)
	case !strings.HasPrefix(r.URL.Path, "/v1/"):
		d.pages.ServeHTTP(w, r) // they hold nothing
	case !d.knows(r):
		deny(w, http.StatusUnauthorized, "this browser was not let in: open the link that muster dashboard prints")
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		deny(w, http.StatusNotImplemented, "a cluster is only shown here; kubectl changes it")
	default:
		d.next.ServeHTTP(w, r)
	}
}

func (d *door) knows(r *http.Request) bool {
	c, err := r.Cookie(d.cookie)
	return err == nil && subtle.ConstantTimeCompare([]byte(c.Value), []byte(d.session)) == 1
}

// login takes the code and lets the browser in that brings it.
func (d *door) login(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	ok := d.code != "" && d.now().Before(d.until) &&
		subtle.ConstantTimeCompare([]byte(r.URL.Query().Get("code")), []byte(d.code)) == 1
	if ok {
		d.code = ""
	}
	d.mu.Unlock()
	if !ok {
		deny(w, http.StatusForbidden,
			"the link was used before, or is older than two minutes: muster dashboard makes another")
		return
	}
	http.SetCookie(w, &http.Cookie{Name: d.cookie, Value: d.session, Path: "/", HttpOnly: true,
		SameSite: http.SameSiteStrictMode})
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	// The page goes on by itself: a redirect would count as coming from where
	// the link was, and the cookie would not be sent along.
	_, _ = io.WriteString(w,
		"<!doctype html><meta charset=utf-8><meta http-equiv=refresh content=\"0; url=/\"><title>Muster</title><a href=\"/\">Muster</a>\n")
}
