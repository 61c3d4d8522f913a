//go:build linux

package share

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/local/shim"
)

// A server that ends takes its clients with it, whichever of them was the cause; so does a fault that
// it survives (clients.go). The control daemon is asked for its servers every now and then, so it is
// known between which two moments that happened: seconds apart while the service runs, and as long as
// it was down where it happened meanwhile. What is known is kept beside the control daemon's own files.

// server is a server of a control daemon: it takes clients of one user, whose it is.
type server struct {
	PID   int    `json:"pid"`
	UID   int    `json:"uid"`             // 0: root's, or no particular user's
	Birth uint64 `json:"birth,omitempty"` // of its process, in clock ticks since boot; 0: it cannot be seen
}

// is reports whether two that were seen are one.
func (v server) is(o server) bool {
	return v.PID == o.PID && (v.Birth == o.Birth || v.Birth == 0 || o.Birth == 0)
}

// known is what is known of the servers of a GPU.
type known struct {
	At      time.Time `json:"at,omitzero"` // since when they were not checked
	Servers []server  `json:"servers,omitempty"`
	Held    []held    `json:"held,omitempty"`   // they have gone, and what the log will say of that is awaited
	Faults  []fault   `json:"faults,omitempty"` // the last mostFaults, the latest last
	Fault   *fault    `json:"fault,omitempty"`  // where an earlier version kept the last one: read only
	Log     *int64    `json:"log,omitempty"`    // so much of the control daemon's log was read; nil: it is not known
	Head    []byte    `json:"head,omitempty"`   // that log begins so
	// the same of the servers' log, and the clients that it says left with an error a moment ago
	ServerLog  *int64  `json:"server_log,omitempty"`
	ServerHead []byte  `json:"server_head,omitempty"`
	Reset      []reset `json:"reset,omitempty"`
}

const (
	// mostFaults is how many faults of a GPU are remembered: servers of several users may end between two checks.
	mostFaults = 8
	// writesWithin is within which a control daemon has written how a server exited.
	writesWithin = time.Second
)

// clientsRead is the same of the servers' log.
func (k *known) clientsRead() int64 {
	if k.ServerLog == nil {
		return -1
	}
	return *k.ServerLog
}

// held is a server whose process has gone, and which is a fault unless the control daemon will have written
// that it exited with status 0.
type held struct {
	server
	Fault fault `json:"fault"`
}

// read is how much of the control daemon's log was read; -1: it is not known.
func (k *known) read() int64 {
	if k.Log == nil {
		return -1
	}
	return *k.Log
}

// fault is the end of a server whose clients were there, or an error that ended all of them.
type fault struct {
	From time.Time       `json:"from"` // between which it ended
	To   time.Time       `json:"to"`
	Hit  []cluster.JobID `json:"hit"` // whose clients they may have been
}

// explains reports whether a job that failed at that time may have done so because of it.
func (f *fault) explains(id cluster.JobID, failed time.Time) bool {
	return slices.Contains(f.Hit, id) && !failed.Before(f.From.Add(-near)) && !failed.After(f.To.Add(near))
}

// knownFile, in a control daemon's folder, has what is known of its servers.
const knownFile = "servers.json"

func (d *control) load() error {
	path := filepath.Join(d.dir, knownFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var k known
	if err := json.Unmarshal(text, &k); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if k.Fault != nil {
		k.Faults, k.Fault = append(k.Faults, *k.Fault), nil
	}
	d.known = k
	return nil
}

// save writes what is known, all of it or nothing. It need not survive a power cut: no
// server does.
func (d *control) save() error {
	text, err := json.Marshal(&d.known)
	if err != nil {
		return err
	}
	path := filepath.Join(d.dir, knownFile)
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// checkServers asks a control daemon for its servers, and notes if one that was there has
// gone. Its lock is held.
func (s *MPS) checkServers(d *control) error {
	asked := s.opt.Now()
	text, err := s.send(d, "get_server_list")
	if err != nil {
		s.seen(d, asked, nil)
		return err
	}
	var listed []server
	for _, word := range strings.Fields(text) {
		if pid, err := strconv.Atoi(word); err == nil {
			listed = append(listed, s.serverOf(d, pid))
		}
	}
	s.seen(d, asked, listed)
	return nil
}

// Missed notes which servers ended while the service was down. It is called before it is said
// which jobs ended meanwhile.
func (s *MPS) Missed() {
	for _, d := range s.all() {
		d.mu.Lock()
		s.seen(d, s.opt.Now(), nil)
		d.mu.Unlock()
	}
}

// serverOf is the server with this process number, and whose it is.
func (s *MPS) serverOf(d *control, pid int) server {
	v := server{PID: pid, Birth: shim.Birth(pid)}
	if i := slices.IndexFunc(d.known.Servers, v.is); i >= 0 {
		return d.known.Servers[i]
	}
	text, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	_, rest, _ := strings.Cut(string(text), "\nUid:\t")
	if f := strings.Fields(rest); len(f) > 0 {
		if uid, err := strconv.Atoi(f[0]); err == nil {
			v.UID = uid
		}
	}
	return v
}

// seen compares the servers that a control daemon was asked for with those that were known, and those of which
// its log says that they were started since. One of which the log says that it exited has gone, whoever has its
// number now. Another one that is not listed, because the control daemon does not answer or is another one by
// now, has gone only if its process has. One that makes room for another user's has no clients any more, nor
// has one that exited with status 0: that is no fault.
func (s *MPS) seen(d *control, asked time.Time, listed []server) {
	was := d.known
	log, err := d.logged()
	if err != nil {
		s.opt.Log.Warn("what a control daemon of MPS writes cannot be read", "uuid", d.uuid, "error", err)
	}
	d.known = known{At: asked, Faults: was.Faults, Log: d.known.Log, Head: d.known.Head, ServerLog: was.ServerLog,
		ServerHead: was.ServerHead, Reset: was.Reset}
	s.classify(d, was.Held, &log)
	left := s.exited(d, was, listed, &log)
	for _, v := range listed {
		if !log.gone(v.PID) {
			d.known.Servers = append(d.known.Servers, v)
		}
	}
	for _, old := range left {
		switch {
		case slices.ContainsFunc(d.known.Servers, old.is):
		case shim.Lives(old.PID, old.Birth):
			d.known.Servers = append(d.known.Servers, old)
		default:
			s.ended(d, old, was.At, log.read)
		}
	}
	s.clients(d, &was)
	if len(was.Servers)+len(was.Held)+len(d.known.Servers)+len(d.known.Held)+len(log.begun) == 0 &&
		d.known.read() == was.read() && bytes.Equal(d.known.Head, was.Head) &&
		d.known.clientsRead() == was.clientsRead() {
		return
	}
	if err := d.save(); err != nil {
		s.opt.Log.Warn("what is known of the MPS servers of a GPU cannot be kept", "uuid", d.uuid, "error", err)
	}
}

// classify decides how servers that had gone before ended.
func (s *MPS) classify(d *control, held []held, log *written) {
	for _, h := range held {
		status, exited := log.exited[h.PID]
		delete(log.exited, h.PID)
		switch {
		case exited && status == 0:
		case exited || !log.read || s.opt.Now().Sub(h.Fault.To) >= writesWithin:
			s.fault(d, h.Fault)
		default:
			d.known.Held = append(d.known.Held, h)
		}
	}
}

// exited notes the servers of which the log says that they exited, and returns those that were known, or were
// started since, and of which it says nothing.
func (s *MPS) exited(d *control, was known, listed []server, log *written) (left []server) {
	note := func(v server, status int) {
		if status != 0 {
			s.ended(d, v, was.At, false)
		}
	}
	old := slices.Clone(was.Servers)
	for _, v := range listed { // it exited after it was asked for
		same := func(o server) bool { return o.PID == v.PID }
		if _, exited := log.exited[v.PID]; exited && log.last(v.PID) == nil && !slices.ContainsFunc(old, same) {
			old = append(old, v)
		}
	}
	for _, v := range old {
		if status, exited := log.exited[v.PID]; exited {
			note(v, status)
		} else {
			left = append(left, v)
		}
	}
	for _, v := range log.begun {
		if v.exited { // one that was known by this number is the same
			left = slices.DeleteFunc(left, func(o server) bool { return o.PID == v.PID })
			note(v.server, v.status)
		} else if !slices.ContainsFunc(left, v.is) {
			left = append(left, v.server)
		}
	}
	return left
}

// ended notes that a server has ended since a time, and whose clients it may have had. If how it exited may yet
// be written, that is awaited.
func (s *MPS) ended(d *control, old server, from time.Time, await bool) {
	hit := s.clientsOf(d, old)
	if len(hit) == 0 {
		return
	}
	if from.IsZero() { // it was never checked before: the server is no older than that
		from = s.opt.Now()
	}
	f := fault{From: from, To: s.opt.Now(), Hit: hit}
	if await {
		d.known.Held = append(d.known.Held, held{old, f})
		return
	}
	s.fault(d, f)
}

// clientsOf are the jobs that may be clients of a server.
func (s *MPS) clientsOf(d *control, v server) []cluster.JobID {
	return slices.DeleteFunc(s.opt.Host.Sharers(d.uuid), func(id cluster.JobID) bool {
		return v.UID > 0 && s.opt.Host.UserOf(id) != v.UID
	})
}

// fault remembers one; two of the same check that hit the same jobs are one.
func (s *MPS) fault(d *control, f fault) {
	if slices.ContainsFunc(d.known.Faults, func(o fault) bool {
		return o.From.Equal(f.From) && o.To.Equal(f.To) && slices.Equal(o.Hit, f.Hit)
	}) {
		return
	}
	d.known.Faults = append(slices.Clone(d.known.Faults), f)
	d.known.Faults = d.known.Faults[max(0, len(d.known.Faults)-mostFaults):]
	s.opt.Log.Warn("MPS: a server has failed, and its clients with it", "uuid", d.uuid, "jobs", Numbers(f.Hit), "after",
		f.From.Format(time.TimeOnly))
}

// faults are those of a GPU until now. Where a server has just gone and the control daemon has not written how
// it exited, that is awaited; so are other clients that leave, where one has just left with an error.
func (s *MPS) faults(d *control) []fault {
	d.mu.Lock()
	defer d.mu.Unlock()
	_ = s.checkServers(d)
	for waited := time.Duration(0); len(d.known.Held) > 0 && waited < writesWithin || s.awaited(d); {
		waited += pause
		d.mu.Unlock()
		time.Sleep(pause)
		d.mu.Lock()
		s.seen(d, s.opt.Now(), nil)
	}
	return d.known.Faults
}

// Fault names the jobs that were on a GPU, too, when its server failed about the time at which a job failed: whose
// fault that was the driver does not say. None: the job failed by itself.
func (s *MPS) Fault(uuid string, id cluster.JobID, failed time.Time) []cluster.JobID {
	for _, f := range slices.Backward(s.faults(s.of(uuid))) {
		others := slices.DeleteFunc(slices.Clone(f.Hit), func(other cluster.JobID) bool { return other == id })
		if len(others) > 0 && f.explains(id, failed) {
			return others
		}
	}
	return nil
}

// Numbers are those of jobs, as a text.
func Numbers(ids []cluster.JobID) string {
	var words []string
	for _, id := range ids {
		words = append(words, strconv.Itoa(int(id)))
	}
	return strings.Join(words, ", ")
}
