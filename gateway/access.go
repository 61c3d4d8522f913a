package gateway

import (
	"bufio"
	"encoding/json"
	"os"
	"sync"
	"time"
)

// AccessLog writes a line of JSON for each request.
type AccessLog struct {
	path string

	mu  sync.Mutex
	out *os.File
	buf *bufio.Writer
}

// accessLine is a line of the access log.
type accessLine struct {
	Time    time.Time `json:"time"` // of the request's arrival
	Service string    `json:"service,omitempty"`
	Replica string    `json:"replica,omitempty"`
	Status  int       `json:"status"` // 499: the client left
	MS      float64   `json:"ms"`     // until the end of the answer
	Batch   int       `json:"batch,omitempty"`
	Key     string    `json:"key,omitempty"` // name of the caller's key
}

// OpenAccessLog adds to a file; "-" is the standard output, "" is no log.
func OpenAccessLog(path string) (*AccessLog, error) {
	if path == "" {
		return nil, nil
	}
	l := &AccessLog{path: path, buf: bufio.NewWriterSize(nil, 64<<10)}
	return l, l.Reopen()
}

// Reopen opens the file again, once it has been renamed.
func (l *AccessLog) Reopen() error {
	if l == nil {
		return nil
	}
	out := os.Stdout
	if l.path != "-" {
		f, err := os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
		if err != nil {
			return err
		}
		out = f
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var err error
	if l.out != nil {
		err = l.flush()
	}
	if l.out != nil && l.out != os.Stdout {
		_ = l.out.Close() // what counts is whether it was written
	}
	l.out = out
	l.buf.Reset(out)
	return err
}

// Flush writes what is still in memory. What cannot be written is lost; later lines are tried again.
func (l *AccessLog) Flush() error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.flush()
}

func (l *AccessLog) flush() error {
	err := l.buf.Flush()
	if err != nil {
		l.buf.Reset(l.out) // it would return the same error for ever
	}
	return err
}

func (l *AccessLog) write(a *answer, service string, status int, began, now time.Time) {
	if l == nil {
		return
	}
	line, err := json.Marshal(accessLine{began.UTC(), service, a.replica, status,
		float64(now.Sub(began).Microseconds()) / 1000, a.batch, a.key})
	if err != nil {
		return // a time beyond the year 9999
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = l.buf.Write(append(line, '\n')) // Flush returns the error
}
