//go:build linux

package local

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

// A server that began and ended between two looks is known from what the control daemon wrote: unless it exited because nobody
// needed it, it has hit whoever is there of its user. What was written before is not news, nor is half a line.
func TestServerLogged(t *testing.T) {
	const gone = 1 << 30 // no process has such a number
	start := func(uid int) string {
		return fmt.Sprintf("[2024-04-29 11:22:10.421 Control    73] Starting new server %d for user %d\n", gone, uid)
	}
	exit := func(status int) string {
		return "[2024-04-29 11:22:10.441 Control    73] Server encountered a fatal exception. Shutting down\n" +
			fmt.Sprintf("[2024-04-29 11:22:10.446 Control    73] Server %d exited with status %d\n", gone, status)
	}
	const before = "[2024-04-29 11:22:09.000 Control    73] Starting control daemon using socket /mps/control\n[x\n\nServer\n"
	for what, c := range map[string]struct {
		log  []string // what there is at each look; the first is what was there before
		down bool     // the last look is the next service's
		hit  []cluster.JobID
	}{
		"a fault":                 {[]string{before, before + start(5) + exit(1)}, false, []cluster.JobID{7, 8}},
		"the service was down":    {[]string{before, before + start(5) + exit(1)}, true, []cluster.JobID{7, 8}},
		"nobody needed it":        {[]string{before, before + start(5) + exit(0)}, false, nil},
		"another user's":          {[]string{before, before + start(6) + exit(1)}, false, nil},
		"it ended without a word": {[]string{before, before + start(5)}, false, []cluster.JobID{7, 8}},
		"long ago":                {[]string{before + start(5) + exit(1), before + start(5) + exit(1)}, false, nil},
		"half a line":             {[]string{before, before + start(5)[:50]}, false, nil},
		"the other half":          {[]string{before, before + start(5)[:50], before + start(5) + exit(1)}, false, []cluster.JobID{7, 8}},
		"another log":             {[]string{before + before + before + before, start(5) + exit(2)}, false, []cluster.JobID{7, 8}},
		"no log":                  {[]string{"", ""}, false, nil},
	} {
		m, src := accounts(t)
		now := t0
		m.opt.Now = func() time.Time { return now }
		list := filepath.Join(t.TempDir(), "servers")
		write(t, list, "\n")
		uuid, _ := shareUnderMPS(t, m, src, playedServers+list+"\n")
		clear(m.jobs)
		for _, id := range []cluster.JobID{7, 8} {
			m.jobs[id] = &job{id: id, info: Info{User: User{UID: 5}, Record: engine.JobRecord{Allocs: []engine.Alloc{{GPUs: 2, Share: 250, Tasks: 1}}}}}
		}
		d := m.mps.of(uuid)
		d.known = mpsKnown{} // what there is first was there before
		for i, text := range c.log {
			now = now.Add(2 * time.Second)
			if text != "" {
				write(t, filepath.Join(d.dir, "log", "control.log"), text)
			}
			if c.down && i == len(c.log)-1 {
				if err := m.findMPS(); err != nil {
					t.Fatal(err)
				}
				m.mps.missed()
				d = m.mps.of(uuid)
			} else if err := m.mps.look(d); err != nil {
				t.Fatal(err)
			}
		}
		f := d.known.Fault
		if (f != nil) != (c.hit != nil) || f != nil && !slices.Equal(f.Hit, c.hit) {
			t.Errorf("%s: %+v", what, f)
		}
		if f != nil && (f.To != now || now.Sub(f.From) > 2*time.Second) {
			t.Errorf("%s: it ended between %v and %v, looked at %v", what, f.From, f.To, now)
		}
		if len(d.known.Servers) != 0 {
			t.Errorf("%s: there is %+v", what, d.known.Servers)
		}
		if err := os.RemoveAll(d.dir); err != nil {
			t.Fatal(err)
		}
	}
}
