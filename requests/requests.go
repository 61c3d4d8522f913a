// Package requests has streams of inference requests: recorded ones, read as they are needed, and drawn ones. No
// stream is held in memory.
package requests

import (
	"errors"
	"io"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/heap"
)

// Request is one call of a service.
type Request struct {
	At      cluster.Time // of its arrival
	Service int32        // as numbered by whoever made the stream
	Prompt  int32        // tokens of its prompt; 0: it has none
	Output  int32        // tokens of its answer; 0: it has none
}

// Stream is a source of requests.
type Stream interface {
	// Next overwrites r with the next request. Arrivals do not decrease. io.EOF: there are no more.
	Next(r *Request) error
}

// Merge is one stream of several, by time of arrival; requests of one instant come in the order of their streams.
func Merge(streams ...Stream) Stream {
	if len(streams) == 1 {
		return streams[0]
	}
	return &merged{streams: streams}
}

type merged struct {
	streams []Stream
	heads   []head
	begun   bool
}

// head is the next request of a stream.
type head struct {
	request Request
	stream  int
}

// Before orders heads by arrival, then by stream.
func (h *head) Before(o *head) bool {
	return h.request.At < o.request.At || h.request.At == o.request.At && h.stream < o.stream
}

func (m *merged) Next(r *Request) error {
	if !m.begun {
		m.begun = true
		for k := range m.streams {
			if err := m.pull(k); err != nil {
				return err
			}
		}
	}
	if len(m.heads) == 0 {
		return io.EOF
	}
	first := heap.Pop(&m.heads)
	*r = first.request
	return m.pull(first.stream)
}

// pull adds a stream's next request to the heads, if it has one.
func (m *merged) pull(stream int) error {
	h := head{stream: stream}
	err := m.streams[stream].Next(&h.request)
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err == nil {
		heap.Push(&m.heads, h)
	}
	return err
}

// Until ends a stream before an instant.
func Until(s Stream, end cluster.Time) Stream { return &until{s, end} }

type until struct {
	Stream
	end cluster.Time
}

func (u *until) Next(r *Request) error {
	err := u.Stream.Next(r)
	if err == nil && r.At >= u.end {
		return io.EOF
	}
	return err
}
