//go:build linux

package share

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// A server that began and ended between two looks is known from what the control daemon wrote: unless it exited
// because nobody needed it, it has hit whoever is there of its user. What was written before is not news, nor
// is half a line.
func TestServerLogged(t *testing.T) {
	const gone = 1 << 30 // no process has such a number
	number := gone
	start := func(uid int) string {
		return fmt.Sprintf("[2024-04-29 11:22:10.421 Control    73] Starting new server %d for user %d\n", number, uid)
	}
	exit := func(status int) string {
		return "[2024-04-29 11:22:10.441 Control    73] Server encountered a fatal exception. Shutting down\n" +
			fmt.Sprintf("[2024-04-29 11:22:10.446 Control    73] Server %d exited with status %d\n", number, status)
	}
	number = os.Getpid() // another process has its number when the log is read
	reused := start(5) + exit(1)
	number = gone
	const before = "[2024-04-29 11:22:09.000 Control    73] Starting control daemon using socket /mps/control\n[x\n\nServer\n"
	for what, c := range map[string]struct {
		log  []string // what there is at each look; the first is what was there before
		down bool     // the last look is the next service's
		hit  []cluster.JobID
	}{
		"a fault":                    {[]string{before, before + start(5) + exit(1)}, false, []cluster.JobID{7, 8}},
		"the service was down":       {[]string{before, before + start(5) + exit(1)}, true, []cluster.JobID{7, 8}},
		"nobody needed it":           {[]string{before, before + start(5) + exit(0)}, false, nil},
		"another user's":             {[]string{before, before + start(6) + exit(1)}, false, nil},
		"its number was given again": {[]string{before, before + reused}, false, []cluster.JobID{7, 8}},
		"its number is a server's again": {[]string{before, before + start(5) + exit(1) + start(5) + exit(0)}, false,
			[]cluster.JobID{7, 8}},
		"... of one that was known": {[]string{before, before + start(5),
			before + start(5) + exit(0) + start(5) + exit(1)}, false, []cluster.JobID{7, 8}},
		"twice at once": {[]string{before, before + start(5) + exit(1) + start(5) + exit(1)}, false,
			[]cluster.JobID{7, 8}},
		"it ended without a word": {[]string{before, before + start(5), before + start(5)}, false,
			[]cluster.JobID{7, 8}},
		"it is written late": {[]string{before, before + start(5), before + start(5) + exit(1)}, false,
			[]cluster.JobID{7, 8}},
		"that nobody needed it, too": {[]string{before, before + start(5), before + start(5) + exit(0)}, false,
			nil},
		"... the service was down": {[]string{before, before + start(5), before + start(5) + exit(0)}, true, nil},
		"another log, soon as long": {[]string{before,
			"[2024-04-30" + before[len("[2024-04-29"):] + start(5) + exit(1)}, false, []cluster.JobID{7, 8}},
		"another log, which is longer": {[]string{before, "[2024-04-30 00:00:00.000 Control    73] \n" + start(5) +
			exit(1) + start(6) + before + before}, false, []cluster.JobID{7, 8}},
		"long ago": {[]string{before + start(5) + exit(1), before + start(5) + exit(1)}, false,
			nil},
		"half a line": {[]string{before, before + start(5)[:50]}, false, nil},
		"the other half": {[]string{before, before + start(5)[:50], before + start(5) + exit(1)}, false,
			[]cluster.JobID{7, 8}},
		"another log": {[]string{before + before + before + before, start(5) + exit(2)}, false,
			[]cluster.JobID{7, 8}},
		"no log": {[]string{"", ""}, false, nil},
	} {
		now := t0
		list := filepath.Join(t.TempDir(), "servers")
		write(t, list, "\n")
		m := shared(t, func() time.Time { return now }, playedServers+list+"\n")
		clear(m.jobs)
		m.jobs[7], m.jobs[8] = 5, 5
		d := m.mps.of(uuid)
		d.known = known{} // what there is first was there before
		for i, text := range c.log {
			now = now.Add(2 * time.Second)
			if text != "" {
				write(t, filepath.Join(d.dir, "log", "control.log"), text)
			}
			if c.down && i == len(c.log)-1 {
				m.find(t)
				m.mps.Missed()
				d = m.mps.of(uuid)
			} else if err := m.mps.checkServers(d); err != nil {
				t.Fatal(err)
			}
		}
		var f *fault
		if n := len(d.known.Faults); n > 0 {
			f = &d.known.Faults[n-1]
		}
		if (f != nil) != (c.hit != nil) || f != nil && !slices.Equal(f.Hit, c.hit) || len(d.known.Faults) > 1 {
			t.Errorf("%s: %+v", what, d.known.Faults)
		}
		if f != nil && (now.Sub(f.To) > 2*time.Second || f.To.Sub(f.From) > 2*time.Second) {
			t.Errorf("%s: it ended between %v and %v, looked at %v", what, f.From, f.To, now)
		}
		if len(d.known.Servers)+len(d.known.Held) != 0 {
			t.Errorf("%s: there is %+v, awaited is %+v", what, d.known.Servers, d.known.Held)
		}
		if err := os.RemoveAll(d.dir); err != nil {
			t.Fatal(err)
		}
	}
}

// Servers of several users that end between two looks are faults of their own jobs each. The last few are
// remembered, also by the next service, and that of which an earlier version kept is.
func TestFaultsOfSeveral(t *testing.T) {
	now := t0
	list := filepath.Join(t.TempDir(), "servers")
	write(t, list, "\n")
	m := shared(t, func() time.Time { return now }, playedServers+list+"\n")
	clear(m.jobs)
	maps.Copy(m.jobs, map[cluster.JobID]int{7: 5, 8: 5, 9: 6, 10: 6, 11: 7})
	failed := t0.Add(2 * time.Second)
	d, text := m.mps.of(uuid), ""
	say := func(n, uid int) {
		now = now.Add(2 * time.Second)
		text += fmt.Sprintf("[x] Starting new server %d for user %d\n[x] Server %d exited with status 1\n", n, uid, n)
	}
	say(1<<30, 5)
	say(1<<30+1, 6)
	say(1<<30+2, 7)
	now = t0.Add(2 * time.Second)
	write(t, filepath.Join(d.dir, "log", "control.log"), text)
	check := func(when string) {
		t.Helper()
		for id, want := range map[cluster.JobID]string{7: "8", 8: "7", 9: "10", 10: "9", 11: ""} {
			if got := m.others(id, failed); got != want {
				t.Errorf("%s: job %d: %q, want %q", when, id, got, want)
			}
		}
	}
	check("at once")
	m.find(t)
	check("the next service")
	d = m.mps.of(uuid)
	for n := range 2 * mostFaults {
		say(1<<30+3+n, 7)
		write(t, filepath.Join(d.dir, "log", "control.log"), text)
		if err := m.mps.checkServers(d); err != nil {
			t.Fatal(err)
		}
	}
	if f := d.known.Faults; len(f) != mostFaults || f[mostFaults-1].To != now {
		t.Errorf("after many there are %+v", f)
	}
	write(t, filepath.Join(d.dir, knownFile),
		`{"at":"`+t0.Format(time.RFC3339)+`","fault":{"from":"`+t0.Format(time.RFC3339)+`","to":"`+
			t0.Add(2*time.Second).Format(time.RFC3339)+`","hit":[9,10]}}`)
	m.find(t)
	if got := m.others(9, failed); got != "10" {
		t.Errorf("what an earlier version kept: %q", got)
	}
}

// A job that fails with a server whose end is not written yet waits for that: it was no fault if none needed the
// server any more.
func TestFaultAwaitsLog(t *testing.T) {
	list := filepath.Join(t.TempDir(), "servers")
	write(t, list, "\n")
	m := shared(t, time.Now, playedServers+list+"\n")
	clear(m.jobs)
	const hit = "8"
	for what, c := range map[string]struct{ late, want string }{
		"a fault": {"1", hit}, "nobody needed it": {"0", ""}, "without a word": {"", hit},
	} {
		m.jobs[7], m.jobs[8] = 5, 5
		failed := time.Now()
		d, process := m.mps.of(uuid), served(t)
		d.known = known{Log: new(int64)}
		file := filepath.Join(d.dir, "log", "control.log")
		text := fmt.Sprintf("[x] Starting new server %d for user 5\n", process.Pid)
		write(t, file, text)
		if err := m.mps.checkServers(d); err != nil || len(d.known.Servers) != 1 {
			t.Fatalf("%s: %v, there is %+v", what, err, d.known)
		}
		end(t, process)
		if err := m.mps.checkServers(d); err != nil || len(d.known.Held) != 1 || len(d.known.Faults) != 0 {
			t.Errorf("%s: %v, before it is written %+v", what, err, d.known)
		}
		if c.late != "" {
			write(t, file, text+fmt.Sprintf("[x] Server %d exited with status %s\n", process.Pid, c.late))
		}
		if got := m.others(7, failed); got != c.want || len(d.known.Held) != 0 {
			t.Errorf("%s: %q, want %q, %+v", what, got, c.want, d.known)
		}
	}
}
