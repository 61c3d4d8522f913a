package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/internal/controlplane"
	"github.com/muster-gpu/muster/kube"
	"github.com/muster-gpu/muster/trace"
)

// TestHistory has pods end under two schedulers, the first of which is killed, and replays what they wrote down:
// the cluster's past, on its own nodes, with muster sim and muster tune.
func TestHistory(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	file, conf := filepath.Join(s.dir, "history.jsonl"), filepath.Join(s.dir, "kube.yaml")
	if err := os.WriteFile(conf, []byte("queues: [{name: vision, guarantee: 4}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.create(controlplane.Node("n1", 8, nil))
	ended := func(name, line string) {
		t.Helper()
		s.create(controlplane.Pod(name, 4,
			map[string]string{kube.LabelQueue: "vision", "!" + kube.AnnotationRunTime: "1m"}))
		s.p.Wait(name+" runs", func(ctx context.Context) bool {
			p, err := s.c.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
			if err != nil || p.Status.Phase != v1.PodRunning {
				return false
			}
			p.Status.Phase = v1.PodSucceeded
			_, err = s.c.CoreV1().Pods("default").UpdateStatus(ctx, p, metav1.UpdateOptions{})
			return err == nil
		})
		s.p.Wait(name+" is written down", func(context.Context) bool {
			text, err := os.ReadFile(file)
			return err == nil && strings.Contains(string(text), line)
		})
	}
	kill := s.start("--config", conf, "--history", file)
	ended("one", `"name":"default/one"`)
	kill()
	s.create(controlplane.Node("n2", 8, nil))
	s.start("--config", conf, "--history", file)
	ended("two", `"name":"default/two"`)
	wl, err := trace.Open(file, trace.Options{})
	if err != nil || len(wl.Jobs) != 2 || len(wl.Nodes) != 2 || len(wl.Queues) != 1 ||
		wl.Jobs[1].Job.Queue != "vision" || wl.Jobs[1].Run <= 0 || wl.Epoch == 0 {
		t.Fatalf("%v %+v", err, wl)
	}
	for _, c := range []struct {
		args  string
		wants []string
	}{{"sim --policies fifo,las --trace", []string{"2 jobs", "las"}}, {"tune --trace", []string{"fifo"}}} {
		cmd := exec.CommandContext(t.Context(), programs.Path(s, "muster"), append(strings.Fields(c.args), file)...)
		cmd.Env = append(os.Environ(), "TMPDIR="+s.dir)
		out, err := cmd.CombinedOutput()
		for _, want := range c.wants {
			if err != nil || !strings.Contains(string(out), want) {
				t.Errorf("muster %s: %v, no %q in\n%s", c.args, err, want, out)
			}
		}
		t.Logf("%s", out)
	}
}

// What is not a history is not written to.
func TestHistoryRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "notes.txt")
	if err := os.WriteFile(file, []byte("mine\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openHistory(file); err == nil || !strings.Contains(err.Error(), "notes.txt: this is no history") {
		t.Errorf("%v", err)
	}
}
