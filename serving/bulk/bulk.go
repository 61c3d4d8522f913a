// Package bulk has a file of requests answered by services, on what the real-time load leaves: each line once, however
// often it is interrupted. Files have the form of OpenAI's batch interface.
package bulk

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/muster-gpu/muster/gateway"
)

// Line is a request of a file.
type Line struct {
	ID     string          `json:"custom_id"`
	Method string          `json:"method"`
	URL    string          `json:"url"`
	Body   json.RawMessage `json:"body"`
	number int
}

// Answer is a line of the answers' file.
type Answer struct {
	ID       string    `json:"custom_id"`
	Response *Response `json:"response"`
	Error    *Error    `json:"error"`
}

// Response is what a service answered.
type Response struct {
	Status int             `json:"status_code"`
	Body   json.RawMessage `json:"body"`
}

// Error is why a request has no answer.
type Error struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Options are what is answered, and where.
type Options struct {
	In, Out  string    // paths
	Gateway  string    // its address, such as http://127.0.0.1:8000
	Key      string    // ""; none is needed
	AtOnce   int       // requests that are open
	Deadline time.Time // zero: none
	Now      func() time.Time
	Progress func(done, all int) // may be nil
}

const (
	longestLine = 16 << 20 // bytes of a request
	mostAnswer  = 64 << 20
	tries       = 5           // of a request that a replica fails
	pauseLeast  = time.Second // before another try, unless the gateway says how long
	pauseMost   = time.Minute
)

// Check reads a file and returns how many requests it has; errors name the line.
func Check(path string) (n int, err error) {
	err = each(path, func(*Line) error { n++; return nil })
	return n, err
}

// each reads the requests of a file.
func each(path string, do func(*Line) error) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	seen := map[string]int{}
	in := bufio.NewScanner(f)
	in.Buffer(nil, longestLine)
	for number := 1; in.Scan(); number++ {
		if len(bytes.TrimSpace(in.Bytes())) == 0 {
			continue
		}
		l := &Line{number: number}
		err := json.Unmarshal(in.Bytes(), l)
		if err == nil {
			err = l.check(seen)
		}
		if err != nil {
			return fmt.Errorf("%s:%d: %w", path, number, err)
		}
		seen[l.ID] = number
		if err := do(l); err != nil {
			return err
		}
	}
	if err := in.Err(); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func (l *Line) check(seen map[string]int) error {
	switch {
	case l.ID == "":
		return errors.New("custom_id: each request needs one, by which its answer is found")
	case seen[l.ID] > 0:
		return fmt.Errorf("custom_id: %q is that of line %d, too", l.ID, seen[l.ID])
	case l.Method != "" && l.Method != http.MethodPost:
		return fmt.Errorf("method: %q; requests are POST", l.Method)
	case !strings.HasPrefix(l.URL, "/"):
		return fmt.Errorf("url: %q is not a path such as /v1/chat/completions", l.URL)
	case len(l.Body) == 0 || l.Body[0] != '{':
		return errors.New("body: a JSON object is missing")
	}
	return nil
}

// Run answers the requests of a file that are not answered yet, until all are or the context ends. It returns how many
// answers there are now, and how many of them are errors.
func Run(ctx context.Context, opt Options) (done, failed int, err error) {
	all, err := Check(opt.In)
	if err != nil {
		return 0, 0, err
	}
	out, had, failed, err := resume(opt.Out)
	if err != nil {
		return 0, 0, err
	}
	r := &run{Options: &opt, all: all, done: len(had), failed: failed, out: out,
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: opt.AtOnce}}}
	r.tell()
	lines := make(chan *Line)
	var workers sync.WaitGroup
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	for range max(1, opt.AtOnce) {
		workers.Go(func() {
			for l := range lines {
				if err := r.answer(ctx, l); err != nil {
					cancel(err)
				}
			}
		})
	}
	err = each(opt.In, func(l *Line) error {
		if had[l.ID] {
			return nil
		}
		select {
		case lines <- l:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	close(lines)
	workers.Wait()
	if err == nil {
		err = context.Cause(ctx)
	}
	return r.done, r.failed, errors.Join(err, out.Close())
}

// resume opens the answers' file, and returns the requests that have theirs. What an end in the middle of a line left
// is cut off.
func resume(path string) (f *os.File, had map[string]bool, failed int, err error) {
	if f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644); err != nil {
		return nil, nil, 0, err
	}
	had = map[string]bool{}
	in := bufio.NewReader(f)
	good := int64(0)
	for number := 1; ; number++ {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			break // without its end the line is not whole
		}
		var a Answer
		if err == nil {
			err = json.Unmarshal(line, &a)
		}
		if err != nil || a.ID == "" {
			return nil, nil, 0, errors.Join(
				fmt.Errorf("%s:%d: this is no answer to a request: name another file", path, number),
				f.Close())
		}
		had[a.ID] = true
		if a.Error != nil {
			failed++
		}
		good += int64(len(line))
	}
	if err := f.Truncate(good); err != nil {
		return nil, nil, 0, errors.Join(err, f.Close())
	}
	_, err = f.Seek(good, io.SeekStart)
	return f, had, failed, err
}

// run is a file that is being answered.
type run struct {
	*Options
	all    int
	client *http.Client

	mu           sync.Mutex
	done, failed int
	out          *os.File
}

func (r *run) tell() {
	if r.Progress != nil {
		r.Progress(r.done, r.all)
	}
}

// answer has a request answered and writes that; a request that is interrupted has no answer.
func (r *run) answer(ctx context.Context, l *Line) error {
	a := Answer{ID: l.ID}
	unknown := 0
	for try := 1; ; try++ {
		resp, pause, err := r.ask(ctx, l)
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, errUnknown) { // it may have been applied a moment ago
			if unknown++; unknown <= unknownTries {
				err = nil
			} else {
				pause, err = 0, nil
			}
		}
		if pause == 0 {
			if a.Response = resp; err != nil {
				a.Error = &Error{"failed", err.Error()}
			}
			break
		}
		if err != nil && try >= tries {
			a.Error = &Error{"failed", fmt.Sprintf("%v, %d times", err, try)}
			break
		}
		if err == nil {
			try = 0 // it was only put off
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
	line, err := json.Marshal(&a)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, err := r.out.Write(append(line, '\n')); err != nil {
		return err
	}
	r.done++
	if a.Error != nil {
		r.failed++
	}
	r.tell()
	return nil
}

// errUnknown is that the gateway has no such service; for unknownTries seconds it may still come to know it.
var errUnknown = errors.New("the gateway has no such service")

const unknownTries = 30

// ask sends a request. pause: how long to wait until another try; 0: this was the answer. err: a replica failed, or
// there is no gateway.
func (r *run) ask(ctx context.Context, l *Line) (answer *Response, pause time.Duration, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.Gateway+l.URL, bytes.NewReader(l.Body))
	if err != nil {
		return nil, 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(gateway.BulkHeader, r.left())
	if r.Key != "" {
		req.Header.Set("Authorization", "Bearer "+r.Key)
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return nil, pauseLeast, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, mostAnswer))
	switch {
	case err != nil:
		return nil, pauseLeast, err
	case resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable:
		seconds, err := strconv.Atoi(resp.Header.Get("Retry-After"))
		if err != nil {
			seconds = 1
		}
		return nil, min(pauseMost, max(pauseLeast, time.Duration(seconds)*time.Second)), nil
	case resp.StatusCode == http.StatusNotFound && resp.Header.Get(gateway.UnknownHeader) != "":
		return &Response{resp.StatusCode, body}, time.Second, errUnknown
	case resp.StatusCode >= 500:
		return nil, pauseLeast, fmt.Errorf("%s: %.200s", resp.Status, body)
	}
	if !json.Valid(body) {
		if body, err = json.Marshal(string(body)); err != nil {
			return nil, 0, err
		}
	}
	return &Response{resp.StatusCode, body}, 0, nil
}

// left says to the gateway how many requests are left, and until when.
func (r *run) left() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := "left=" + strconv.Itoa(r.all-r.done)
	if !r.Deadline.IsZero() {
		text += ";by=" + strconv.FormatInt(r.Deadline.Unix(), 10)
	}
	return text
}
