package server

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// If the caller has gone in the middle of an answer, a second status is counted but not sent.
func TestSecondStatus(t *testing.T) {
	sent := &statuses{ResponseRecorder: httptest.NewRecorder()}
	w := &codeWriter{ResponseWriter: sent, code: http.StatusOK}
	w.WriteHeader(http.StatusEarlyHints)
	w.WriteHeader(http.StatusAccepted)
	w.WriteHeader(499)
	if w.code != 499 || len(sent.codes) != 2 || sent.codes[1] != http.StatusAccepted {
		t.Errorf("counted as %d, sent %v", w.code, sent.codes)
	}
	sent = &statuses{ResponseRecorder: httptest.NewRecorder()}
	w = &codeWriter{ResponseWriter: sent, code: http.StatusOK}
	if _, err := w.Write([]byte("half an")); err != nil {
		t.Fatal(err)
	}
	if w.WriteHeader(499); len(sent.codes) != 0 {
		t.Errorf("sent %v after a part of the answer", sent.codes)
	}
}

// statuses records the statuses that are passed on.
type statuses struct {
	*httptest.ResponseRecorder
	codes []int
}

func (s *statuses) WriteHeader(code int) {
	s.codes = append(s.codes, code)
	s.ResponseRecorder.WriteHeader(code)
}
