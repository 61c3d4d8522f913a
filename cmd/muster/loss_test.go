//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// files of a state by name; nil: there is none of that name.
type files map[string][]byte

var databaseFiles = []string{"muster.db", "muster.db-wal", "muster.db.mark"}

func (d *daemon) database() files {
	f := files{}
	for _, name := range databaseFiles {
		f[name], _ = os.ReadFile(filepath.Join(d.dir, "state", name))
	}
	return f
}

func (d *daemon) put(f files) {
	d.t.Helper()
	for name, text := range f {
		path := filepath.Join(d.dir, "state", name)
		if err := os.RemoveAll(path); err != nil {
			d.t.Fatal(err)
		}
		if text != nil {
			if err := os.WriteFile(path, text, 0o600); err != nil {
				d.t.Fatal(err)
			}
		}
	}
	_ = os.Remove(filepath.Join(d.dir, "state", "muster.db-shm"))
}

// refuses starts the daemon, which must end by itself, and returns what it said.
func (d *daemon) refuses(args ...string) string {
	d.t.Helper()
	cmd := patient(d.bin,
		append([]string{"serve", "--gpus", "sim:" + d.simulated, "--state", filepath.Join(d.dir, "state"),
			"--socket", d.socket}, args...)...)
	out, err := cmd.CombinedOutput()
	if err == nil || cmd.ProcessState.ExitCode() == 124 {
		d.t.Fatalf("the daemon starts (%v):\n%s", err, out)
	}
	return string(out)
}

// appears waits until a file has this many lines.
func (d *daemon) appears(path string, lines int) {
	d.t.Helper()
	var text []byte
	if !until(func() bool { text, _ = os.ReadFile(path); return bytes.Count(text, []byte("\n")) >= lines }) {
		d.t.Fatalf("%s has not %d lines: %q", path, lines, text)
	}
}

// running returns a function that tells whether the process whose number a job wrote still runs.
func (d *daemon) running(path string) func() bool {
	d.t.Helper()
	d.appears(path, 1)
	text, err := os.ReadFile(path)
	if err != nil {
		d.t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Sscan(string(text), &pid); err != nil {
		d.t.Fatal(err)
	}
	return func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err == nil && !bytes.Contains(stat, []byte(") Z "))
	}
}

// lossy is a daemon that has died while a task runs, with a copy of its state from before the task's job was
// submitted. The task ends with 7 when the file "end" appears.
func lossy(t *testing.T) (d *daemon, old, last files, alive func() bool) {
	d = startDaemon(t, "2xH100-80GB")
	d.must("submit", "--gpus", "1", "--", "true")
	d.must("wait", "1")
	d.must("submit", "--gpus", "2", "--hold", "--", "sh", "-c", "echo waited > "+d.dir+"/waited")
	_ = d.cmd.Process.Signal(unix.SIGTERM) // so that what there is so far is not in the WAL alone
	_ = d.cmd.Wait()
	old = d.database()
	d.start()
	d.must("submit", "--gpus", "1", "--", "sh", "-c",
		"echo $$ > "+d.dir+"/pid; until [ -e "+d.dir+"/end ]; do sleep 0.2; done; exit 7")
	alive = d.running(d.dir + "/pid")
	d.must("wait", "1")
	d.kill()
	return d, old, d.database(), alive
}

// A daemon whose database has lost something refuses to start, says what is missing, ends nothing and changes
// nothing; with the database back in its place it goes on.
func TestLostState(t *testing.T) {
	t.Parallel()
	d, old, last, alive := lossy(t)
	wal := last["muster.db-wal"]
	if len(wal) < 8*4096 {
		t.Fatalf("the WAL has only %d bytes", len(wal))
	}
	damaged := bytes.Clone(wal)
	for i := len(damaged) / 2; i < len(damaged)/2+64; i++ {
		damaged[i] ^= 0x55
	}
	with := func(name string, text []byte) files {
		f := files{}
		for _, n := range databaseFiles {
			f[n] = last[n]
		}
		f[name] = text
		return f
	}
	missing := with("muster.db", nil)
	missing["muster.db-wal"] = nil
	bare := files{"muster.db": nil, "muster.db-wal": nil, "muster.db.mark": nil}
	cases := []struct {
		name string
		f    files
		want []string
	}{
		{"WAL deleted", with("muster.db-wal", nil), []string{"changes are missing"}},
		{"WAL halved", with("muster.db-wal", wal[:len(wal)/2]), []string{"changes are missing"}},
		{"WAL emptied", with("muster.db-wal", []byte{}), []string{"changes are missing"}},
		{"last commit cut off", with("muster.db-wal", wal[:len(wal)-100]), []string{"changes are missing"}},
		{"WAL damaged", with("muster.db-wal", damaged), []string{"changes are missing"}},
		{"database deleted", missing, []string{"missing or empty", "jobs 1 to 3 were accepted"}},
		{"all of it deleted", bare,
			[]string{"missing or empty", "tasks run that it does not know: job 3, run 1, task 0"}},
		{"database emptied", files{"muster.db": {}, "muster.db-wal": nil, "muster.db.mark": last["muster.db.mark"]},
			[]string{"missing or empty"}},
		{"older copy", files{"muster.db": old["muster.db"], "muster.db-wal": old["muster.db-wal"],
			"muster.db.mark": last["muster.db.mark"]},
			[]string{"changes are missing", "job 3 was accepted"}},
		{"older copy with its mark", old, []string{"folders of jobs that it does not know: 3", "job 3, run 1, task 0"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			d.put(c.f)
			before := d.database()
			d.want(d.refuses(), append(c.want, "--accept-loss", "no job was ended")...)
			for name, text := range d.database() {
				if !bytes.Equal(text, before[name]) {
					t.Errorf("%s was changed: %d bytes, then %d", name, len(before[name]), len(text))
				}
			}
			if !alive() {
				t.Fatal("the task was ended")
			}
		})
	}
	d.put(last)
	d.start()
	if err := os.WriteFile(d.dir+"/end", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, code := d.try("wait", "3"); code != 7 {
		t.Errorf("job 3 ended with %d: %s", code, out)
	}
	d.must("release", "2")
	d.must("wait", "2")
}

// A loss that is accepted costs what was lost and no more: the tasks that the database does not know are ended,
// their folders are kept under another name, numbers go on above all that were given, and no new job is taken
// for an old one.
func TestAcceptLoss(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]func(old, last files) files{
		"older copy": func(old, last files) files {
			return files{"muster.db": old["muster.db"], "muster.db-wal": old["muster.db-wal"],
				"muster.db.mark": last["muster.db.mark"]}
		},
		"deleted": func(_, last files) files {
			return files{"muster.db": nil, "muster.db-wal": nil, "muster.db.mark": last["muster.db.mark"]}
		},
		"all deleted": func(_, _ files) files {
			return files{"muster.db": nil, "muster.db-wal": nil, "muster.db.mark": nil}
		},
		"no database": func(_, last files) files {
			return files{"muster.db": bytes.Repeat([]byte("no database "), 1000), "muster.db-wal": nil,
				"muster.db.mark": last["muster.db.mark"]}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, old, last, alive := lossy(t)
			d.put(of(old, last))
			d.refuses()
			d.args = []string{"--accept-loss"}
			d.start()
			if alive() {
				t.Error("the lost job's task goes on")
			}
			aside, err := filepath.Glob(filepath.Join(d.dir, "state", "lost-*", "jobs", "3", "1", "0.lock"))
			if err != nil || len(aside) != 1 {
				t.Errorf("what was lost is not kept: %v, %v", aside, err)
			}
			out := d.must("submit", "--gpus", "1", "-o", "new.out", "--", "sh", "-c", "echo ran; exit 4")
			var id int
			if _, err := fmt.Sscanf(out[strings.Index(out, "job "):], "job %d", &id); err != nil || id <= 3 {
				t.Fatalf("the new job's number is %d: %s", id, out)
			}
			if out, code := d.try("wait", fmt.Sprint(id)); code != 4 {
				t.Errorf("the new job ended with %d: %s", code, out)
			}
			if name == "older copy" {
				d.must("release", "2")
				d.must("wait", "2")
				d.appears(d.dir+"/waited", 1)
			}
			d.kill()
			d.args = nil
			d.start() // nothing is lost any more
		})
	}
}

// A folder in the place of a job's that is another state's, or another user's, is neither used nor given away.
func TestForeignFolder(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "1xH100-80GB")
	d.must("submit", "--gpus", "1", "--", "true")
	d.must("wait", "1")
	dir := filepath.Join(d.dir, "state", "jobs", "2")
	task := filepath.Join(dir, "1", "0")
	if err := os.MkdirAll(task, 0o755); err != nil {
		t.Fatal(err)
	}
	state := `{"phase":"ended","shim":1,"exit":0}` + "\n"
	if err := os.WriteFile(filepath.Join(task, "state.json"), []byte(state), 0o644); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() == 0 {
		if err := os.Chown(task, 4321, 4321); err != nil {
			t.Fatal(err)
		}
	}
	d.must("submit", "--gpus", "1", "--", "sh", "-c", "echo ran > "+d.dir+"/ran")
	if out, code := d.try("wait", "2"); code == 0 {
		t.Errorf("a job whose folder is not its own has completed: %s", out)
	}
	d.want(d.must("show", "2"), `"state": "failed"`, "belongs to another state")
	var st unix.Stat_t
	if err := unix.Stat(task, &st); err != nil || os.Getuid() == 0 && st.Uid != 4321 {
		t.Errorf("the folder is user %d's now (%v)", st.Uid, err)
	}
	if text, err := os.ReadFile(filepath.Join(task, "state.json")); err != nil || string(text) != state {
		t.Errorf("the file in it is %q (%v)", text, err)
	}
}
