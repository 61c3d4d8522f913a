// Package load sends the requests of a stream to a gateway when they are due, however long the answers take, and counts
// what becomes of them.
package load

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/muster-gpu/muster/requests"
	"github.com/muster-gpu/muster/service"
	"github.com/muster-gpu/muster/serving/tally"
)

// Options are what is sent, and where to.
type Options struct {
	Gateway  string // its address, such as http://127.0.0.1:8000
	Key      string // ""; none is needed
	Services []service.Service
	Stream   requests.Stream // of these services
	// of each request of a model that computes batches; nil: zeros, of the shape that the model states
	Body []byte
	Open int // most requests at once: those beyond count as failed; 0: 10000
	Now  func() time.Time
}

// player is a load that is sent.
type player struct {
	*Options
	client *http.Client
	bodies [][]byte // by service
	open   chan struct{}
	all    sync.WaitGroup

	mu     sync.Mutex
	counts []tally.Tally
	errs   map[string]int // what the others came to
}

// Play sends a stream until it or the context ends, and returns what became of each service's requests, and how many
// came to which error.
func Play(ctx context.Context, opt Options) (counts []tally.Tally, errs map[string]int, err error) {
	if opt.Open == 0 {
		opt.Open = 10_000
	}
	p := &player{Options: &opt, open: make(chan struct{}, opt.Open), counts: make([]tally.Tally, len(opt.Services)),
		bodies: make([][]byte, len(opt.Services)), errs: map[string]int{},
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: opt.Open}}}
	defer p.client.CloseIdleConnections()
	for i := range opt.Services {
		s := &opt.Services[i]
		if p.bodies[i] = opt.Body; s.Language() || opt.Body != nil {
			continue
		}
		if p.bodies[i], err = p.zeros(ctx, s.Name); err != nil {
			return nil, nil, fmt.Errorf("service %s: %w", s.Name, err)
		}
	}
	began := opt.Now()
	var r requests.Request
	for ctx.Err() == nil {
		if err = opt.Stream.Next(&r); err != nil {
			break
		}
		due := began.Add(time.Duration(r.At))
		if wait := due.Sub(opt.Now()); wait > 0 {
			time.Sleep(wait)
		}
		p.send(ctx, r, due)
	}
	p.all.Wait()
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return p.counts, p.errs, err
}

// send sends a request that was due at an instant, and does not wait for its answer.
func (p *player) send(ctx context.Context, r requests.Request, due time.Time) {
	p.mu.Lock()
	p.counts[r.Service].Arrived++
	p.mu.Unlock()
	select {
	case p.open <- struct{}{}:
	default:
		p.failed(&r, 0, "too many requests are open")
		return
	}
	p.all.Go(func() {
		defer func() { <-p.open }()
		if p.Services[r.Service].Language() {
			p.complete(ctx, &r, due)
			return
		}
		p.infer(ctx, &r, due)
	})
}

// failed counts a request without an answer.
func (p *player) failed(r *requests.Request, status int, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := &p.counts[r.Service]
	switch status {
	case http.StatusTooManyRequests:
		t.Dropped++
	case http.StatusServiceUnavailable:
		t.Refused++
	default:
		t.Failed++
	}
	p.errs[text]++
}

func (p *player) post(ctx context.Context, path string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.Gateway+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if p.Key != "" {
		req.Header.Set("Authorization", "Bearer "+p.Key)
	}
	return p.client.Do(req)
}

// infer asks a model that computes batches.
func (p *player) infer(ctx context.Context, r *requests.Request, due time.Time) {
	s := &p.Services[r.Service]
	resp, err := p.post(ctx, "/v2/models/"+url.PathEscape(s.Name)+"/infer", p.bodies[r.Service])
	if err != nil {
		p.failed(r, 0, err.Error())
		return
	}
	body, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		p.failed(r, 0, err.Error())
		return
	}
	if resp.StatusCode != http.StatusOK {
		p.failed(r, resp.StatusCode, fmt.Sprintf("%d %.100s", resp.StatusCode, body))
		return
	}
	took := p.Now().Sub(due)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts[r.Service].Answer(took, took <= s.Goal.Latency)
}

// complete asks a language model, and reads the tokens as they come.
func (p *player) complete(ctx context.Context, r *requests.Request, due time.Time) {
	s := &p.Services[r.Service]
	body, err := json.Marshal(map[string]any{"model": s.Name, "prompt": strings.Repeat("word ", int(max(1, r.Prompt))),
		"max_tokens": max(1, r.Output), "stream": true, "ignore_eos": true})
	if err != nil {
		panic(err) // texts and numbers always can be
	}
	resp, err := p.post(ctx, "/v1/completions", body)
	if err != nil {
		p.failed(r, 0, err.Error())
		return
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 100)) // what can be read of it
		p.failed(r, resp.StatusCode, fmt.Sprintf("%d %s", resp.StatusCode, text))
		return
	}
	var first, last time.Time
	tokens := 0
	in := bufio.NewScanner(resp.Body)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		data, ok := strings.CutPrefix(in.Text(), "data: ")
		if !ok || data == "[DONE]" {
			continue
		}
		last = p.Now()
		if tokens++; tokens == 1 {
			first = last
		}
	}
	if err := in.Err(); err != nil || tokens == 0 {
		p.failed(r, 0, fmt.Sprintf("the stream ended early: %v", err))
		return
	}
	p.answered(r, s, due, first, last, tokens)
}

// answered counts an answer of tokens.
func (p *player) answered(r *requests.Request, s *service.Service, due, first, last time.Time, tokens int) {
	ttft, each := first.Sub(due), time.Duration(0)
	if tokens > 1 {
		each = last.Sub(first) / time.Duration(tokens-1)
	}
	g := &s.Goal
	met := func(took, goal time.Duration) bool { return goal == 0 || took <= goal }
	p.mu.Lock()
	defer p.mu.Unlock()
	t := &p.counts[r.Service]
	t.Answer(last.Sub(due), met(ttft, g.TTFT) && met(each, g.TPOT) && met(last.Sub(due), g.Latency))
	t.Prompts += int64(r.Prompt)
	t.Outputs += int64(tokens)
	t.Tokens += int64(tokens)
	t.TTFT.Add(ttft, 1)
	if tokens > 1 {
		t.TPOT.Add(each, 1)
	}
}

// zeros is the body of a request for one sample of zeros, of the shape that the model states.
func (p *player) zeros(ctx context.Context, name string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.Gateway+"/v2/models/"+url.PathEscape(name), nil)
	if err != nil {
		return nil, err
	}
	if p.Key != "" {
		req.Header.Set("Authorization", "Bearer "+p.Key)
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var model struct {
		Error  string
		Inputs []struct {
			Name, Datatype string
			Shape          []int64
		}
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&model); err != nil || len(model.Inputs) == 0 {
		return nil, fmt.Errorf("it does not state its inputs (%d %s): give a body", resp.StatusCode, model.Error)
	}
	type tensor struct {
		Name     string  `json:"name"`
		Datatype string  `json:"datatype"`
		Shape    []int64 `json:"shape"`
		Data     []int   `json:"data"`
	}
	var inputs []tensor
	for _, in := range model.Inputs {
		t := tensor{Name: in.Name, Datatype: in.Datatype}
		n := int64(1)
		for _, d := range in.Shape {
			t.Shape = append(t.Shape, max(1, d))
			n *= max(1, d)
		}
		if n > 1<<20 || len(t.Shape) == 0 {
			return nil, fmt.Errorf("an input of the shape %v is too large: give a body", in.Shape)
		}
		t.Data = make([]int, n)
		inputs = append(inputs, t)
	}
	return json.Marshal(map[string]any{"inputs": inputs})
}
