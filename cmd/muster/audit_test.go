//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/muster-gpu/muster/api"
)

// What is done to jobs, nodes, tokens and the policy is kept with who did it and from where; a job's history names who
// cancelled it. Admins see everything, others what concerns them. Wrong tokens are noted and logged, never
// themselves, and answered more and more briefly.
func TestAudit(t *testing.T) {
	t.Parallel()
	needsRoot(t)
	d := withConfig(t, "1xH100-80GB", "operators: {users: [daemon]}\n")
	d.start()
	user := d.users()
	user("nobody", "submit", "--gpus", "1", "--hold", "-o", "/dev/null", "--", "true")
	user("nobody", "submit", "--gpus", "1", "--hold", "-o", "/dev/null", "--", "true")
	user("daemon", "update", "1", "--priority", "3")
	user("daemon", "cancel", "1")
	user("nobody", "cancel", "2")
	d.must("submit", "--gpus", "1", "--hold", "-o", "/dev/null", "--", "true")
	d.must("cancel", "3")
	d.must("drain", d.node(), "--reason", "a fan")
	d.must("policy", "set", "fifo")
	d.must("token", "create", "--name", "ci")
	d.want(user("nobody", "history", "1"), "cancelled by daemon", "priority changed by daemon")
	d.want(user("nobody", "show", "1"), "cancelled by daemon")

	url := regexp.MustCompile(`address=(\S+)`).FindStringSubmatch(d.log.String())
	if url == nil {
		t.Fatal("the daemon listens nowhere")
	}
	codes := map[int]int{}
	for i := range 30 {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+url[1]+"/v1/jobs", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", fmt.Sprintf("Bearer muster_guess%d", i))
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		codes[resp.StatusCode]++
	}
	if codes[http.StatusUnauthorized] != 10 || codes[http.StatusTooManyRequests] != 20 {
		t.Errorf("30 wrong tokens are answered %v", codes)
	}

	all := func(list []api.Audit) (text string) {
		for _, a := range list {
			text += fmt.Sprintf("%s %s %s %d %s %s; ", a.User, a.Role, a.Action, a.Job, a.Subject, a.From)
		}
		return text
	}
	read := func(text string) (list []api.Audit) {
		if err := json.Unmarshal([]byte(text), &list); err != nil {
			t.Errorf("%v in %s", err, text)
		}
		return list
	}
	got := all(read(d.must("audit", "--json")))
	d.want(got, "daemon operator update 1", "daemon operator cancel 1", "nobody user cancel 2", "root admin cancel 3",
		"root admin drain 0 "+d.node(),
		"root admin policy 0", "root admin create-token 0 token 1", "wrong-token 0 /v1/jobs 127.0.0.1",
		"socket, uid 1, pid ")
	if strings.Count(got, "wrong-token") > 2 || strings.Contains(got, "guess") ||
		strings.Contains(d.log.String(), "muster_guess") {
		t.Errorf("wrong tokens are noted as %s", got)
	}
	d.want(d.log.String(), "a wrong token", "address=127.0.0.1")
	if own := all(read(user("nobody", "audit", "--json"))); strings.Contains(own, "cancel 3") ||
		strings.Contains(own, "drain") || !strings.Contains(own, "cancel 1") || !strings.Contains(own, "cancel 2") {
		t.Errorf("a user sees %s", own)
	}
	for args, want := range map[string]int{"--user daemon": 2, "--job 1": 2, "--action drain": 1, "--since 0s": 0} {
		if list := read(d.must(append([]string{"audit", "--json"}, strings.Fields(args)...)...)); len(list) != want {
			t.Errorf("audit %s lists %s", args, all(list))
		}
	}
	d.want(d.must("audit"), "WHO", "job 1 of nobody", "a fan")
	d.kill()
	d.start()
	d.want(all(read(d.must("audit", "--json"))), "daemon operator cancel 1")
}

// A value of the environment that has commas is one value; why a log cannot be read is said; why a job ran
// again stands in its history.
func TestSmallTruths(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "1xH100-80GB")
	d.want(d.must("run", "-e", "LIST=a,b", "-e", "OTHER=c", "--", "sh", "-c", "echo $LIST and $OTHER"), "a,b and c")
	d.want(d.must("run", "-e", "A=1,B=2", "--", "sh", "-c", "echo $A"), "1,B=2")

	d.must("submit", "--gpus", "1", "-o", "again.out", "--", "sh", "-c",
		"echo $MUSTER_RESTART_COUNT; [ $MUSTER_RESTART_COUNT -gt 0 ] || sleep 1000")
	d.appears(filepath.Join(d.dir, "again.out"), 1)
	d.must("requeue", "3")
	d.must("wait", "3")
	d.want(d.must("history", "3"), "requeued by ", "run 2 begins: ")

	link := filepath.Join(d.dir, "linked.out")
	d.must("submit", "-o", "linked.out", "--", "true")
	d.must("wait", "4")
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(link, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, code := d.try("logs", "4"); code == 0 || !strings.Contains(out, "not a regular file") {
		t.Errorf("a log that cannot be read: exit code %d, %q", code, out)
	}
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	if out, code := d.try("logs", "4"); code == 0 || !strings.Contains(out, "linked.out") {
		t.Errorf("a log that is gone: exit code %d, %q", code, out)
	}
}
