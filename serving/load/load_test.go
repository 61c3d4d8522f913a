package load

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/requests"
	"github.com/muster-gpu/muster/service"
)

// every is a stream of n requests, one each some time.
type every struct {
	gap  time.Duration
	n, k int
	r    requests.Request
}

func (e *every) Next(r *requests.Request) error {
	if e.k == e.n {
		return io.EOF
	}
	*r = e.r
	r.At = cluster.Time(e.gap * time.Duration(e.k))
	e.k++
	return nil
}

// TestBatches: requests go out when they are due, whatever becomes of those before them; their bodies have the
// shape that the model states.
func TestBatches(t *testing.T) {
	var at [40]time.Time
	var n atomic.Int32
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			fmt.Fprint(w, `{"inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}]}`)
			return
		}
		body, _ := io.ReadAll(r.Body)
		k := int(n.Add(1)) - 1
		at[k] = time.Now()
		if string(body) != `{"inputs":[{"name":"x","datatype":"FP32","shape":[1,3],"data":[0,0,0]}]}` {
			t.Errorf("body %s", body)
		}
		switch k % 4 {
		case 1:
			w.WriteHeader(http.StatusTooManyRequests)
		case 2:
			w.WriteHeader(http.StatusServiceUnavailable)
		case 3:
			w.WriteHeader(http.StatusBadGateway)
		default:
			time.Sleep(200 * time.Millisecond) // much longer than the gap
		}
	}))
	defer h.Close()
	s := service.Service{Name: "m", Goal: service.Goal{Latency: time.Minute, Percentile: 99},
		Variants: []service.Variant{{}}}
	begun := time.Now()
	counts, errs, err := Play(t.Context(), Options{Gateway: h.URL, Services: []service.Service{s},
		Stream: &every{gap: 5 * time.Millisecond, n: 40}, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	if c := &counts[0]; c.Arrived != 40 || c.Answered != 10 || c.InTime != 10 || c.Dropped != 10 || c.Refused != 10 ||
		c.Failed != 10 || c.Latency.Quantile(0.5) < 200*time.Millisecond {
		t.Errorf("%+v, %v", c, errs)
	}
	if span := at[39].Sub(begun); span < 190*time.Millisecond {
		t.Errorf("40 requests, 5 ms apart, came within %v", span)
	}
}

// TestTokens: of a language model the first token and those after it are timed.
func TestTokens(t *testing.T) {
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q struct {
			Model, Prompt string
			Most          int `json:"max_tokens"`
		}
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil || q.Model != "chat" ||
			len(strings.Fields(q.Prompt)) != 7 {
			t.Errorf("%+v %v", q, err)
		}
		time.Sleep(50 * time.Millisecond)
		for range q.Most {
			fmt.Fprint(w, "data: {}\n\n")
			w.(http.Flusher).Flush()
			time.Sleep(20 * time.Millisecond)
		}
		fmt.Fprint(w, "data: [DONE]\n\n")
	}))
	defer h.Close()
	s := service.Service{Name: "chat", Goal: service.Goal{TTFT: time.Second, TPOT: time.Millisecond, Percentile: 99},
		Variants: []service.Variant{{Language: &service.Language{}}}}
	counts, errs, err := Play(t.Context(), Options{Gateway: h.URL, Services: []service.Service{s},
		Stream: &every{n: 3, r: requests.Request{Prompt: 7, Output: 5}}, Now: time.Now})
	if c := &counts[0]; err != nil || c.Answered != 3 || c.InTime != 0 || c.Tokens != 15 || c.Prompts != 21 ||
		c.TTFT.Quantile(0.5) < 50*time.Millisecond || c.TPOT.Quantile(0.5) < 20*time.Millisecond {
		t.Errorf("%+v, %v, %v", c, errs, err)
	}
}
