//go:build linux

package server

import (
	"net/http"
	"strings"
	"testing"
)

// A client that prefers a minimal answer gets only the number of the job or the array; others get the whole
// answer, with the same number.
func TestMinimalAnswer(t *testing.T) {
	w := newWorld(t)
	const one, array = `{"command":["true"],"hold":true,"env":["KEY=hunter2"]}`,
		`{"command":["true"],"hold":true,"array":"3-5"}`
	for _, c := range []struct {
		prefer, body, want string
	}{
		{"return=minimal", one, `{"id":1}`},
		{"respond-async, RETURN=\"Minimal\"; x=1", array, `{"id":2}`},
		{"return=representation", one, ""},
		{"", array, ""},
	} {
		r := w.ask("o", "POST", "/v1/jobs", c.body, "Prefer", c.prefer)
		text, applied := strings.TrimSpace(r.Body.String()), r.Header().Get("Preference-Applied")
		switch {
		case r.Code != http.StatusCreated:
			t.Errorf("%q: %d %s", c.prefer, r.Code, text)
		case c.want != "" && (text != c.want || applied != "return=minimal"):
			t.Errorf("%q: %q, applied %q", c.prefer, text, applied)
		case c.want == "" &&
			(!strings.Contains(text, `"why":{"job":{`) || !strings.Contains(text, `"jobs":[`) ||
				!strings.Contains(text, `"id":`) || applied != ""):
			t.Errorf("%q: %q, applied %q", c.prefer, text, applied)
		}
	}
	if r := w.ask("o", "POST", "/v1/jobs", `{"command":["true"],"gpus":99}`, "Prefer",
		"return=minimal"); r.Code != http.StatusUnprocessableEntity {
		t.Errorf("what is refused: %d %s", r.Code, r.Body)
	}
	if r := w.ask("o", "POST", "/v1/jobs?test=true", one, "Prefer", "return=minimal"); r.Code != http.StatusCreated ||
		!strings.Contains(r.Body.String(), `"jobs":[],"job":{`) {
		t.Errorf("a test: %d %s", r.Code, r.Body)
	}
}
