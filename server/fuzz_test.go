//go:build linux

package server

import "testing"

// Any submission is accepted or refused with a problem; nothing panics. It is sent as a test, which takes the
// same path through the engine and starts nothing.
func FuzzSubmit(f *testing.F) {
	for _, text := range []string{`{"command": ["true"], "gpus": 1}`,
		`{"script": "#!/bin/sh\n", "array": "0-9%2", "gpus": 1, "share": 500}`,
		`{"command": ["x"], "tasks": 2, "min_tasks": 1, "max_tasks": 4, "gpus": 1, "limit": "1h", "level": "node", "required": true}`,
		`{"command": ["x"], "after": [{"type": "afterok", "job": 1}], "profile": "1g.10gb"}`,
		`{"command": [""], "env": ["="]}`, `[]`, `{`, `{"gpus": 1e99}`} {
		f.Add(text)
	}
	w := newWorld(f)
	f.Fuzz(func(t *testing.T, body string) {
		got := w.ask("o", "POST", "/v1/jobs?test=true", body)
		if got.Code >= 500 {
			t.Errorf("%q: %d %s", body, got.Code, got.Body)
		}
		if got.Code >= 400 && got.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%q: %d is answered as %q", body, got.Code, got.Header().Get("Content-Type"))
		}
	})
}
