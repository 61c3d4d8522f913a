//go:build linux

package kube

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/muster-gpu/muster/internal/controlplane"
	"github.com/muster-gpu/muster/kube/agent"
	"github.com/muster-gpu/muster/kube/patch"
)

// container is a process that stands for one of a pod: in the control group that a kubelet and its runtime would make,
// with a network namespace of its own. It sends to itself when it is asked to.
type container struct {
	in  io.Writer
	out *bufio.Reader
}

// sendScript prints the DSCP with which a packet to itself arrives, for each line that it reads.
const sendScript = `
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("127.0.0.1", 0))
s.setsockopt(socket.IPPROTO_IP, 13, 1)  # IP_RECVTOS
print("ready", flush=True)
for _ in sys.stdin:
    s.sendto(b"x", s.getsockname())
    print(s.recvmsg(8, 64)[1][0][2][0] >> 2, flush=True)
`

// contain starts a container of a pod whose group is at a path below the root of the hierarchy.
func contain(b *bench, root, path string) *container {
	b.Helper()
	dir := filepath.Join(root, path, "cri-containerd-1.scope")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		b.Fatal(err)
	}
	const enter = `echo $$ >"$0" && exec unshare --net sh -c 'ip link set lo up && exec python3 -c "$0"' "$1"`
	cmd := exec.Command("sh", "-c", enter,
		filepath.Join(dir, "cgroup.procs"), sendScript)
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	cmd.Stderr = b.log
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		for ; dir != root; dir = filepath.Dir(dir) { // those that others have stay
			_ = os.Remove(dir)
		}
	})
	c := &container{in, bufio.NewReader(out)}
	if line, err := c.out.ReadString('\n'); line != "ready\n" {
		b.Fatalf("a container does not begin: %q, %v", line, err)
	}
	return c
}

// sends is the DSCP of what it sends.
func (c *container) sends(b *bench) string {
	b.Helper()
	if _, err := io.WriteString(c.in, "\n"); err != nil {
		b.Fatal(err)
	}
	line, err := c.out.ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// unifiedRoot is where control groups of version 2 are.
func unifiedRoot(t *testing.T) string {
	text, err := os.ReadFile("/proc/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 2 && f[2] == "cgroup2" {
			return f[1]
		}
	}
	t.Skip("NOT TESTED: this machine has no control groups of version 2")
	return ""
}

// agentOnly lets a user list pods and no more, as the chart has it.
func (b *bench) agentOnly() *kubernetes.Clientset {
	b.Helper()
	meta := metav1.ObjectMeta{Name: "test-agent"}
	roles, bindings := b.c.RbacV1().ClusterRoles(), b.c.RbacV1().ClusterRoleBindings()
	_, err := roles.Create(b.ctx, &rbacv1.ClusterRole{ObjectMeta: meta,
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list", "watch"}}}},
		metav1.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
	if _, err = bindings.Create(b.ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: meta,
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: meta.Name}}},
		metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = roles.Delete(context.Background(), meta.Name, metav1.DeleteOptions{})
		_ = bindings.Delete(context.Background(), meta.Name, metav1.DeleteOptions{})
	})
	rc := rest.CopyConfig(b.p.Admin)
	rc.Impersonate = rest.ImpersonationConfig{UserName: meta.Name}
	c := kubernetes.NewForConfigOrDie(rc)
	b.wait("the agent may list pods", func() bool {
		_, err := c.CoreV1().Pods("").List(b.ctx, metav1.ListOptions{Limit: 1})
		return err == nil
	})
	return c
}

// An agent marks what the pods of its node send, and no others, as their annotations say now; with processes in control
// groups for what a kubelet and a runtime would make of pods.
func testAgent(b *bench) {
	if os.Getuid() != 0 {
		b.Skip("NOT TESTED: only root can mark traffic")
	}
	root := unifiedRoot(b.T)
	b.nodes(8, "n1", "n2")
	pod := func(name, node, dscp string) string {
		p := controlplane.Pod(name, 1, map[string]string{"!" + AnnotationDSCP: dscp})
		p.Spec.SchedulerName, p.Spec.NodeName = "other", node
		p, err := b.c.CoreV1().Pods("default").Create(b.ctx, p, metav1.CreateOptions{})
		if err != nil {
			b.Fatal(err)
		}
		return string(p.UID)
	}
	slice := func(class, uid string) string {
		return fmt.Sprintf("kubepods.slice/kubepods-%s.slice/kubepods-%s-pod%s.slice", class, class,
			strings.ReplaceAll(uid, "-", "_"))
	}
	burstable := contain(b, root, slice("burstable", pod("burstable", "n1", "cs5")))
	guaranteed := contain(b, root, "kubepods/pod"+pod("guaranteed", "n1", "cs4"))
	plain := contain(b, root, slice("besteffort", pod("plain", "n1", "cs0")))
	elsewhere := contain(b, root, "kubepods/burstable/pod"+pod("elsewhere", "n2", "cs5"))
	opt := agent.Options{Client: b.agentOnly(), Node: "n1", Cgroups: root,
		Log: slog.New(slog.NewTextHandler(b.log, nil))}
	ctx, cancel := context.WithCancel(b.ctx)
	done := make(chan error, 1)
	go func() { done <- agent.Run(ctx, opt) }()
	stop := func() {
		cancel()
		if err := <-done; err != nil {
			b.Error(err)
		}
	}
	b.Cleanup(func() { _ = exec.Command("nft", "delete", "table", "inet", "muster-kube").Run() })
	begun := time.Now()
	b.wait("the pods of the node are marked", func() bool {
		select {
		case err := <-done:
			done <- err
			b.Fatal("the agent ended: ", err)
		default:
		}
		if burstable.sends(b) == "0" && time.Since(begun) > time.Minute {
			b.Skip("NOT TESTED: the log says why packets are not marked here")
		}
		return burstable.sends(b) == "40" && guaranteed.sends(b) == "32"
	})
	if plain.sends(b) != "0" || elsewhere.sends(b) != "0" {
		b.Error("a pod without a class, or of another node, is marked")
	}
	change := patch.JSON(map[string]any{"metadata": map[string]any{
		"annotations": map[string]string{AnnotationDSCP: "af41"}}})
	if _, err := b.c.CoreV1().Pods("default").Patch(b.ctx, "burstable", types.MergePatchType, change,
		metav1.PatchOptions{}); err != nil {
		b.Fatal(err)
	}
	b.wait("a pod is marked otherwise", func() bool { return burstable.sends(b) == "34" })
	now := int64(0)
	if err := b.c.CoreV1().Pods("default").Delete(b.ctx, "guaranteed",
		metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		b.Fatal(err)
	}
	b.wait("a pod that is gone is not marked", func() bool { return guaranteed.sends(b) == "0" })
	stop()
	if got := burstable.sends(b); got != "34" {
		b.Errorf("without the agent what it marked bears %s", got)
	}
}
