//go:build linux

package server

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/muster-gpu/muster/local/segment"
)

// journal sends a segment of the journal. An error after the first line cuts the answer off: a reader must not
// take half a journal for a whole one.
func (s *Server) journal(w http.ResponseWriter, r *http.Request) {
	n, err := whole(r.URL.Query().Get("segment"))
	if err != nil || n > 1<<31 {
		refuse(w, http.StatusUnprocessableEntity, "segment: the number of a segment, from 1; 0 is the last")
		return
	}
	if err := s.m.Journal().Fits(r.Context(), int(n)); errors.Is(err, segment.ErrNone) {
		refuse(w, http.StatusNotFound, err.Error())
		return
	} else if err != nil {
		refuse(w, http.StatusConflict, err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/jsonl")
	w.Header().Set("Content-Disposition", fmt.Sprintf("attachment; filename=muster-%d.journal", n))
	if err := s.m.Journal().Write(r.Context(), int(n), w); err != nil {
		panic(http.ErrAbortHandler)
	}
}
