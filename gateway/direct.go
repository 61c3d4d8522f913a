package gateway

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// relay passes a request on to the replica of an attempt, and its answer back. Most are passed on directly; what is
// rare goes through net/http's reverse proxy, which does the same and takes longer.
func (s *Server) relay(ctx context.Context, a *answer, r *http.Request, x *attempt) {
	if x.plain(r) {
		s.direct(ctx, a, r, x)
		return
	}
	s.reverse.ServeHTTP(a, r.WithContext(context.WithValue(ctx, attemptKey{}, x)))
}

// plain reports whether a request can be passed on directly: its body is in memory, it asks for no other protocol, and
// its replica speaks HTTP without TLS.
func (x *attempt) plain(r *http.Request) bool {
	to := x.to.url
	return to.Scheme == "http" && to.Path == "" && to.RawQuery == "" &&
		r.Header["Upgrade"] == nil && r.Trailer == nil && (r.Body == nil || r.Body == http.NoBody || r.GetBody != nil)
}

// direct passes a plain request on, as httputil.ReverseProxy does, but without copying what does not change.
func (s *Server) direct(ctx context.Context, a *answer, r *http.Request, x *attempt) {
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotFirstResponseByte: func() { x.gotByte.Store(true) },
		Got1xxResponse: func(status int, h textproto.MIMEHeader) error {
			addHeader(a.Header(), http.Header(h))
			a.WriteHeader(status)
			clear(a.Header())
			return nil
		},
	})
	out := (&http.Request{Method: r.Method, Host: r.Host, URL: x.address(r.URL), Header: passedHeader(r),
		Body: r.Body, GetBody: r.GetBody, ContentLength: r.ContentLength}).WithContext(ctx)
	resp, err := s.transport.plain.RoundTrip(out)
	if err == nil && resp.StatusCode == http.StatusSwitchingProtocols {
		_ = resp.Body.Close()
		err = fmt.Errorf("it wants to switch protocol to %q, which nobody asked for", resp.Header.Get("Upgrade"))
	}
	if err != nil {
		x.fails(ctx, a, err)
		return
	}
	dropHopByHop(resp.Header)
	x.answers(resp, s.clock().Sub(x.began))
	announced := len(resp.Trailer)
	if announced > 0 {
		names := make([]string, 0, announced)
		for name := range resp.Trailer {
			names = append(names, name)
		}
		slices.Sort(names)
		resp.Header["Trailer"] = []string{strings.Join(names, ", ")}
	}
	addHeader(a.Header(), resp.Header)
	a.WriteHeader(resp.StatusCode)
	err = s.copyBody(a, resp, x.stream != nil || resp.ContentLength < 0)
	_ = resp.Body.Close()
	if err != nil { // the head has been sent, so all that can be done is to break off
		panic(http.ErrAbortHandler)
	}
	if len(resp.Trailer) > 0 {
		_ = a.FlushError() // or net/http would count a short body's bytes and send no trailers
	}
	for name, values := range resp.Trailer {
		if len(resp.Trailer) != announced {
			name = http.TrailerPrefix + name
		}
		a.Header()[name] = values
	}
}

// address is where the replica of an attempt is asked.
func (x *attempt) address(asked *url.URL) *url.URL {
	u := &url.URL{Scheme: x.to.url.Scheme, Host: x.to.url.Host, RawQuery: asked.RawQuery,
		Path: rooted(strings.TrimPrefix(asked.Path, x.prefix))}
	if asked.RawPath != "" {
		u.RawPath = rooted(strings.TrimPrefix(asked.RawPath, x.prefix))
	}
	const long = 10_000 // parsers limit the number of parameters
	if strings.ContainsAny(u.RawQuery, ";%") || len(u.RawQuery) > long {
		if q, err := url.ParseQuery(u.RawQuery); err != nil { // what parsers take for different things is left out
			u.RawQuery = q.Encode()
		}
	}
	return u
}

func rooted(path string) string {
	if strings.HasPrefix(path, "/") {
		return path
	}
	return "/" + path
}

// hopByHop are headers that concern one connection, beside those that Connection names (RFC 9110, section 7.6.1).
var hopByHop = []string{"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade"}

func dropHopByHop(h http.Header) {
	for _, list := range h["Connection"] {
		for name := range strings.SplitSeq(list, ",") {
			if name = textproto.TrimString(name); name != "" {
				h.Del(name)
			}
		}
	}
	for _, name := range hopByHop {
		delete(h, name)
	}
}

// passedHeader is the header of a request as a replica sees it: without what concerns the client's connection, and with
// who the client is, as the gateway knows it.
func passedHeader(r *http.Request) http.Header {
	h := make(http.Header, len(r.Header)+4)
	for name, values := range r.Header {
		h[name] = values
	}
	dropHopByHop(h)
	if httpguts.HeaderValuesContainsToken(r.Header["Te"], "trailers") {
		h["Te"] = []string{"trailers"}
	}
	delete(h, "Forwarded")
	delete(h, "X-Forwarded-For")
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		h["X-Forwarded-For"] = []string{host}
	}
	h["X-Forwarded-Host"] = []string{r.Host}
	proto := "http"
	if r.TLS != nil {
		proto = "https"
	}
	h["X-Forwarded-Proto"] = []string{proto}
	if _, has := h["User-Agent"]; !has {
		h["User-Agent"] = []string{""} // or net/http writes its own
	}
	return h
}

func addHeader(to, from http.Header) {
	for name, values := range from {
		to[name] = append(to[name], values...)
	}
}

// copyBody sends the body of an answer as it comes, each part at once if flush.
func (s *Server) copyBody(a *answer, resp *http.Response, flush bool) error {
	if flush {
		if err := a.FlushError(); err != nil {
			return err
		}
	}
	buf := s.buffers.Get()
	defer s.buffers.Put(buf)
	for {
		n, err := resp.Body.Read(buf)
		if n > 0 {
			if _, err := a.Write(buf[:n]); err != nil {
				return err
			}
			if flush {
				if err := a.FlushError(); err != nil {
					return err
				}
			}
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
	}
}
