package gateway

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// overheard are two connections' worth of a proxied request: what the replica was asked, and what the client was told.
type overheard struct{ asked, told string }

// dates are the header lines that differ from one second to the next, also after informational answers.
var dates = regexp.MustCompile(`(?m)^Date:.*\r\n`)

// sorted is a message with its header lines in order, without the date.
func sorted(message string) string {
	head, body, _ := strings.Cut(dates.ReplaceAllString(message, ""), "\r\n\r\n")
	lines := strings.Split(head, "\r\n")
	slices.Sort(lines[1:])
	return strings.Join(lines, "\n") + "\n\n" + body
}

// passes sends a request through one of the two ways to a replica that gives an answer.
func passes(t *testing.T, request, answers string, directly bool) (o overheard) {
	t.Helper()
	back, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer back.Close()
	var wg sync.WaitGroup
	wg.Go(func() {
		c, err := back.Accept()
		if err != nil {
			return // it was never asked
		}
		defer c.Close()
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
		buf, text, end := make([]byte, 64<<10), "", "\r\n\r\n"
		if strings.Contains(request, "done") { // the body may come after the head
			end = "done"
		}
		for !strings.HasSuffix(text, end) {
			n, err := c.Read(buf)
			if err != nil {
				break
			}
			text += string(buf[:n])
		}
		o.asked = text
		_, _ = io.WriteString(c, answers)
	})
	s := New(Options{Clock: time.Now})
	defer s.Close()
	to, err := url.Parse("http://" + back.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := &answer{ResponseWriter: w, server: s, control: http.NewResponseController(w)}
		x := &attempt{forward: forward{prefix: "/app"}, to: &replica{url: to}, began: time.Now(), clock: time.Now,
			stall: time.Minute, watchdog: time.NewTimer(time.Minute)}
		body, whole, err := s.keep(r, replayedBody)
		if err != nil || !whole {
			t.Error(whole, err)
		}
		setBody(r, body)
		if directly {
			s.direct(r.Context(), a, r, x)
		} else {
			s.reverse.ServeHTTP(a, r.WithContext(context.WithValue(r.Context(), attemptKey{}, x)))
		}
	}))
	defer front.Close()
	o.told, _ = rest(t, dial(t, front.URL, request))
	_ = back.Close()
	wg.Wait()
	o.asked = sorted(strings.ReplaceAll(o.asked, to.Host, "REPLICA"))
	o.told = sorted(strings.ReplaceAll(o.told, to.Host, "REPLICA"))
	return o
}

// What is passed on directly reaches the replica, and its answer the client, as through net/http's reverse proxy, whose
// rules (RFC 9110, section 7.6; trailers; informational answers) are those of users' other proxies.
func TestDirect(t *testing.T) {
	const text = "Content-Type: text/plain\r\n\r\n"
	const ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
	get := func(line string, header ...string) string {
		return line + " HTTP/1.1\r\nHost: muster.example\r\nConnection: close\r\n" + strings.Join(header, "") + "\r\n"
	}
	for name, c := range map[string]struct{ request, answers string }{
		"plain":       {get("GET /app/x?a=1"), ok},
		"no path":     {get("GET /app"), ok},
		"escaped":     {get("GET /app/a%2Fb/c%20d?q=%20+x%3B"), ok},
		"bad query":   {get("GET /app/x?a=1;b=2&c=%zz&d=4"), ok},
		"long query":  {get("GET /app/x?" + strings.Repeat("a&", 10_100)), ok},
		"hop by hop":  {get("GET /app/x", "Connection: X-Mine, close\r\n", "X-Mine: 1\r\n", "Keep-Alive: 5\r\n"), ok},
		"more hops":   {get("GET /app/x", "Proxy-Authorization: x\r\n", "Proxy-Connection: x\r\n", "Te: gzip\r\n"), ok},
		"trailers":    {get("GET /app/x", "Te: trailers, deflate\r\n", "Trailer: A\r\n"), ok},
		"whose":       {get("GET /app/x", "X-Forwarded-For: 1.1.1.1\r\n", "Forwarded: for=1.1.1.1\r\n"), ok},
		"whose host":  {get("GET /app/x", "X-Forwarded-Host: evil\r\n", "X-Forwarded-Proto: https\r\n"), ok},
		"agent":       {get("GET /app/x", "User-Agent: x/1\r\n", "Cookie: a\r\n", "Cookie: b\r\n"), ok},
		"body":        {get("POST /app/x", "Content-Length: 4\r\n") + "done", ok},
		"empty body":  {get("POST /app/x", "Content-Length: 0\r\n"), ok},
		"chunked":     {get("POST /app/x", "Transfer-Encoding: chunked\r\n") + "4\r\ndone\r\n0\r\n\r\n", ok},
		"head":        {get("HEAD /app/x"), "HTTP/1.1 200 OK\r\nContent-Length: 200\r\n\r\n"},
		"options":     {get("OPTIONS /app/x"), "HTTP/1.1 204 No Content\r\nAllow: GET\r\n\r\n"},
		"own headers": {get("GET /app/x"), "HTTP/1.1 404 Not Found\r\nA: 1\r\nA: 2\r\nContent-Length: 0\r\n\r\n"},
		"answers hop by hop": {get("GET /app/x"),
			"HTTP/1.1 200 OK\r\nConnection: X-Own\r\nX-Own: 1\r\nKeep-Alive: 5\r\nContent-Length: 2\r\n\r\nok"},
		"answers in chunks": {get("GET /app/x"), "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n" + text +
			"2\r\nok\r\n0\r\n\r\n"},
		"answers to the end": {get("GET /app/x"), "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nok"},
		"not modified":       {get("GET /app/x"), "HTTP/1.1 304 Not Modified\r\nEtag: \"a\"\r\n\r\n"},
		"informs": {get("GET /app/x"),
			"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </b>\r\n\r\n" + ok},
		"announces trailers": {get("GET /app/x"),
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: A\r\n" + text + "2\r\nok\r\n0\r\nA: 1\r\n\r\n"},
		"more trailers": {get("GET /app/x"),
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: A\r\n" + text + "2\r\nok\r\n0\r\nA: 1\r\nB: 2\r\n\r\n"},
		"breaks off": {get("GET /app/x"), "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok"},
		"breaks off in chunks": {get("GET /app/x"), "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n" + text +
			"2\r\nok\r\n"},
		"events": {get("GET /app/x"),
			"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n3\r\na\n\n\r\n0\r\n\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			direct, proxied := passes(t, c.request, c.answers, true), passes(t, c.request, c.answers, false)
			if direct.asked != proxied.asked {
				t.Errorf("the replica is asked\n%s\nnot\n%s", direct.asked, proxied.asked)
			}
			if direct.told != proxied.told {
				t.Errorf("the client is told\n%s\nnot\n%s", direct.told, proxied.told)
			}
			if !strings.Contains(direct.asked, "X-Forwarded-Host: muster.example") || direct.told == "" {
				t.Errorf("%+v", direct)
			}
		})
	}
}

// A replica that changes to a protocol that nobody asked for has not answered.
func TestDirectSwitches(t *testing.T) {
	o := passes(t, "GET /app/x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
		"HTTP/1.1 101 Switching Protocols\r\nUpgrade: evil\r\nConnection: Upgrade\r\n\r\nowned", true)
	if !strings.HasPrefix(o.told, "HTTP/1.1 502") || strings.Contains(o.told, "owned") {
		t.Error(fmt.Sprint(o))
	}
}
