//go:build linux

package main

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Over TCP a token says who calls; a login is kept for its user's eyes only;
// a certificate of our own is trusted by its fingerprint and no other.
func TestLogin(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "2xH100-80GB")
	d.kill()
	d.args = []string{"--tls-self-signed"}
	d.start()
	link := strings.TrimSpace(d.must("dashboard", "--no-open"))
	base, _, ok := strings.Cut(link, "/login?code=")
	print := regexp.MustCompile(`fingerprint=(\w+)`).FindStringSubmatch(d.log.String())
	if !ok || !strings.HasPrefix(base, "https://127.0.0.1:") || print == nil {
		t.Fatalf("link %q\n%s", link, d.log.String())
	}
	made := strings.Fields(d.must("token", "create", "--name", "laptop"))
	token := made[len(made)-1]
	d.want(d.must("token", "list"), "laptop", "user")
	home := t.TempDir()
	d.env = []string{"MUSTER_SOCKET=", "HOME=" + home, "XDG_CONFIG_HOME=" + filepath.Join(home, "conf"),
		"MUSTER_TOKEN=" + token}
	out, code := d.try("login", base)
	if code != exitFailed || !strings.Contains(out, "certificate") {
		t.Errorf("an unknown certificate: exit code %d\n%s", code, out)
	}
	out, code = d.try("login", base, "--fingerprint", strings.Repeat("0", 64))
	if code != exitFailed || !strings.Contains(out, "not the one") {
		t.Errorf("another certificate: exit code %d\n%s", code, out)
	}
	d.want(d.must("login", base, "--fingerprint", print[1]), "role user")
	path := filepath.Join(home, "conf", "muster", "login.json")
	if fi, err := os.Stat(path); err != nil || fi.Mode() != 0o600 {
		t.Fatalf("the saved login: %v, %v", fi, err)
	}
	d.env = d.env[:3]
	d.want(d.must("nodes"), "H100-80GB")
	d.want(d.must("run", "--gpus", "1", "--", "echo", "hello"), "hello")
	squeue := exec.Command(filepath.Join(filepath.Dir(d.bin), slurmProgram), "squeue", "-h")
	squeue.Env = append(os.Environ(), d.env...)
	if out, err := squeue.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%s over TCP: %v\n%s", slurmProgram, err, out)
	}
	alone := exec.Command(installed(t, squeue.Path, filepath.Join(d.dir, "alone", slurmProgram)), "squeue")
	alone.Env = squeue.Env
	if out, err := alone.CombinedOutput(); err == nil ||
		!strings.Contains(string(out), "alone/muster: no such file or directory") {
		t.Errorf("%s without muster beside it: %v\n%s", slurmProgram, err, out)
	}
	d.want(d.must("token", "revoke", "1"), "revoked")
	if out, code := d.try("nodes"); code != exitFailed || !strings.Contains(out, "revoked or has expired") {
		t.Errorf("a revoked token: exit code %d\n%s", code, out)
	}
	if strings.Contains(d.log.String(), token) {
		t.Error("the log holds the token")
	}
	for _, f := range []string{"muster.db", "muster.db-wal"} {
		if text, err := os.ReadFile(filepath.Join(d.dir, "state", f)); err == nil &&
			strings.Contains(string(text), token) {
			t.Errorf("%s holds the token", f)
		}
	}
	d.must("logout")
	d.env = []string{"MUSTER_SOCKET=", "HOME=" + home, "XDG_CONFIG_HOME=" + filepath.Join(home, "conf"),
		"MUSTER_HOST=http://203.0.113.1:1", "MUSTER_TOKEN=x"}
	if out, code := d.try("nodes"); code != exitFailed || !strings.Contains(out, "unencrypted") {
		t.Errorf("a token over http: exit code %d\n%s", code, out)
	}
}

// The link of muster dashboard lets a browser in; what is wrong with where to
// listen is said before anything starts.
func TestListen(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "2xH100-80GB")
	resp, err := http.Get(strings.TrimSpace(d.must("dashboard", "--no-open")))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if c := resp.Cookies(); resp.StatusCode != http.StatusOK || len(c) != 1 ||
		resp.Header.Get("Content-Security-Policy") == "" {
		t.Errorf("%d, cookies %v, %v", resp.StatusCode, c, resp.Header)
	}
	for args, want := range map[string]string{
		"--listen 0.0.0.0:0": "without TLS",
		"--listen 8765":      "ADDRESS:PORT",
		"--tls-cert x":       "--tls-key",
		"--tls-cert x --tls-key y --tls-self-signed":    "given already",
		"--listen 127.0.0.1:0 --tls-cert x --tls-key y": "no such file",
	} {
		out, code := d.try(append(
			[]string{"serve", "--gpus", "sim:1xH100-80GB", "--state", filepath.Join(d.dir, "other"),
				"--socket", d.socket + "2"}, strings.Fields(args)...)...)
		if code == exitOK || !strings.Contains(out, want) {
			t.Errorf("serve %s: exit code %d\n%s", args, code, out)
		}
	}
}
