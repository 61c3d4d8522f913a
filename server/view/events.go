package view

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

const (
	// eventEvery is the least time between two events to one watcher: whatever
	// happens in between is one event.
	eventEvery = 250 * time.Millisecond
	// aliveEvery is how often a quiet stream says that it is still there.
	aliveEvery = 15 * time.Second
)

// change is what an event says: which jobs changed, or that they are many.
type change struct {
	Jobs []int `json:"jobs"`
	Many bool  `json:"many,omitempty"`
}

// Events tells a browser, or a script, what changed, as server-sent events. The
// first event comes at once; the next at least eventEvery apart.
func Events(src Source) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		changed, take, stop := src.Watch()
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
			case <-changed:
			}
			var c change
			c.Jobs, c.Many = take()
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
}
