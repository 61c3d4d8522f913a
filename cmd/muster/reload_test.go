//go:build linux

package main

import (
	"bufio"
	"crypto/tls"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/server"
)

// configured is a daemon that has its policy from a configuration, which can be written again.
func configured(t *testing.T, gpus, text string) (d *daemon, write func(string)) {
	t.Helper()
	d = withConfig(t, gpus, text)
	d.policy = ""
	d.start()
	return d, d.configure
}

// A configuration that is read again counts at once; running jobs continue,
// waiting jobs wait on; a wrong one changes nothing and is named by its line.
func TestReload(t *testing.T) {
	t.Parallel()
	d, write := configured(t, "2xH100-80GB", "policy: fifo\nqueues:\n  - {name: a, limit: 1}\n  - {name: b}\n")
	d.must("submit", "--queue", "a", "--gpus", "1", "--name", "first", "--", "sleep", "1000")
	d.must("submit", "--queue", "a", "--gpus", "1", "--name", "second", "--", "sleep", "1000")
	d.untilSays("running", "show", "1")
	d.untilSays(`"state": "pending"`, "show", "2")

	write("policy: fifo\nqueues:\n  - {name: a, limit: 2}\n  - {name: b}\nkill_wait: 2s\nstate: /elsewhere\ngpu_hour_cost: 2.5\n")
	out := d.must("config", "reload")
	d.want(out, "queues.a: limit 1 -> limit 2", "kill_wait: 10s -> 2s", "gpu_hour_cost: (none) -> 2.5")
	if strings.Contains(out, "/elsewhere") { // a flag says where the state is
		t.Errorf("a flag does not go before the file:\n%s", out)
	}
	d.untilSays("running", "show", "2") // the higher limit lets it start
	if now := d.must("show", "1"); !strings.Contains(now, `"state": "running"`) ||
		!strings.Contains(now, `"restarts": 0`) {
		t.Errorf("the running job was touched:\n%s", now)
	}
	d.want(d.must("usage", "--json"), `"gpu_hour_cost":2.5`)

	write("policy: fifo\nqueues:\n  - {name: a, limit: 2}\n  - {name: b, gurantee: 1}\n")
	out, code := d.try("config", "reload")
	if code != exitFailed {
		t.Errorf("a wrong file: exit code %d", code)
	}
	d.want(out, "muster.yaml:4", `did you mean "guarantee"?`, "stays as it was")
	write("policy: fifo\nqueues:\n  - {name: a, guarantee: 1}\n  - {name: b, guarantee: 9}\n")
	if out, code = d.try("config", "reload"); code != exitFailed {
		t.Errorf("guarantees beyond what there is: exit code %d", code)
	}
	d.want(out, "muster.yaml:", "guarantee")

	d.must("submit", "--queue", "b", "--gpus", "1", "--name", "third", "--", "sleep", "1000")
	write("policy: fifo\nqueues:\n  - {name: a}\nlisten: 127.0.0.1:1\n")
	if out, code = d.try("config", "reload"); code != exitFailed {
		t.Errorf("a queue that vanishes under a waiting job: exit code %d", code)
	}
	d.want(out, "queue b", "3", "move them")
	d.must("update", "3", "--queue", "a")
	write("policy: fifo\nqueues:\n  - {name: b}\nlisten: 127.0.0.1:1\n")
	if out, code = d.try("config", "reload"); code != exitFailed {
		t.Errorf("the same for a: exit code %d\n%s", code, out)
	}
	d.must("cancel", "3")
	d.untilSays("cancelled", "show", "3")
	d.hangup(func() bool { return strings.Contains(d.must("queues"), "a (removed)") })
	d.want(d.must("show", "1"), `"state": "running"`)
	if out, code := d.try("submit", "--queue", "a", "--", "true"); code == exitOK {
		t.Errorf("a closed queue takes a job: %s", out)
	}
	d.want(d.must("policy", "show"), "SIGHUP", "queues.a: limit 2 -> (none)")
	d.want(d.must("config", "reload"), "0 changed", "listen: 127.0.0.1:8765 or the next free port -> 127.0.0.1:1",
		"restart")
	d.must("cancel", "1", "2")
	d.untilSays("cancelled", "show", "2")
	d.replays()
}

// hangup sends SIGHUP to the daemon and waits for what comes of it.
func (d *daemon) hangup(done func() bool) {
	d.t.Helper()
	if err := d.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		d.t.Fatal(err)
	}
	if !until(done) {
		d.t.Fatal("SIGHUP has no effect")
	}
}

// replays checks every segment of the journal that there is, hash by hash.
func (d *daemon) replays() {
	d.t.Helper()
	file := filepath.Join(d.dir, "check.journal")
	for _, segment := range []string{"1", "2", "3", "4", "5", "6", "7", "8", "9"} {
		if out, code := d.try("journal", "export", "-o", file, "--segment", segment); code != exitOK {
			if segment == "1" {
				d.t.Errorf("no segment: %s", out)
			}
			return
		}
		d.want(d.must("replay", file), "every decision the same")
	}
}

// A policy is tried, then set, while jobs run and wait; the change survives a
// kill straight after it, until the configuration speaks again.
func TestPolicySet(t *testing.T) {
	t.Parallel()
	d, write := configured(t, "2xH100-80GB", "policy: fifo\nstop: {standard: {how: kill, grace: 1s}}\n")
	d.want(d.must("policy", "show"), "fifo, place best-fit", "set by the configuration")
	d.must("submit", "--gpus", "2", "--name", "old", "--time", "2h", "--", "sleep", "1000")
	d.untilSays("running", "show", "1")
	d.must("submit", "--gpus", "2", "--name", "long", "--estimate", "1h", "--", "sleep", "1000")
	d.must("submit", "--gpus", "2", "--name", "short", "--estimate", "1m", "--", "sleep", "1000")
	out := d.must("policy", "set", "srtf:", "--dry-run")
	d.want(out, "fifo, place best-fit -> srtf", "would start now:", "short", "would be preempted:", "old",
		"kill for job 3", "would wait:", "long", "number 1", "nothing was changed")
	d.want(d.must("policy", "show"), "fifo, place best-fit")
	d.want(d.must("show", "1"), `"state": "running"`)
	d.want(d.must("policy", "set", "sjf", "--dry-run", "--json"), `"dry_run":true`, `"before":2`, `"after":1`)
	out, code := d.try("policy", "set", "tiresia")
	if code != exitFailed || !strings.Contains(out, `did you mean "tiresias"?`) {
		t.Errorf("an unknown policy: exit code %d\n%s", code, out)
	}
	if out, code = d.try("policy", "set", "fifo", "--place", "best-fitt"); code != exitFailed ||
		!strings.Contains(out, `did you mean "best-fit"?`) {
		t.Errorf("an unknown placer: exit code %d\n%s", code, out)
	}
	d.must("policy", "set", "tiresias:thresholds=3600", "--dry-run")

	d.want(d.must("policy", "set", "srtf", "--backfill", "easy"),
		"fifo, place best-fit -> srtf, place best-fit, backfill easy")
	d.kill()
	d.start()
	d.want(d.must("policy", "show"), "srtf, place best-fit, backfill easy", "set by ", "configured: fifo")
	d.want(d.log.String(), "policy=srtf")
	d.untilSays(`"state": "running"`, "show", "3")
	d.want(d.must("show", "1"), `"preemptions": 1`)
	d.replays()

	write("policy: fifo\nkill_wait: 3s\n") // the policy's keys are as they were
	d.want(d.must("config", "reload"), "kill_wait: 10s -> 3s", "note: policy srtf", "stays")
	d.want(d.must("policy", "set", "--from-config"), "-> fifo")
	d.must("policy", "set", "las")
	write("policy: sjf\n")
	d.want(d.must("config", "reload"), "policy: fifo -> sjf")
	d.want(d.must("policy", "show"), "sjf, place best-fit", "las (place best-fit")
	if out := d.must("policy", "show"); strings.Contains(out, "configured:") {
		t.Errorf("the live setting outlives the file's:\n%s", out)
	}
	d.must("cancel", "1", "2", "3")
	for _, id := range []string{"1", "2", "3"} {
		d.untilSays("cancelled", "show", id)
	}
	d.replays()
}

// A certificate that was renewed is the one of new connections after a reload,
// and names that the server answers to change with it; a broken one changes
// nothing.
func TestReloadTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	made := func(name string) string {
		if _, err := server.SelfSigned(filepath.Join(dir, name), nil, time.Now()); err != nil {
			t.Fatal(err)
		}
		return "tls: {cert: " + dir + "/" + name + "/cert.pem, key: " + dir + "/" + name + "/key.pem}\n"
	}
	one := made("one")
	d, write := configured(t, "1xH100-80GB", "listen: 127.0.0.1:0\n"+one)
	address := regexp.MustCompile(`address=(\S+)`).FindStringSubmatch(d.log.String())[1]
	seen := func(host string) (certificate string, status int) {
		conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		req, err := http.NewRequest(http.MethodGet, "https://"+host+"/healthz", nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := req.Write(conn); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), req)
		if err != nil {
			t.Fatal(err)
		}
		return string(conn.ConnectionState().PeerCertificates[0].Raw), resp.StatusCode
	}
	first, code := seen("new.example")
	if code != http.StatusMisdirectedRequest {
		t.Errorf("a name that is not configured: %d", code)
	}
	write("listen: 127.0.0.1:0\nhosts: [new.example]\n" + made("two"))
	d.want(d.must("config", "reload"), "tls.cert: ", "hosts: (none) -> new.example")
	second, code := seen("new.example")
	if code != http.StatusOK || second == first {
		t.Errorf("after the reload: %d, the same certificate: %v", code, second == first)
	}
	if err := os.WriteFile(filepath.Join(dir, "two", "cert.pem"), []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, code := d.try("config", "reload"); code != exitFailed || !strings.Contains(out, "muster.yaml:3: tls: ") {
		t.Errorf("a broken certificate: %d, %s", code, out)
	}
	if now, _ := seen("new.example"); now != second {
		t.Error("a broken certificate replaced the good one")
	}
	write("listen: 127.0.0.1:0\n")
	d.want(d.must("config", "reload"), "tls: with a certificate -> no (not applied", "tls.cert: ", "1 changed",
		"hosts: new.example -> (none)")
}

// The windows of queues are meant in the configured time zone, else in this
// machine's; partitions without nodes are of this machine.
func TestServeSettings(t *testing.T) {
	was := time.Local
	t.Cleanup(func() { time.Local = was })
	time.Local = time.FixedZone("far", 5*3600)
	f := &serveFlags{}
	serve := &cobra.Command{}
	f.add(serve)
	spec := &cluster.Spec{Nodes: []cluster.Node{{Name: "box", Model: "H100-80GB", GPUs: 4}}}
	f.config = filepath.Join(t.TempDir(), "m.yaml")
	for text, zone := range map[string]int{"partitions: [{name: p}]\n": 5 * 3600,
		"timezone: '-01:00'\npartitions: [{name: p, nodes: box}]\n": -3600} {
		if err := os.WriteFile(f.config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		conf, err := f.effective(serve)
		if err != nil {
			t.Fatal(err)
		}
		opt, err := f.fits(conf, spec)
		if got := &opt.Rules.Spec; err != nil || got.Zone != zone || len(got.Partitions) != 1 ||
			got.Partitions[0].Nodes[0] != "box" {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	if err := os.WriteFile(f.config, []byte("policy: fifo\npartitions:\n  - {name: p, nodes: elsewhere}\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	conf, err := f.effective(serve)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.fits(conf, spec); err == nil || !strings.Contains(err.Error(), "m.yaml:3: ") {
		t.Errorf("a partition of another machine: %v", err)
	}
}
