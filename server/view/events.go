package view

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

const (
	// eventEvery is the least time between two events to one watcher: everything in between becomes one event.
	eventEvery = 250 * time.Millisecond
	// aliveEvery is how often a quiet stream sends a sign of life.
	aliveEvery = 15 * time.Second
)

// change is the content of an event: which jobs changed, or that there are many.
type change struct {
	Jobs []int `json:"jobs"`
	Many bool  `json:"many,omitempty"`
}

// Events reports changes to a browser or a script, as server-sent events. The first event comes at once, the
// next at least eventEvery apart.
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
