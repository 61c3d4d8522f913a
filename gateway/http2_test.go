package gateway

import (
	"bytes"
	"compress/gzip"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// wire is an HTTP/2 connection by hand. What the gateway says is read and thrown away.
type wire struct {
	net.Conn
	*http2.Framer
	head  []byte        // of a GET of /app/x
	ended chan struct{} // the gateway has closed it
}

func newWire(t *testing.T, url string) *wire {
	t.Helper()
	w := &wire{Conn: dial(t, url, http2.ClientPreface), ended: make(chan struct{})}
	w.Framer = http2.NewFramer(w.Conn, w.Conn)
	if err := w.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for _, f := range [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "x"}, {":path", "/app/x"}} {
		if err := e.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
			t.Fatal(err)
		}
	}
	w.head = b.Bytes()
	go func() {
		defer close(w.ended)
		_, _ = io.Copy(io.Discard, w.Conn)
	}()
	return w
}

// floods sends until the gateway closes the connection, at most so many times.
func (w *wire) floods(most int, send func(i int) error) {
	_ = w.SetWriteDeadline(time.Now().Add(time.Minute))
	for i := range most {
		if send(i) != nil {
			break
		}
	}
}

// end waits for the gateway to close the connection.
func (w *wire) end(t *testing.T) {
	t.Helper()
	select {
	case <-w.ended:
	case <-time.After(time.Minute):
		t.Error("the connection stays open")
	}
}

// TestRapidReset: streams that are opened and reset at once (CVE-2023-44487) hardly reach the replica, and
// do not keep it from others.
func TestRapidReset(t *testing.T) {
	noGoroutineLeft(t)
	var asked atomic.Int64
	b := newHandler(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		select {
		case <-r.Context().Done():
		case <-time.After(50 * time.Millisecond):
		}
	})
	c := one(b.URL)
	c.Services[0].Replicas[0].AtOnce, c.Services[0].LatencyMS = 4, 60_000
	s, url := serveReal(t, c, Limits{})
	w := newWire(t, url)
	answered := make(chan int, 1)
	go func() {
		time.Sleep(10 * time.Millisecond)
		answered <- status(t, url+"/app/x")
	}()
	w.floods(50_000, func(i int) error {
		id := uint32(2*i + 1)
		if err := w.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: w.head, EndStream: true,
			EndHeaders: true}); err != nil {
			return err
		}
		return w.WriteRSTStream(id, http2.ErrCodeCancel)
	})
	if got := <-answered; got != http.StatusOK {
		t.Errorf("another client gets %d", got)
	}
	until(t, "nothing is held", func() bool {
		u := served(s, "app")
		return u.Each[0].Busy == 0 && u.Waiting == 0
	})
	if n := asked.Load(); n > 5000 {
		t.Errorf("the replica was asked %d times", n)
	}
	w.Close()
}

// TestContinuations: a head that never ends (CVE-2023-45288) ends the connection, and its bytes are not kept.
func TestContinuations(t *testing.T) {
	b, _ := plain(t, "x", 0)
	_, url := serveReal(t, one(b.URL), Limits{})
	w := newWire(t, url)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var e bytes.Buffer
	enc := hpack.NewEncoder(&e)
	if err := enc.WriteField(hpack.HeaderField{Name: "x-filler", Value: strings.Repeat("v", 8<<10),
		Sensitive: true}); err != nil {
		t.Fatal(err)
	}
	if err := w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: w.head}); err != nil {
		t.Fatal(err)
	}
	w.floods(20_000, func(int) error { return w.WriteContinuation(1, false, e.Bytes()) })
	w.end(t)
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grew := int64(after.HeapAlloc) - int64(before.HeapAlloc); grew > 16<<20 {
		t.Errorf("%d MiB are kept", grew>>20)
	}
	if got := status(t, url+"/app/x"); got != http.StatusOK {
		t.Errorf("another client gets %d", got)
	}
}

// TestControlFrames: pings and settings whose answers are never read end the connection; another client is served.
func TestControlFrames(t *testing.T) {
	b, _ := plain(t, "x", 0)
	_, url := serveReal(t, one(b.URL), short)
	c := dial(t, url, http2.ClientPreface)
	f := http2.NewFramer(c, c)
	_ = c.SetWriteDeadline(time.Now().Add(30 * time.Second))
	sent, err := 0, f.WriteSettings()
	for ; err == nil && sent < 5_000_000; sent++ {
		err = f.WritePing(false, [8]byte{})
	}
	if err == nil {
		t.Errorf("%d pings were taken", sent)
	}
	if got := status(t, url+"/app/x"); got != http.StatusOK {
		t.Errorf("another client gets %d", got)
	}
}

// TestBombs: bodies that are small until they are unpacked stay packed, or are refused: those of clients, and those of
// replicas.
func TestBombs(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	for range 256 {
		if _, err := z.Write(make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	b := newHandler(t, func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(packed.Bytes())
	})
	_, url := serveReal(t, &Config{Services: []Service{{Name: "app", Path: "app",
		Replicas: []Replica{{ID: "1", URL: b.URL}}}, {Name: "add", Batch: 4, TakesMS: takes(4, 1),
		Replicas: []Replica{{ID: "1", URL: b.URL}}}}}, Limits{})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, c := range []struct {
		path, body, encoding string
		want                 int
	}{
		{"/v2/models/add/infer", packed.String(), "gzip", 400}, // the client's bomb is no JSON
		{"/v1/completions", packed.String(), "gzip", 400},
		{"/v2/models/add/infer", sample(1), "", 502}, // nor is the replica's
		{"/app/x", packed.String(), "gzip", 200},     // passed on as it is
		{"/v2/models/add/infer", strings.Repeat(`{"inputs":[`, 100_000), "", 400},
		{"/v1/completions", `{"model":` + strings.Repeat(`[`, 1_000_000), "", 400},
	} {
		req, err := http.NewRequestWithContext(t.Context(), "POST", url+c.path, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept-Encoding", "gzip") // so that the client does not unpack
		if c.encoding != "" {
			req.Header.Set("Content-Encoding", c.encoding)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		n, _ := io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode != c.want || n > int64(packed.Len()) {
			t.Errorf("%s: %d and %d bytes, want %d", c.path, resp.StatusCode, n, c.want)
		}
	}
	runtime.ReadMemStats(&after)
	if grew := after.TotalAlloc - before.TotalAlloc; grew > 128<<20 {
		t.Errorf("%d MiB were needed in all", grew>>20)
	}

}
