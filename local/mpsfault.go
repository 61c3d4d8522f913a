//go:build linux

package local

import (
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

// A server that ends takes its clients with it, whoever of them was the cause. The control
// daemon is asked for its servers every now and then, so it is known between which two
// moments one ended: seconds apart while the service runs, and as long as it was down where
// that happened meanwhile. What is known is kept beside the control daemon's own files.

// mpsServer is a server of a control daemon: it takes clients of one user, whose it is.
type mpsServer struct {
	PID   int    `json:"pid"`
	UID   int    `json:"uid"`             // 0: root's, or nobody's in particular
	Birth uint64 `json:"birth,omitempty"` // of its process, in clock ticks since boot; 0: it cannot be seen
}

// is reports whether two that were seen are one.
func (v mpsServer) is(o mpsServer) bool {
	return v.PID == o.PID && (v.Birth == o.Birth || v.Birth == 0 || o.Birth == 0)
}

// mpsKnown is what is known of the servers of a GPU.
type mpsKnown struct {
	At      time.Time   `json:"at,omitzero"` // since when they were not looked at
	Servers []mpsServer `json:"servers,omitempty"`
	Fault   *mpsFault   `json:"fault,omitempty"` // the last one; nil: there was none
	Log     *int64      `json:"log,omitempty"`   // so much of the control daemon's log was read; nil: nobody knows
}

// read is how much of the control daemon's log was read; -1: nobody knows.
func (k *mpsKnown) read() int64 {
	if k.Log == nil {
		return -1
	}
	return *k.Log
}

// mpsFault is the end of a server whose clients were there.
type mpsFault struct {
	From time.Time       `json:"from"` // between which it ended
	To   time.Time       `json:"to"`
	Hit  []cluster.JobID `json:"hit"` // whose clients they may have been
}

// explains reports whether a job that failed at that time may have done so because of it.
func (f *mpsFault) explains(id cluster.JobID, failed time.Time) bool {
	return f != nil && slices.Contains(f.Hit, id) && !failed.Before(f.From.Add(-mpsNear)) && !failed.After(f.To.Add(mpsNear))
}

// mpsKnownFile, in a control daemon's folder, has what is known of its servers.
const mpsKnownFile = "servers.json"

func (d *mpsDaemon) load() error {
	path := filepath.Join(d.dir, mpsKnownFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var k mpsKnown
	if err := json.Unmarshal(text, &k); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	d.known = k
	return nil
}

// save writes what is known, all of it or nothing. It need not survive a power cut: no
// server does.
func (d *mpsDaemon) save() error {
	text, err := json.Marshal(&d.known)
	if err != nil {
		return err
	}
	path := filepath.Join(d.dir, mpsKnownFile)
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// look asks a control daemon for its servers, and notes if one that was there has
// gone. Its lock is held.
func (s *mpsDaemons) look(d *mpsDaemon) error {
	asked := s.m.opt.Now()
	text, err := s.tell(d, "get_server_list")
	if err != nil {
		s.seen(d, asked, nil)
		return err
	}
	var listed []mpsServer
	for _, word := range strings.Fields(text) {
		if pid, err := strconv.Atoi(word); err == nil {
			listed = append(listed, s.serverOf(d, pid))
		}
	}
	s.seen(d, asked, listed)
	return nil
}

// missed notes which servers ended while the service was down. It is called before it is said
// which jobs ended meanwhile.
func (s *mpsDaemons) missed() {
	for _, d := range s.all() {
		d.mu.Lock()
		s.seen(d, s.m.opt.Now(), nil)
		d.mu.Unlock()
	}
}

// serverOf is the server with this process number, and whose it is.
func (s *mpsDaemons) serverOf(d *mpsDaemon, pid int) mpsServer {
	v := mpsServer{PID: pid, Birth: shim.Birth(pid)}
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

// seen compares the servers that a control daemon was asked for with those that were known, and those of which its log says that they
// were started since. One that it does not list, because it does not answer or is another one by now, has gone
// only if its process has, or the log says that it exited. One that makes room for another user's has no clients any more, nor has one
// that exited with status 0: that is no fault.
func (s *mpsDaemons) seen(d *mpsDaemon, asked time.Time, listed []mpsServer) {
	was := d.known
	log, err := d.logged()
	if err != nil {
		s.m.opt.Log.Warn("what a control daemon of MPS writes cannot be read", "uuid", d.uuid, "error", err)
	}
	for _, v := range log.started {
		if !slices.ContainsFunc(was.Servers, v.is) {
			was.Servers = append(slices.Clone(was.Servers), v)
		}
	}
	d.known = mpsKnown{At: asked, Fault: was.Fault, Log: d.known.Log}
	for _, v := range listed {
		if _, gone := log.exited[v.PID]; !gone || shim.Lives(v.PID, v.Birth) {
			d.known.Servers = append(d.known.Servers, v)
		} else if !slices.ContainsFunc(was.Servers, v.is) {
			was.Servers = append(slices.Clone(was.Servers), v)
		}
	}
	for _, old := range was.Servers {
		status, exited := log.exited[old.PID]
		switch {
		case slices.ContainsFunc(d.known.Servers, old.is):
		case shim.Lives(old.PID, old.Birth) && (!exited || old.Birth != 0):
			d.known.Servers = append(d.known.Servers, old)
		case !exited || status != 0:
			s.ended(d, old, was.At)
		}
	}
	if len(was.Servers) == 0 && len(d.known.Servers) == 0 && d.known.read() == was.read() {
		return
	}
	if err := d.save(); err != nil {
		s.m.opt.Log.Warn("what is known of the MPS servers of a GPU cannot be kept", "uuid", d.uuid, "error", err)
	}
}

// ended notes that a server has ended since a time, and whose clients it may have had.
func (s *mpsDaemons) ended(d *mpsDaemon, old mpsServer, from time.Time) {
	hit := slices.DeleteFunc(s.m.sharers(d.uuid), func(id cluster.JobID) bool { return old.UID > 0 && s.m.uidOf(id) != old.UID })
	if len(hit) == 0 {
		return
	}
	if from.IsZero() { // it was never looked at before: the server is no older than that
		from = s.m.opt.Now()
	}
	d.known.Fault = &mpsFault{From: from, To: s.m.opt.Now(), Hit: hit}
	s.m.opt.Log.Warn("MPS: a server has ended, and its clients with it", "uuid", d.uuid, "jobs", numbers(hit), "after", from.Format(time.TimeOnly))
}

// faultOfOthers says, of a run that failed, that the server of its GPU ended about then,
// while others were on it too: whose fault that was the driver does not tell. "": it
// failed by itself. It is called without the state's lock.
func (r *runner) faultOfOthers() string {
	failed := r.failedAt()
	r.m.mu.RLock()
	devices := r.m.devices(r.job.info.On)
	r.m.mu.RUnlock()
	for _, device := range devices {
		if !r.m.underMPS(&device) {
			continue
		}
		d := r.m.mps.of(device.UUID)
		d.mu.Lock()
		_ = r.m.mps.look(d)
		fault := d.known.Fault
		d.mu.Unlock()
		if !fault.explains(r.id, failed) {
			continue
		}
		others := slices.DeleteFunc(slices.Clone(fault.Hit), func(id cluster.JobID) bool { return id == r.id })
		if len(others) > 0 {
			was := "job %s was"
			if len(others) > 1 {
				was = "jobs %s were"
			}
			return fmt.Sprintf("the MPS server of GPU %d ended; "+was+" on it, too", device.Index, numbers(others))
		}
	}
	return ""
}
