package gateway

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Voter is an inner service that answers each request of another one, together with others. Its replicas are replicas
// of one variant.
type Voter struct {
	Name   string  `json:"name"`
	Weight float64 `json:"weight"` // of its vote, above 0
}

// votesHeader says in an answer how many variants voted.
const votesHeader = "X-Muster-Votes"

// vote answers an inference request by the vote of several variants. It is answered when the last of them has. A
// variant that does not answer in time, or that takes fewer samples at once, has no vote.
func (s *Server) vote(a *answer, r *http.Request, st *state, p *pool, priority int) {
	body, ok := s.readBody(a, r)
	if !ok {
		return
	}
	defer s.release(len(body))
	x, err := readInfer(body)
	if err != nil {
		a.fail(http.StatusBadRequest, err.Error())
		return
	}
	need, bulk, ok := bulkOf(a, r)
	if !ok {
		return
	}
	began := s.clock()
	p.mu.Lock()
	list := slices.Clone(p.spec.Voters)
	p.mu.Unlock()
	most := 0
	list = slices.DeleteFunc(list, func(v Voter) bool {
		takes := st.pools[v.Name].largest()
		most = max(most, takes)
		return takes < x.n
	})
	if len(list) == 0 {
		a.tooMany(x.n, most)
		return
	}
	p.mu.Lock()
	if !bulk {
		p.count.Arrived++
	}
	p.mu.Unlock()
	answers, first := s.askAll(r.Context(), st, list, &call{infer: x, priority: priority, bulk: bulk, need: need})
	text, votes, err := decide(answers)
	if err == nil && votes == 0 {
		err = cmp.Or(first, errNone)
	}
	p.countVote(s.clock().Sub(began), err, bulk)
	if err != nil {
		a.refuse(p, grant{err: err})
		return
	}
	a.Header().Set("Content-Type", "application/json")
	a.Header().Set(votesHeader, fmt.Sprint(votes))
	_, _ = a.Write(text) // the client may be gone
}

// countVote counts what became of a request.
func (p *pool) countVote(took time.Duration, err error, bulk bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err == nil || bulk:
		p.countAnswer(took, err == nil || callersFault(err), bulk)
	case errors.Is(err, errLeft):
		p.count.left++
	case errors.Is(err, errLate):
		p.dropped()
	case errors.Is(err, errFull):
		p.refused(reasonFull)
	case errors.Is(err, errNone) || errors.Is(err, errGone):
		p.refused(reasonNone)
	default:
		p.countAnswer(took, callersFault(err), false)
	}
}

// ballot is a variant's answer.
type ballot struct {
	weight float64
	answer []byte
}

// askAll asks the voters that have a replica, or the first if none has, which then waits for one. failed is why the
// first of those that do not answer does not. The request is read only, so all share it.
func (s *Server) askAll(ctx context.Context, st *state, list []Voter, like *call) (answers []ballot, failed error) {
	ready := slices.DeleteFunc(slices.Clone(list), func(v Voter) bool { return !st.pools[v.Name].ready() })
	if len(ready) == 0 {
		ready = list[:1]
	}
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, v := range ready {
		all.Go(func() {
			c := *like
			g := st.pools[v.Name].wait(ctx, &c)
			mu.Lock()
			defer mu.Unlock()
			if g.err == nil {
				answers = append(answers, ballot{v.Weight, g.answer})
			} else if failed == nil {
				failed = g.err
			}
		})
	}
	all.Wait()
	return answers, failed
}

// decide makes one answer of several: of each label (whole numbers, texts and truth values) the one whose votes weigh
// most, the heaviest voter's among equals; everything else is the heaviest voter's.
func decide(list []ballot) (text []byte, votes int, err error) {
	if len(list) == 0 {
		return nil, 0, nil
	}
	slices.SortStableFunc(list, func(a, b ballot) int {
		return cmp.Or(cmp.Compare(b.weight, a.weight), bytes.Compare(a.answer, b.answer))
	})
	all := make([]inferResponse, len(list))
	for i := range list {
		if err := json.Unmarshal(list[i].answer, &all[i]); err != nil {
			return nil, 0, fmt.Errorf("%w: %w", errReplica, err)
		}
	}
	heaviest := &all[0]
	for i := range heaviest.Outputs {
		if err := elect(&heaviest.Outputs[i], list, all); err != nil {
			return nil, 0, err
		}
	}
	text, err = json.Marshal(heaviest)
	return text, len(list), err
}

// elect replaces the labels of an output by those that are voted for.
func elect(t *tensor, list []ballot, all []inferResponse) error {
	if !strings.HasPrefix(t.Datatype, "INT") && !strings.HasPrefix(t.Datatype, "UINT") && t.Datatype != "BYTES" &&
		t.Datatype != "BOOL" {
		return nil
	}
	var values [][]json.RawMessage
	var weights []float64
	for i := range all {
		k := slices.IndexFunc(all[i].Outputs, func(o tensor) bool { return o.Name == t.Name })
		if k < 0 || !slices.Equal(all[i].Outputs[k].Shape, t.Shape) {
			continue // it answers something else
		}
		var v []json.RawMessage
		flat, n := flatten(all[i].Outputs[k].Data)
		if n < 0 || json.Unmarshal(flat, &v) != nil {
			return fmt.Errorf("%w: output %s is no list of labels", errReplica, t.Name)
		}
		if len(values) == 0 || len(v) == len(values[0]) {
			values, weights = append(values, v), append(weights, list[i].weight)
		}
	}
	elected := make([]json.RawMessage, len(values[0]))
	for k := range elected {
		best, most := 0, 0.0
		for i := range values {
			sum := 0.0
			for j := range values {
				if bytes.Equal(values[i][k], values[j][k]) {
					sum += weights[j]
				}
			}
			if sum > most {
				best, most = i, sum
			}
		}
		elected[k] = values[best][k]
	}
	var err error
	t.Data, err = json.Marshal(elected)
	return err
}
