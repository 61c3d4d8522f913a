//go:build linux

package share

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/local/shim"
)

// Where a server goes on after a client's error, its log tells whom the error hit: if one client left with it, nobody
// else; if two did, or the server speaks of a fatal error, all jobs of that user. Lines of other processes are ignored.
// How a client leaves is written as driver 580 writes it on an H100.
func TestClientsFail(t *testing.T) {
	process := served(t)
	left := func(client int, how string) string {
		return fmt.Sprintf("[2026-11-27 02:18:46.922 Server %5d] Server failed to recevie command with status 806, "+
			"assuming client {PID: %d, Context ID: 1} exit\n[2026-11-27 02:18:46.922 Server %5d] Client {PID: %d, "+
			"Context ID: 1} exiting.%s Number of active client contexts is 1.\n", process.Pid, client, process.Pid,
			client, how)
	}
	own := left(2014, " Worker is in reset.")
	fatal := fmt.Sprintf("[2026-11-27 02:18:46.922 Server %5d] Server is handling a fatal GPU error.\n", process.Pid)
	inactive := fmt.Sprintf("[2026-11-27 02:18:46.922 Server %5d] Status of client {PID: 2014, Context ID: 1} is INACTIVE\n",
		process.Pid)
	for what, c := range map[string]struct {
		log  []string // at each look; the first is what was there before
		want string   // the others that it hit, when job 7 fails at the last look
	}{
		"both left as usual":       {[]string{"", left(1993, "") + left(2014, "")}, ""},
		"one alone":                {[]string{"", own}, ""},
		"both":                     {[]string{"", own + left(1993, " Worker is in reset.")}, "8"},
		"one after the other":      {[]string{"", own, own + left(1993, " Worker is in reset.")}, "8"},
		"one twice":                {[]string{"", own + own}, ""},
		"long before":              {[]string{own, own + left(1993, " Worker is in reset.")}, ""},
		"fatal":                    {[]string{"", fatal}, "8"},
		"inactive":                 {[]string{"", inactive}, "8"},
		"another process says so":  {[]string{"", strings.ReplaceAll(fatal, fmt.Sprint(process.Pid), "1")}, ""},
		"half a line":              {[]string{"", fatal[:len(fatal)-1]}, ""},
		"after more than is read":  {[]string{"", strings.Repeat("x", mostLog) + "\n" + fatal}, "8"},
		"before more than is read": {[]string{"", fatal + strings.Repeat("x", mostLog) + "\n"}, ""},
		"a line without an end, then": {[]string{"", strings.Repeat("x", 2*mostLog),
			strings.Repeat("x", 2*mostLog) + "\n" + fatal}, "8"},
	} {
		now := t0
		list := filepath.Join(t.TempDir(), "servers")
		write(t, list, fmt.Sprintln(process.Pid))
		m := shared(t, func() time.Time { now = now.Add(time.Second / 2); return now }, playedServers+list+"\n")
		clear(m.jobs)
		m.jobs[7], m.jobs[8], m.jobs[9] = 5, 5, 6
		d := m.mps.of(uuid)
		d.known = known{At: now, Servers: []server{{PID: process.Pid, UID: 5, Birth: shim.Birth(process.Pid)}}}
		for i, text := range c.log {
			if text != "" {
				write(t, filepath.Join(d.dir, "log", "server.log"), text)
			}
			if i < len(c.log)-1 {
				now = now.Add(2 * time.Second)
				if err := m.mps.checkServers(d); err != nil {
					t.Fatal(err)
				}
			}
		}
		if got := m.others(7, now); got != c.want {
			t.Errorf("%s: %q, want %q; %+v", what, got, c.want, d.known)
		}
		m.find(t) // the next service knows it, too
		if got := m.others(7, now); got != c.want {
			t.Errorf("%s, then a restart: %q, want %q", what, got, c.want)
		}
		if err := os.RemoveAll(d.dir); err != nil {
			t.Fatal(err)
		}
	}
}

// After one client has left with an error, Muster waits a moment for others to do so, unless the job is alone.
func TestClientsLeaveLater(t *testing.T) {
	process := served(t)
	list := filepath.Join(t.TempDir(), "servers")
	write(t, list, fmt.Sprintln(process.Pid))
	m := shared(t, time.Now, playedServers+list+"\n")
	m.jobs = map[cluster.JobID]int{7: 5}
	d := m.mps.of(uuid)
	file := filepath.Join(d.dir, "log", "server.log")
	line := func(client int) string {
		return fmt.Sprintf("[x Server %d] Client {PID: %d, Context ID: 1} exiting. Worker is in reset. …\n", process.Pid, client)
	}
	if err := m.mps.checkServers(d); err != nil {
		t.Fatal(err)
	}
	write(t, file, line(10))
	begun := time.Now()
	if got := m.others(7, begun); got != "" || time.Since(begun) >= leavesWithin {
		t.Errorf("alone: %q after %v", got, time.Since(begun))
	}
	m.jobs[8] = 5
	time.AfterFunc(200*time.Millisecond, func() { _ = os.WriteFile(file, []byte(line(10)+line(11)), 0o600) })
	if got := m.others(7, time.Now()); got != "8" {
		t.Errorf("another one left a moment later: %q", got)
	}
}
