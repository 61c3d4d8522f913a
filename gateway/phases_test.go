package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// phases are a replica for prompts and one for the tokens after, which understand vLLM's parameters.
type phases struct {
	first, then *httptest.Server
	mu          sync.Mutex
	kept        map[string]bool // prompts whose keys and values wait for the other replica
	computed    atomic.Int64
	broken      atomic.Bool // the replica for prompts
}

func newPhases(t *testing.T) *phases {
	type fields struct {
		Prompt string         `json:"prompt"`
		Most   int            `json:"max_tokens"`
		Stream bool           `json:"stream"`
		Moved  map[string]any `json:"kv_transfer_params"`
	}
	read := func(w http.ResponseWriter, r *http.Request) (f fields, ok bool) {
		err := json.NewDecoder(r.Body).Decode(&f)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
		return f, err == nil
	}
	p := &phases{kept: map[string]bool{}}
	p.first = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f, ok := read(w, r)
		switch {
		case p.broken.Load():
			http.Error(w, "out of order", http.StatusInternalServerError)
			return
		case !ok || f.Stream || f.Most != 1 || f.Moved["do_remote_decode"] != true:
			http.Error(w, fmt.Sprintf("not a prompt: %+v", f), http.StatusTeapot)
			return
		case f.Prompt == "wrong":
			http.Error(w, `{"error":"wrong"}`, http.StatusBadRequest)
			return
		}
		p.mu.Lock()
		p.kept[f.Prompt] = true
		p.mu.Unlock()
		p.computed.Add(1)
		fmt.Fprintf(w, `{"choices":[{"text":"x"}],"kv_transfer_params":{"do_remote_prefill":true,"remote_block_ids":[7]}}`)
	}))
	p.then = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f, ok := read(w, r)
		p.mu.Lock()
		there := p.kept[f.Prompt]
		delete(p.kept, f.Prompt)
		p.mu.Unlock()
		if !ok || !there || f.Moved["do_remote_prefill"] != true || f.Moved["forged"] != nil {
			http.Error(w, fmt.Sprintf("no keys and values: %+v", f), http.StatusTeapot)
			return
		}
		fmt.Fprintf(w, `{"choices":[{"text":"%d tokens"}],"usage":{"prompt_tokens":3,"completion_tokens":%d}}`, f.Most, f.Most)
	}))
	t.Cleanup(p.first.Close)
	t.Cleanup(p.then.Close)
	return p
}

func (p *phases) config() *Config {
	return &Config{Services: []Service{
		{Name: "chat", Prompts: "chat:prompts", Replicas: []Replica{{ID: "2", URL: p.then.URL}}},
		{Name: "chat:prompts", Inner: true, Replicas: []Replica{{ID: "1", URL: p.first.URL}}}}}
}

// A request has its prompt computed by one replica and its answer by another, which is told where its keys and values
// are, which only the first can tell it; mistakes come back; and the inner service cannot be named.
func TestPhases(t *testing.T) {
	p := newPhases(t)
	s, h := serve(t, p.config())
	body := func(prompt string) string {
		return fmt.Sprintf(`{"model":"chat","prompt":%q,"max_tokens":5,"stream":false,"kv_transfer_params":{"forged":1}}`, prompt)
	}
	for _, prompt := range []string{"a", "b", "c"} {
		if status, text := post(t, h.URL+"/v1/completions", body(prompt)); status != 200 ||
			!strings.Contains(text, "5 tokens") {
			t.Fatal(status, text)
		}
	}
	if status, text := post(t, h.URL+"/v1/completions", body("wrong")); status != 400 ||
		!strings.Contains(text, "wrong") {
		t.Error(status, text)
	}
	for _, name := range []string{"chat:prompts", "other"} {
		status, text := post(t, h.URL+"/v1/completions", fmt.Sprintf(`{"model":%q,"prompt":"a"}`, name))
		if status != 404 ||
			strings.Contains(text, "chat:prompts, ") || strings.Contains(text, ", chat:prompts") {
			t.Error(name, status, text)
		}
	}
	p.broken.Store(true)
	if status, text := post(t, h.URL+"/v1/completions", body("d")); status != http.StatusBadGateway {
		t.Error(status, text)
	}
	first, then := served(s, "chat:prompts"), served(s, "chat")
	if first.Arrived != 5 || first.Answered != 4 || first.Failed != 1 || then.Arrived != 3 || then.Answered != 3 ||
		then.Prompts != 9 || then.Outputs != 15 || p.computed.Load() != 3 {
		t.Errorf("prompts %+v, answers %+v", first.Tally, then.Tally)
	}
	c := p.config()
	c.Services[0].Prompts = "elsewhere"
	if err := s.Update(c); err == nil || !strings.Contains(err.Error(), "no inner service") {
		t.Error(err)
	}
}

// A prompt whose replica dies is computed by another, once; without another the request fails.
func TestPromptReplicaDies(t *testing.T) {
	p := newPhases(t)
	c := p.config()
	dies := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	dead := httptest.NewServer(http.HandlerFunc(dies))
	defer dead.Close()
	c.Services[1].Replicas = []Replica{{ID: "0", URL: dead.URL}}
	s, h := serve(t, c)
	const body = `{"model":"chat","prompt":"a","max_tokens":5}`
	if status, text := post(t, h.URL+"/v1/completions", body); status != http.StatusBadGateway {
		t.Fatal(status, text)
	}
	c.Services[1].Replicas = append(c.Services[1].Replicas, Replica{ID: "1", URL: p.first.URL})
	if err := s.Update(c); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		if status, text := post(t, h.URL+"/v1/completions", body); status != 200 {
			t.Fatal(status, text)
		}
	}
	if got := served(s, "chat:prompts"); got.Answered != 4 || got.Failed != 1 || got.Retried == 0 || got.Waiting != 0 {
		t.Errorf("%+v", got)
	}
	for _, each := range served(s, "chat:prompts").Each {
		if each.Busy != 0 {
			t.Errorf("replica %s is still busy", each.ID)
		}
	}
}

// TestPromptsKept: a prompt whose keys and values are not fetched yet counts as a request of its replica, which gets no
// more than it computes at once: until the first token of a stream has come, and else until a replica has the request.
func TestPromptsKept(t *testing.T) {
	p := newPhases(t)
	asked, begin, end := make(chan string, 9), make(chan bool), make(chan bool)
	then := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var f struct {
			Prompt string
			Stream bool
		}
		if err := json.NewDecoder(r.Body).Decode(&f); err != nil {
			t.Error(err)
		}
		if f.Stream {
			w.Header().Set("Content-Type", "text/event-stream")
			_ = http.NewResponseController(w).Flush()
		}
		asked <- f.Prompt
		<-begin
		fmt.Fprint(w, "data: {}\n\n")
		_ = http.NewResponseController(w).Flush()
		<-end
	}))
	defer then.Close()
	c := p.config()
	c.Services[0].Replicas = []Replica{{ID: "2", URL: then.URL, AtOnce: 2}}
	c.Services[1].Replicas[0].AtOnce = 1
	s, h := serve(t, c)
	var all sync.WaitGroup
	send := func(prompt string, stream bool) {
		all.Go(func() {
			body := fmt.Sprintf(`{"model":"chat","prompt":%q,"max_tokens":5,"stream":%v}`, prompt, stream)
			if status, text := post(t, h.URL+"/v1/completions", body); status != 200 {
				t.Error(status, text)
			}
		})
	}
	computed := func(n int64) {
		t.Helper()
		until(t, fmt.Sprintf("%d prompts are computed", n),
			func() bool { return p.computed.Load() >= n && served(s, "chat:prompts").Each[0].Busy == 0 })
		time.Sleep(20 * time.Millisecond)
		if got := p.computed.Load(); got != n {
			t.Fatalf("%d prompts are computed, not %d", got, n)
		}
	}
	send("a", true)
	<-asked
	send("b", false)
	computed(1) // no token of a has come
	begin <- true
	<-asked // b is with the other replica, which fetches it
	send("c", true)
	computed(3) // and waits for the other replica, which has two requests
	send("d", false)
	computed(3)
	begin <- true // b
	end <- true
	end <- true
	<-asked
	begin <- true // c
	<-asked
	begin <- true // d
	end <- true
	end <- true
	all.Wait()
	for _, r := range s.state.Load().pools["chat:prompts"].replicas {
		if r.keeps != 0 {
			t.Errorf("it keeps %d prompts", r.keeps)
		}
	}
}
