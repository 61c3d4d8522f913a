//go:build linux

package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/muster-gpu/muster/api"
)

const (
	// eventEvery is the least time between two events to one watcher: whatever
	// happens in between is one event.
	eventEvery = 250 * time.Millisecond
	// aliveEvery is how often a quiet stream says that it is still there.
	aliveEvery = 15 * time.Second
)

// overview registers what the dashboard asks besides jobs and nodes.
func (s *Server) overview(a huma.API) {
	huma.Register(a, huma.Operation{OperationID: "overview", Method: http.MethodGet, Path: "/v1/overview", Summary: "The machine, its queues and its jobs in one answer"},
		func(ctx context.Context, _ *none) (*struct{ Body api.Overview }, error) {
			who, err := caller(ctx)
			if err != nil {
				return nil, err
			}
			o := s.m.Overview()
			for _, list := range [][]api.Job{o.Running, o.Waiting} {
				for i := range list {
					list[i] = shown(who, list[i])
					brief(&list[i])
				}
			}
			return &struct{ Body api.Overview }{o}, nil
		})
}

// brief leaves out what is long and of no use in a list.
func brief(j *api.Job) {
	s := &j.Submission
	s.Env, s.Command, s.Script, s.Args = nil, nil, "", nil
}

// change is what an event says: which jobs changed, or that they are many.
type change struct {
	Jobs []int `json:"jobs"`
	Many bool  `json:"many,omitempty"`
}

// events tells a browser, or a script, what changed, as server-sent events. The
// first event comes at once; the next at least eventEvery apart.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	watch, stop := s.m.Watch()
	defer stop()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	out := http.NewResponseController(w)
	say := func(text string) bool {
		_, err := w.Write([]byte(text))
		return err == nil && out.Flush() == nil
	}
	if !say("event: changed\ndata: {\"jobs\":[],\"many\":true}\n\n") {
		return
	}
	for {
		select {
		case <-r.Context().Done():
			return
		case <-time.After(aliveEvery):
			if !say(": alive\n\n") {
				return
			}
			continue
		case <-watch.C:
		}
		var c change
		c.Jobs, c.Many = watch.Take()
		text, err := json.Marshal(c)
		if err != nil || !say(fmt.Sprintf("event: changed\ndata: %s\n\n", text)) {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-time.After(eventEvery):
		}
	}
}
