//go:build linux

package share

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// A server of Volta or later survives a fatal error of a client: it ends what all its clients compute, waits until
// they have left, and goes on. Its log tells that; as of driver 580, on an H100,
//
//	[2026-11-27 02:18:46.922 Server   776] Client {PID: 2014, Context ID: 1} exiting. Worker is in reset. Number of …
//
// is a client that leaves after an error. An error that is its own alone, such as an assertion in a kernel, leaves the
// others be; so two that leave like that within a moment were hit by one. The lines that a fatal error is handled, and
// that a client became inactive by it, follow NVIDIA's documentation of MPS (Error Containment): no server was seen
// writing them.
//
// A server runs as its clients' user, so its log is that user's claim: only the control daemon says which servers there
// are, and whose. What is claimed can bring back jobs of that user alone, and not often (MostFaults).

// reset is a client that left with an error.
type reset struct {
	Server int       `json:"server"` // process number of its server
	PID    int       `json:"pid"`
	From   time.Time `json:"from"` // between which it left
	To     time.Time `json:"to"`
}

const (
	// leavesWithin is within which the others have left, if an error ended them, too.
	leavesWithin = 3 * time.Second
	// mostLog is how much of a server's log is read at a time; what is before that was missed.
	mostLog = 1 << 20
)

// clients notes what the servers wrote since then of errors that ended all their clients.
func (s *MPS) clients(d *control, was *known) {
	from := was.At
	if from.IsZero() {
		from = d.known.At
	}
	now := s.opt.Now()
	d.known.Reset = slices.DeleteFunc(slices.Clone(d.known.Reset), func(r reset) bool { return now.Sub(r.To) > near })
	_, err := d.news("server.log", mostLog, &d.known.ServerLog, &d.known.ServerHead, func(line string) {
		pid, client := failed(line)
		which := slices.IndexFunc(d.known.Servers, func(v server) bool { return v.PID == pid })
		if which < 0 {
			return
		}
		hit := fault{From: from, To: now, Hit: s.clientsOf(d, d.known.Servers[which])}
		if client != 0 {
			before := slices.IndexFunc(d.known.Reset, func(r reset) bool { return r.Server == pid })
			if before < 0 {
				d.known.Reset = append(d.known.Reset, reset{pid, client, from, now})
			}
			if before < 0 || d.known.Reset[before].PID == client {
				return
			}
			hit.From = d.known.Reset[before].From
		}
		d.known.Reset = slices.DeleteFunc(d.known.Reset, func(r reset) bool { return r.Server == pid })
		if len(hit.Hit) > 0 {
			s.fault(d, hit)
		}
	})
	if err != nil {
		s.opt.Log.Warn("what the servers of MPS write cannot be read", "uuid", d.uuid, "error", err)
	}
}

// failed is the server whose clients have an error as a line of its log says, and the one client that left with it;
// 0: they all have it. A server of 0: the line says nothing of that.
func failed(line string) (server, client int) {
	about, text, ok := strings.Cut(line, "] ")
	words := strings.Fields(about)
	if !ok || len(words) == 0 {
		return 0, 0
	}
	server, err := strconv.Atoi(words[len(words)-1])
	if err != nil {
		return 0, 0
	}
	var context int
	switch {
	case strings.Contains(text, "fatal GPU error"),
		strings.HasPrefix(text, "Status of client ") && strings.Contains(text, " is INACTIVE"):
		return server, 0
	case strings.Contains(text, "exiting. Worker is in reset") &&
		scans(text, "Client {PID: %d, Context ID: %d}", &client, &context):
		return server, client
	}
	return 0, 0
}

// awaited reports whether a client left with an error a moment ago, and others may yet.
func (s *MPS) awaited(d *control) bool {
	now := s.opt.Now()
	return slices.ContainsFunc(d.known.Reset, func(r reset) bool { return now.Sub(r.To) < leavesWithin }) &&
		len(s.opt.Host.Sharers(d.uuid)) > 1
}
