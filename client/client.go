// Package client talks to muster serve.
package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/internal/plain"
	"github.com/muster-gpu/muster/show"
)

// Client is a connection to a server.
type Client struct {
	via    Transport
	base   string
	name   string // of the server, in errors
	token  string
	socket bool
	err    error // why there is no connection
}

// New returns a client of a server at a base address, reached over a transport.
func New(via Transport, base string, l Login) *Client {
	return &Client{via: via, base: base, name: l.Host, token: l.Token}
}

// Failed returns a client whose calls return an error.
func Failed(err error) *Client { return &Client{err: err} }

// Err says why there is no connection, if that is known in advance.
func (c *Client) Err() error { return c.err }

// Server identifies the server in a few letters that are valid in a file name.
func (c *Client) Server() string {
	h := fnv.New32a()
	_, _ = io.WriteString(h, c.base+" "+c.name)
	return strconv.FormatUint(uint64(h.Sum32()), 16)
}

// RootSocket is where a daemon of root listens.
const RootSocket = "/run/muster/muster.sock"

// Socket is the path of the Unix socket: MUSTER_SOCKET, else that of the user's
// own daemon if there is one, else root's.
func Socket() string {
	if s := os.Getenv("MUSTER_SOCKET"); s != "" {
		return s
	}
	if os.Getuid() != 0 {
		if own := UserSocket(); own != "" {
			if _, err := os.Stat(own); err == nil {
				return own
			}
		}
	}
	return RootSocket
}

// UserSocket is where a daemon of another user than root listens.
func UserSocket() string {
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		return filepath.Join(dir, "muster.sock")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".local", "state", "muster", "muster.sock")
}

// Unix returns a client of the daemon behind a socket.
func Unix(path string) *Client {
	return &Client{via: unixSocket(path), base: "http://muster", name: path, socket: true}
}

// Error is an error answer (problem+json).
type Error struct {
	Status int    `json:"status"`
	Title  string `json:"title"`
	Detail string `json:"detail"`
	Errors []struct {
		Message  string `json:"message"`
		Location string `json:"location"`
	} `json:"errors"`
}

// Error describes the error and its field.
func (e *Error) Error() string {
	text := e.Detail
	if text == "" {
		text = e.Title
	}
	for _, d := range e.Errors {
		if !strings.Contains(text, d.Message) {
			text += "; " + strings.TrimPrefix(d.Location, "body.") + ": " + d.Message
		}
	}
	return text
}

// ErrNoServer is returned when there is no answer.
var ErrNoServer = errors.New("no Muster daemon answers")

// do makes a request and reads the answer into out.
func (c *Client) do(ctx context.Context, method, path string, in, out any, header ...string) error {
	resp, err := c.open(ctx, method, path, in, header...)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if out == nil || resp.Status == noContent {
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return err
	}
	if onTerminal.Load() {
		plain.Clean(out)
	}
	return nil
}

var onTerminal atomic.Bool

// OnTerminal states whether the output of this process is for people: then other users' texts in answers are
// escaped so that a terminal does not act on them. Otherwise answers are data and stay unchanged.
func OnTerminal(yes bool) { onTerminal.Store(yes) }

func (c *Client) open(ctx context.Context, method, path string, in any, header ...string) (*Response, error) {
	if c.err != nil {
		return nil, c.err
	}
	r := &Request{Method: method, Path: path, Header: header}
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		r.Body, r.Header = text, append(r.Header, "Content-Type", "application/json")
	}
	if c.token != "" {
		r.Header = append(r.Header, "Authorization", "Bearer "+c.token)
	}
	resp, err := c.via.Exchange(ctx, r)
	if err != nil {
		var dial *DialError
		if errors.As(err, &dial) {
			return nil, fmt.Errorf("%w at %s: start one with muster serve, or name its socket in MUSTER_SOCKET or its address with muster login (%w)", ErrNoServer, c.name, dial.Err)
		}
		return nil, err
	}
	if resp.Status >= badRequest {
		defer resp.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
		e := &Error{}
		if json.Unmarshal(text, e) != nil || e.Status == 0 {
			e = &Error{Status: resp.Status, Detail: strings.TrimSpace(string(text))}
		}
		return nil, c.explain(e)
	}
	return resp, nil
}

// Submitted is the answer to a submission.
type Submitted struct {
	Jobs []int   `json:"jobs"`
	Job  api.Job `json:"job"`
	Why  api.Why `json:"why"`
}

// answerPatience is how long the client waits for an answer after the caller was told to end.
const answerPatience = 10 * time.Second

// Lasting returns a context for such a request, which outlives ctx by answerPatience.
func Lasting(ctx context.Context) (lasting context.Context, done context.CancelFunc) {
	lasting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	forget := context.AfterFunc(ctx, func() { time.AfterFunc(answerPatience, cancel) })
	return lasting, func() {
		forget()
		cancel()
	}
}

// Submit submits a job; key, if it is not empty, makes it safe to try again. If ctx ends meanwhile, it waits for
// the answer all the same: without the job's number the caller could not cancel it.
func (c *Client) Submit(ctx context.Context, s *api.Submission, key string) (out Submitted, err error) {
	if err := ctx.Err(); err != nil {
		return out, err
	}
	lasting, done := Lasting(ctx)
	defer done()
	var header []string
	if key != "" {
		header = []string{"Idempotency-Key", key}
	}
	return out, c.do(lasting, post, "/v1/jobs", s, &out, header...)
}

// SubmitOnly submits a job and returns only the number of the job or array.
func (c *Client) SubmitOnly(ctx context.Context, s *api.Submission) (int, error) {
	var out struct {
		ID   int   `json:"id"`
		Jobs []int `json:"jobs"` // of a server without minimal answers
	}
	if err := c.do(ctx, post, "/v1/jobs", s, &out, "Prefer", "return=minimal"); err != nil {
		return 0, err
	}
	if out.ID == 0 && len(out.Jobs) > 0 {
		out.ID = out.Jobs[0]
	}
	if out.ID == 0 {
		return 0, errors.New("the server took the job and does not say under which number: muster queue lists it")
	}
	return out.ID, nil
}

// Test returns what Submit would; nothing is submitted.
func (c *Client) Test(ctx context.Context, s *api.Submission) (out Submitted, err error) {
	return out, c.do(ctx, post, "/v1/jobs?test=true", s, &out)
}

// Job returns a job.
func (c *Client) Job(ctx context.Context, id int) (j api.Job, err error) {
	return j, c.do(ctx, get, "/v1/jobs/"+strconv.Itoa(id), nil, &j)
}

// Wait returns a job when it is over.
func (c *Client) Wait(ctx context.Context, id int) (j api.Job, err error) {
	return j, c.do(ctx, get, "/v1/jobs/"+strconv.Itoa(id)+"/wait", nil, &j)
}

// Why explains a job.
func (c *Client) Why(ctx context.Context, id int) (w api.Why, err error) {
	return w, c.do(ctx, get, "/v1/jobs/"+strconv.Itoa(id)+"/why", nil, &w)
}

// Act applies a verb to a job: cancel, hold, release, requeue, suspend, resume.
func (c *Client) Act(ctx context.Context, id int, verb string) (j api.Job, err error) {
	return j, c.do(ctx, post, "/v1/jobs/"+strconv.Itoa(id)+"/"+verb, nil, &j)
}

// ActOnAll cancels, holds or releases many jobs in one step.
func (c *Client) ActOnAll(ctx context.Context, sel *api.Selection, verb string) (done api.Acted, err error) {
	return done, c.do(ctx, post, "/v1/jobs/"+verb, sel, &done)
}

// most is the largest number of jobs in a page.
const most = "10000"

// List returns all pages of the jobs that a query selects, the latest first.
func (c *Client) List(ctx context.Context, q map[string][]string) (list []api.Job, err error) {
	q = maps.Clone(q)
	if q == nil {
		q = map[string][]string{}
	}
	q["arrays"], q["limit"] = []string{"true"}, []string{most}
	for {
		var page struct {
			Jobs []api.Job `json:"jobs"`
			Next int       `json:"next"`
		}
		if err := c.do(ctx, get, "/v1/jobs?"+query(q), nil, &page); err != nil {
			return nil, err
		}
		if page.Jobs = show.Expand(page.Jobs); list == nil {
			list = page.Jobs
		} else {
			list = append(list, page.Jobs...)
		}
		if page.Next == 0 {
			return list, nil
		}
		q["before"] = []string{strconv.Itoa(page.Next)}
	}
}

// Nodes lists the machines.
func (c *Client) Nodes(ctx context.Context) (list []api.Node, err error) {
	return list, c.do(ctx, get, "/v1/nodes", nil, &list)
}

// Speeds returns the measured speeds of jobs.
func (c *Client) Speeds(ctx context.Context) (s api.Speeds, err error) {
	err = c.do(ctx, get, "/v1/speeds", nil, &s)
	return s, err
}

// Usage reports what was used since a time, or for a duration up to now.
func (c *Client) Usage(ctx context.Context, by, since string) (u api.Usage, err error) {
	q := map[string][]string{"by": {by}, "since": {since}}
	return u, c.do(ctx, get, "/v1/usage?"+query(q), nil, &u)
}

// Queues lists the queues.
func (c *Client) Queues(ctx context.Context) (list []api.Queue, err error) {
	return list, c.do(ctx, get, "/v1/queues", nil, &list)
}

// Fair returns the components of fair shares and priorities.
func (c *Client) Fair(ctx context.Context) (f api.Fair, err error) {
	return f, c.do(ctx, get, "/v1/fair", nil, &f)
}

// Samples returns the measurements of a job.
func (c *Client) Samples(ctx context.Context, id int) (s api.Samples, err error) {
	return s, c.do(ctx, get, "/v1/jobs/"+strconv.Itoa(id)+"/samples", nil, &s)
}

// Log copies a task's present output to w.
func (c *Client) Log(ctx context.Context, id, task int, stream string, w io.Writer) error {
	q := map[string][]string{"task": {strconv.Itoa(task)}, "stream": {stream}}
	resp, err := c.open(ctx, get, "/v1/jobs/"+strconv.Itoa(id)+"/log?"+query(q), nil)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, resp.Body)
	return errors.Join(err, resp.Body.Close())
}

// Signal sends a signal to a running job.
func (c *Client) Signal(ctx context.Context, id int, r api.SignalRequest) error {
	return c.do(ctx, post, "/v1/jobs/"+strconv.Itoa(id)+"/signal", &r, nil)
}

// Partitions lists the partitions.
func (c *Client) Partitions(ctx context.Context) (list []api.Partition, err error) {
	return list, c.do(ctx, get, "/v1/partitions", nil, &list)
}
