//go:build linux

package local

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/local/shim"
	"github.com/muster-gpu/muster/show"
)

// shareUnderMPS has job 7 have a share of the second GPU under MPS, whose control program is
// a script. It returns the GPU and the program.
func shareUnderMPS(t *testing.T, m *Machine, src *played, text string) (uuid, program string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), "control")
	if err := os.WriteFile(program, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	m.opt.Sharing.Program, m.opt.Rules.Spec.Sharing = program, cluster.MPS
	if err := m.findMPS(); err != nil {
		t.Fatal(err)
	}
	uuid = src.devices[1].UUID
	m.jobs[7] = &job{id: 7, info: &Info{Record: engine.JobRecord{Allocs: []engine.Alloc{{GPUs: 2, Share: 250}}}}}
	if err := m.mps.need(uuid); err != nil {
		t.Fatal(err)
	}
	return uuid, program
}

// A control daemon stays for a while after the last share has left its GPU, and is
// told to quit then; its GPU is no longer MPS' alone.
func TestMPSLingers(t *testing.T) {
	m, src := accounts(t)
	m.running = t.Context()
	now := t0
	m.opt.Now = func() time.Time { return now }
	log := filepath.Join(t.TempDir(), "log")
	// it runs while its file is there, and writes down what it is told
	text := "#!/bin/sh\n[ \"$1\" = -d ] && { : >$CUDA_MPS_PIPE_DIRECTORY/up; exit; }\n[ -e $CUDA_MPS_PIPE_DIRECTORY/up ] || exit 1\n" +
		"read c; echo $c >>" + log + "; [ $c = quit ] && rm $CUDA_MPS_PIPE_DIRECTORY/up; exit 0\n"
	uuid, program := shareUnderMPS(t, m, src, text)
	if !src.exclusive[uuid] {
		t.Error("the GPU is not MPS' alone")
	}
	d := m.mps.of(uuid)
	up := func() bool { _, err := os.Stat(filepath.Join(d.pipe(), "up")); return err == nil }
	for _, step := range []struct {
		after time.Duration
		held  bool
		up    bool
	}{{0, true, true}, {time.Hour, true, true}, {time.Second, false, true}, {mpsLinger - 1, false, true}, {1, false, false}} {
		now = now.Add(step.after)
		if !step.held {
			delete(m.jobs, 7)
		}
		if m.mps.tendOne(d); up() != step.up {
			t.Errorf("after another %v, a share there: %v: it runs: %v", step.after, step.held, up())
		}
	}
	if src.exclusive[uuid] || len(m.mps.all()) != 0 {
		t.Error("the GPU is not given back")
	}
	if err := os.Remove(program); err != nil {
		t.Fatal(err)
	}
	if err := m.mps.need(uuid); err == nil {
		t.Error("a control daemon that cannot be started is no error")
	}
}

// A GPU is MPS' alone for as long as shares are on it, and no longer when somebody else
// starts there, however short ago the last share has left.
func TestMPSLeaves(t *testing.T) {
	m, src := accounts(t)
	// when it is told to quit it goes on answering for a while, as one does that waits for its server
	text := "#!/bin/sh\nup=$CUDA_MPS_PIPE_DIRECTORY/up\n[ \"$1\" = -d ] && { echo 3 >$up; exit; }\n[ -e $up ] || exit 1\nread c\n" +
		"[ $c = quit ] && { : >$up.quit; exit; }\n[ -e $up.quit ] || exit 0\nn=$(cat $up); [ $n = 0 ] && { rm $up; exit 1; }\necho $((n-1)) >$up\n"
	uuid, _ := shareUnderMPS(t, m, src, text)
	other := &runner{m: m, id: 8}
	task := func(d show.Device) []*task { return []*task{{devices: []show.Device{d}}} }
	for _, step := range []struct {
		what   string
		job    bool
		device show.Device
		alone  bool
	}{
		{"another share", true, show.Device{UUID: uuid, Share: 250}, true},
		{"a whole GPU beside", true, show.Device{UUID: src.devices[0].UUID}, true},
		{"a share when nobody is there", false, show.Device{UUID: uuid, Share: 250}, true},
		{"an instance", false, show.Device{UUID: toBeMade + uuid + "/0", Parent: uuid, Profile: "3g.40gb", Share: 428}, false},
		{"the whole GPU", false, show.Device{UUID: uuid}, false},
	} {
		if !step.job {
			delete(m.jobs, 7)
		}
		if err := other.endMPS(task(step.device)); err != nil {
			t.Error(err)
		}
		if src.exclusive[uuid] != step.alone || (len(m.mps.all()) > 0) != step.alone {
			t.Errorf("%s: MPS' alone: %v, daemons: %d", step.what, src.exclusive[uuid], len(m.mps.all()))
		}
	}
	if err := m.mps.need(uuid); err != nil || !src.exclusive[uuid] {
		t.Errorf("it begins again: %v, MPS' alone: %v", err, src.exclusive[uuid])
	}
}

// A-timeslicing-mps: a client may have less than its share, by its own environment, not
// more; the last of several counts, as in the environment itself.
func TestMPSThreads(t *testing.T) {
	for _, c := range []struct {
		share int64
		own   string
		want  string
	}{
		{500, "", "50"}, {500, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=80", "50"}, {500, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=30", "30"},
		{100, "", "10"}, {333, "", "33"}, {5, "", "1"}, {500, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=much", "50"}, {500, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=0", "50"},
		{500, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=20 CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=40", "40"}, {5, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=7", "1"},
	} {
		if got := threads(c.share, strings.Fields(c.own)); got != c.want {
			t.Errorf("a share of %d, %q: %s, want %s", c.share, c.own, got, c.want)
		}
	}
}

// playedServers is a control program that answers with a file, once it was started.
const playedServers = "#!/bin/sh\n[ \"$1\" = -d ] || [ -d $CUDA_MPS_PIPE_DIRECTORY ] && cat "

// A job that fails when its GPU's server ends, while others are on it, too, may not be the
// cause; one that fails at another time is, and so is one whose server ended for another user's.
// A server may end while nobody answers, or while the service is down: then it did so at some
// time in between.
func TestFaultOfOthers(t *testing.T) {
	m, src := accounts(t)
	now := t0
	m.opt.Now = func() time.Time { return now }
	list := filepath.Join(t.TempDir(), "servers")
	write(t, list, "\n")
	uuid, _ := shareUnderMPS(t, m, src, playedServers+list+"\n")
	runs := func(id cluster.JobID, uid int, failed time.Duration) *runner {
		return failing(m, id, uid, t0.Add(failed))
	}
	for _, c := range []struct {
		what   string
		users  []int         // of jobs 7, 8, 9
		of     int           // the server's user, played: this one is perhaps root
		failed time.Duration // job 7 did, after the server was seen last
		late   time.Duration // it was seen that it is gone
		down   bool          // ... by the next service
		want   string
	}{
		{what: "at the fault", users: []int{5, 5}, of: 5, want: "the MPS server of GPU 1 ended; job 8 was on it, too"},
		{what: "soon after it", users: []int{5, 5, 5}, of: 5, failed: 5 * time.Second, want: "the MPS server of GPU 1 ended; jobs 8, 9 were on it, too"},
		{what: "before it was noticed", users: []int{5, 5}, of: 5, failed: -2 * time.Second, want: "the MPS server of GPU 1 ended; job 8 was on it, too"},
		{what: "long after it", users: []int{5, 5}, of: 5, failed: 16 * time.Second},
		{what: "long before it", users: []int{5, 5}, of: 5, failed: -time.Minute},
		{what: "alone", users: []int{5}, of: 5},
		{what: "the server was another user's", users: []int{5, 5}, of: 6},
		{what: "whose server it was nobody knows", users: []int{5, 5}, want: "the MPS server of GPU 1 ended; job 8 was on it, too"},
		{what: "the answer was late", users: []int{5, 5}, of: 5, failed: time.Second, late: mpsAnswer, want: "the MPS server of GPU 1 ended; job 8 was on it, too"},
		{what: "nobody answered, and it was not the server", users: []int{5, 5}, of: 5, failed: -time.Minute, late: mpsAnswer},
		{what: "the service was down", users: []int{5, 5}, of: 5, failed: 20 * time.Minute, late: time.Hour, down: true, want: "the MPS server of GPU 1 ended; job 8 was on it, too"},
		{what: "before the service was down", users: []int{5, 5}, of: 5, failed: -time.Minute, late: time.Hour, down: true},
		{what: "the service was down, and it was alone", users: []int{5}, of: 5, failed: 20 * time.Minute, late: time.Hour, down: true},
	} {
		clear(m.jobs)
		now = t0.Add(time.Hour)
		r := runs(7, c.users[0], time.Hour+c.failed)
		for i, uid := range c.users[1:] {
			runs(cluster.JobID(8+i), uid, 0)
		}
		d, server := m.mps.of(uuid), served(t)
		d.known = mpsKnown{At: now, Servers: []mpsServer{{PID: server.Pid, UID: c.of, Birth: shim.Birth(server.Pid)}}}
		write(t, list, fmt.Sprintln(server.Pid))
		if err := m.mps.look(d); err != nil {
			t.Fatal(err)
		}
		end(t, server)
		write(t, list, "1\n")
		if now = now.Add(c.late); c.down {
			if err := m.findMPS(); err != nil {
				t.Fatal(err)
			}
			m.mps.missed()
		} else {
			_ = m.mps.look(d)
		}
		now = now.Add(max(0, c.failed))
		if got := r.faultOfOthers(); got != c.want {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
	if v := m.mps.serverOf(&mpsDaemon{}, os.Getpid()); v.UID != os.Getuid() {
		t.Errorf("this process is user %d's", v.UID)
	}
}

// A server whose control daemon does not answer, or was started again and does not know of it,
// has not ended; one that has is missed also if a later process has its number. What is known
// in a file that is not whole is not known.
func TestServerLives(t *testing.T) {
	m, src := accounts(t)
	list := filepath.Join(t.TempDir(), "servers")
	write(t, list, "\n")
	uuid, _ := shareUnderMPS(t, m, src, playedServers+list+"\n")
	d, server := m.mps.of(uuid), served(t)
	look := func(text string) {
		if write(t, list, text); text == "" {
			if err := os.Remove(list); err != nil {
				t.Fatal(err)
			}
		}
		if err := m.mps.look(d); (err != nil) != (text == "") {
			t.Error(err)
		}
	}
	look(fmt.Sprintln(server.Pid))
	for _, text := range []string{"", "\n", fmt.Sprintln(server.Pid)} {
		if look(text); len(d.known.Faults) != 0 || len(d.known.Servers) != 1 {
			t.Errorf("it lives and the control daemon says %q: %+v", text, d.known)
		}
	}
	d.known.Servers[0].Birth = 0 // nobody could see it
	for range 3 {
		if look(""); len(d.known.Faults) != 0 || len(d.known.Servers) != 1 {
			t.Errorf("it lives, its birth was not seen, and nobody answers: %+v", d.known)
		}
	}
	look(fmt.Sprintln(server.Pid))
	d.known.Servers[0].Birth = shim.Birth(server.Pid) - 1 // now it is a process that had the number before
	if look(fmt.Sprintln(server.Pid)); len(d.known.Faults) == 0 || len(d.known.Servers) != 1 {
		t.Errorf("another process has its number: %+v", d.known)
	}
	if err := m.findMPS(); err != nil || len(m.mps.of(uuid).known.Faults) == 0 || len(m.mps.of(uuid).known.Servers) != 1 {
		t.Errorf("the next service knows %+v, %v", m.mps.of(uuid).known, err)
	}
	write(t, filepath.Join(d.dir, mpsKnownFile), "{\"at\":")
	if err := m.findMPS(); err != nil || len(m.mps.of(uuid).known.Servers) != 0 {
		t.Errorf("from half a file the next service knows %+v, %v", m.mps.of(uuid).known, err)
	}
	end(t, server)
}

// served is a process that plays a server.
func served(t *testing.T) *os.Process {
	t.Helper()
	c := exec.Command("sleep", "1000")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill() })
	return c.Process
}

func end(t *testing.T, p *os.Process) {
	t.Helper()
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
