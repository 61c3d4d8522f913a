package relocations

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/driver"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/look"
	"github.com/muster-gpu/muster/kube/moves"
	"github.com/muster-gpu/muster/show"
)

// atOnce runs what is to be done on the loop.
func atOnce(f func()) { f() }

// searching is a search on a loop that is ready, or not.
func searching(ready bool) *Search {
	desk := look.NewDesk(look.Loop{Ready: func() bool { return ready }, Put: atOnce, Now: time.Now})
	return &Search{Desk: desk, Loop: Loop{
		Question: func(number int, _ map[cluster.JobID]string) (*moves.Question, error) {
			return nil, fmt.Errorf("%w: %d", look.ErrNoJob, number)
		},
		Ask: func(*Request, []cluster.JobID) bool { return false },
	}}
}

// People may have moves made where that is on, and not in protected times.
func TestMayAsk(t *testing.T) {
	noon := cluster.Time(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).UnixNano())
	protected := &cluster.Weekly{Zone: "UTC", Hours: []cluster.Hours{{From: 12 * time.Hour, To: 14 * time.Hour}}}
	for _, c := range []struct {
		f    *engine.Defrag
		want error
	}{{nil, ErrNoMoves}, {&engine.Defrag{}, nil}, {&engine.Defrag{Protected: protected}, driver.ErrProtected}} {
		if err := MayAsk(c.f, noon); !errors.Is(err, c.want) {
			t.Errorf("%+v: %v", c.f, err)
		}
	}
}

// What cannot be looked for is an error, except where a gang is explained that is not there any more.
func TestSearchFails(t *testing.T) {
	s := searching(true)
	_, err := s.Plan(t.Context(), &ask.MovesRequest{Job: 5})
	if !errors.Is(err, look.ErrNoJob) || !strings.Contains(err.Error(), "5") {
		t.Errorf("no such job: %v", err)
	}
	var field *ask.FieldError
	if _, err = s.Make(t.Context(), &ask.MovesRequest{Job: 5, Compact: "nodes"}); !errors.As(err, &field) {
		t.Errorf("a job and a goal: %v", err)
	}
	if line, err := s.Line(t.Context(), 5, mostToMove); line != "" || err != nil {
		t.Errorf("%q %v", line, err)
	}
	away := searching(false)
	if _, err := away.Line(t.Context(), 5, mostToMove); !errors.Is(err, look.ErrNotLeading) {
		t.Errorf("it does not lead: %v", err)
	}
	if line, err := away.Line(t.Context(), 5, mostToMove+1); line != "" || err != nil {
		t.Errorf("of too many: %q %v", line, err)
	}
}

// The engine that decides answers one question at a time, unless the scheduler stops, or the request ends.
func TestDecide(t *testing.T) {
	found := &moves.Answer{Question: &moves.Question{Job: 7, By: engine.NoCompact}, Jobs: []cluster.JobID{3}}
	s := searching(true)
	if _, err := s.decide(t.Context(), found); !errors.Is(err, ErrMoving) {
		t.Errorf("it is being asked already: %v", err)
	}
	s.Ask = func(q *Request, ids []cluster.JobID) bool {
		if q.Event.Job != 7 || len(ids) != 1 || ids[0] != 3 {
			t.Errorf("it is asked %+v of %v", q.Event, ids)
		}
		q.Answer <- []show.Moves{{Text: "found"}}
		return true
	}
	if list, err := s.decide(t.Context(), found); err != nil || len(list) != 1 || list[0].Text != "found" {
		t.Errorf("%+v %v", list, err)
	}
	s.Ask = func(*Request, []cluster.JobID) bool { return true }
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	if _, err := s.decide(ctx, found); !errors.Is(err, context.Canceled) {
		t.Errorf("the request ended: %v", err)
	}
	time.AfterFunc(10*time.Millisecond, s.Desk.Close)
	if _, err := s.decide(t.Context(), found); !errors.Is(err, look.ErrNotLeading) {
		t.Errorf("the scheduler stops: %v", err)
	}
}
