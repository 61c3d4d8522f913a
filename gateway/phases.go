package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// movedKey is where a request and an answer say how keys and values get from one replica to another (vLLM's interface
// for disaggregated prefill). What a caller writes there is not passed on.
const movedKey = "kv_transfer_params"

// leaveThere asks a replica to compute a prompt and to keep its keys and values for another.
var leaveThere = json.RawMessage(`{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,` +
	`"remote_block_ids":null,"remote_host":null,"remote_port":null}`)

// kept are the keys and values of a prompt, in the memory of the replica that computed it. Until the one that makes the
// answer has fetched them, they count as a request that the first one has. A stream shows that they were fetched by its
// first token; of an answer in one piece it is only known when a replica was given the request.
type kept struct {
	pool    *pool
	on      *replica
	streams bool
	gone    sync.Once
}

// fetched lets the replica take another request. A nil kept is of a request without such memory.
func (k *kept) fetched() {
	if k == nil {
		return
	}
	k.gone.Do(func() {
		k.pool.mu.Lock()
		defer k.pool.mu.Unlock()
		k.on.keeps--
		k.pool.dispatch()
	})
}

// given notes that a replica has the request that makes the answer.
func (k *kept) given() {
	if k != nil && !k.streams {
		k.fetched()
	}
}

// prompt has the prompt of a request computed by one of a service's replicas for prompts, and returns the body for the
// replica that makes the answer, and what it has to fetch. ok is false if the request was answered already, with an
// error.
func (s *Server) prompt(a *answer, r *http.Request, p *pool, body []byte, priority int) (then []byte, k *kept,
	ok bool) {
	need, bulk, ok := bulkOf(a, r)
	if !ok {
		return nil, nil, false
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		a.fail(http.StatusBadRequest, "the body is no JSON object: "+err.Error())
		return nil, nil, false
	}
	began := s.clock()
	g := p.wait(r.Context(), &call{priority: priority, bulk: bulk, need: need})
	if g.err != nil {
		a.refuse(p, g)
		return nil, nil, false
	}
	first := promptOnly(fields)
	moved, err := p.computePrompt(r, g.to, first, began, bulk)
	if errors.Is(err, errDied) {
		second := p.secondReplica(r.Context(), g.to, began)
		if second.err == nil {
			g = second
			moved, err = p.computePrompt(r, g.to, first, began, bulk)
		}
	}
	if err != nil {
		a.replica = g.to.spec.ID
		p.failed(a, r, err, s.clock().Sub(began), bulk)
		return nil, nil, false
	}
	k = &kept{pool: p, on: g.to, streams: string(bytes.TrimSpace(fields["stream"])) == "true"}
	delete(fields, movedKey)
	if moved != nil {
		fields[movedKey] = moved
	}
	then, err = json.Marshal(fields)
	if err != nil {
		panic(err) // what was read can be written
	}
	return then, k, true
}

// failed says why a prompt was not computed, unless the client has left.
func (p *pool) failed(a *answer, r *http.Request, err error, took time.Duration, bulk bool) {
	var status *statusError
	switch {
	case r.Context().Err() != nil:
		p.mu.Lock()
		p.count.left++
		p.mu.Unlock()
		return
	case errors.As(err, &status) && status.code/100 == 4: // what is wrong is for the caller to know
		a.Header().Set("Content-Type", "application/json")
		a.WriteHeader(status.code)
		_, _ = a.Write(status.text)
	case errors.Is(err, errSlow):
		a.fail(http.StatusGatewayTimeout, err.Error())
	default:
		a.fail(http.StatusBadGateway, err.Error())
	}
	p.answered(took, status != nil && status.code/100 == 4, bulk)
}

// promptOnly is a request for the first token alone, in one piece.
func promptOnly(fields map[string]json.RawMessage) []byte {
	first := map[string]json.RawMessage{}
	for k, v := range fields {
		first[k] = v
	}
	delete(first, "stream_options")
	one := json.RawMessage("1")
	first["stream"], first["max_tokens"], first[movedKey] = json.RawMessage("false"), one, leaveThere
	if _, ok := first["max_completion_tokens"]; ok {
		first["max_completion_tokens"] = one
	}
	data, err := json.Marshal(first)
	if err != nil {
		panic(err) // what was read can be written
	}
	return data
}

// computePrompt asks a replica for the first token of a request that came at an instant, and returns how its keys and
// values, which the replica keeps, get to another.
func (p *pool) computePrompt(r *http.Request, to *replica, body []byte, came time.Time, bulk bool) (
	moved json.RawMessage, err error) {
	timeout, _ := p.times()
	ctx, cancel := context.WithTimeoutCause(r.Context(), timeout, errSlow)
	defer cancel()
	began := p.server.clock()
	u := *to.url
	u.Path, u.RawQuery = r.URL.Path, r.URL.RawQuery
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header = r.Header.Clone()
	for _, k := range []string{"Accept-Encoding", "Connection", "Upgrade", "Expect", BulkHeader} {
		req.Header.Del(k)
	}
	text, status, err := receive(p.server.transport, req)
	var answer struct {
		Moved json.RawMessage `json:"kv_transfer_params"`
	}
	switch {
	case errors.Is(context.Cause(ctx), errSlow) && err != nil:
		err = errSlow
	case err != nil:
		err = fmt.Errorf("%w: %w: %w", errReplica, errDied, err)
	case status != http.StatusOK:
		err = fmt.Errorf("%w: %w", errReplica, &statusError{status, text})
	case len(text) > largestAnswer || json.Unmarshal(text, &answer) != nil:
		err = fmt.Errorf("%w: its answer is no JSON object", errReplica)
	}
	now := p.server.clock()
	left := r.Context().Err() != nil
	p.mu.Lock()
	defer p.mu.Unlock()
	overload := status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests
	p.finish(to, result{took: now.Sub(began), bulk: bulk, left: left, overload: overload,
		failed: err != nil && !left && (status == 0 || status/100 == 5)})
	if err == nil {
		p.countAnswer(now.Sub(came), true, bulk)
		to.keeps++
	}
	p.dispatch()
	return answer.Moved, err
}
