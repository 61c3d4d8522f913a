//go:build linux

package server

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

// followEvery is how often a growing log is checked for more.
const followEvery = 50 * time.Millisecond

// log sends a job's output, and with follow=true what is written until the job is over. Query: stream=out|err,
// task=N, follow=true, from=BYTES; a negative position counts from the end.
func (s *Server) log(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	id, err := strconv.Atoi(r.PathValue("id"))
	if err != nil {
		refuse(w, http.StatusNotFound, fmt.Sprintf("%q is not the number of a job", r.PathValue("id")))
		return
	}
	if err := s.mayTouch(ctx, id); err != nil {
		refuseFor(w, err)
		return
	}
	q := r.URL.Query()
	back := strings.HasPrefix(q.Get("from"), "-")
	rank, err := whole(q.Get("task"))
	at, err2 := whole(strings.TrimPrefix(q.Get("from"), "-"))
	if err := errors.Join(err, err2); err != nil {
		refuse(w, http.StatusUnprocessableEntity, "task, from: "+err.Error())
		return
	}
	if err := s.readable(id, int(rank), q); err != nil {
		refuse(w, http.StatusConflict, err.Error())
		return
	}
	if back {
		at = s.fromEnd(id, int(rank), q.Get("stream") == "err", at)
	}
	w.Header().Set("X-Muster-Log-From", strconv.FormatInt(at, 10))
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	out := http.NewResponseController(w)
	for {
		over := s.over(r, id)
		n, err := s.copyLog(w, id, int(rank), q.Get("stream") == "err", at)
		at += n
		if err != nil || q.Get("follow") != "true" || over && n == 0 {
			return
		}
		if err := out.Flush(); err != nil {
			return
		}
		if n > 0 {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(followEvery):
		}
	}
}

// refuseFor answers with the status that belongs to an error.
func refuseFor(w http.ResponseWriter, err error) {
	var st interface{ GetStatus() int }
	code := http.StatusInternalServerError
	if errors.As(err, &st) {
		code = st.GetStatus()
	}
	refuse(w, code, err.Error())
}

// whole reads a number from 0 on; 0 if there is none.
func whole(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 62)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number from 0 on", text)
	}
	return int64(n), nil
}

// over reports whether nothing more will be written.
func (s *Server) over(r *http.Request, id int) bool {
	j, err := s.m.Job(r.Context(), id)
	return err != nil || j.Ended != nil
}

// copyLog sends what is there from a position on. A file that does not belong to the job's owner is not read:
// the owner chooses the path.
func (s *Server) copyLog(w io.Writer, id, rank int, errs bool, at int64) (int64, error) {
	path, u, err := s.m.LogPath(id, rank, errs)
	if err != nil || path == "" {
		return 0, err
	}
	f, err := u.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return io.Copy(w, io.NewSectionReader(f, at, 1<<62))
}

// readable says why a log cannot be read, if so. A log that does not exist yet is no error for a caller who
// follows it.
func (s *Server) readable(id, rank int, q url.Values) error {
	path, u, err := s.m.LogPath(id, rank, q.Get("stream") == "err")
	if err != nil || path == "" {
		return err
	}
	f, err := u.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		if q.Get("follow") == "true" || q.Has("from") {
			return nil
		}
		return fmt.Errorf("job %d has no such log: there is no %s (perhaps nothing was started yet, or the file was moved or removed)", id, path)
	}
	if err != nil {
		return fmt.Errorf("the log of job %d cannot be read: %w", id, err)
	}
	return f.Close()
}

// fromEnd is the position that many bytes before the present end.
func (s *Server) fromEnd(id, rank int, errs bool, back int64) int64 {
	path, u, err := s.m.LogPath(id, rank, errs)
	if err != nil || path == "" {
		return 0
	}
	f, err := u.Open(path)
	if err != nil {
		return 0
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return 0
	}
	return max(0, fi.Size()-back)
}
