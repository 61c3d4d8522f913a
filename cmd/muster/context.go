//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/muster-gpu/muster/client"
	"github.com/muster-gpu/muster/internal/plain"
)

// onCluster annotates a command that works against a cluster, too: it only reads.
var onCluster = map[string]string{clusterMark: "yes"}

const clusterMark = "on cluster"

// clusterCommands names the commands below one that work against a cluster.
func clusterCommands(c *cobra.Command) (names []string) {
	if c.Annotations[clusterMark] != "" {
		names = append(names, pathOf(c))
	}
	for _, sub := range c.Commands() {
		names = append(names, clusterCommands(sub)...)
	}
	return names
}

// pathOf is the command without the program's name.
func pathOf(c *cobra.Command) string {
	return strings.TrimPrefix(c.CommandPath(), c.Root().CommandPath()+" ")
}

// clusterFlags say that a command is meant for a Kubernetes cluster, and which.
type clusterFlags struct {
	context, kubeconfig string
	// lifeline is what the proxy holds the other end of; it is closed when this
	// process ends.
	lifeline *os.File
}

// kubeCluster is the cluster of this invocation.
var kubeCluster clusterFlags

// add registers the flags, and what they do before a command runs.
func (f *clusterFlags) add(root *cobra.Command) {
	*f = clusterFlags{}
	root.PersistentFlags().StringVar(&f.context, "context", "",
		"read a Kubernetes cluster: a context of the kubeconfig")
	root.PersistentFlags().StringVar(&f.kubeconfig, "kubeconfig", "",
		"... and the file that it is in (default $KUBECONFIG or ~/.kube/config)")
	root.PersistentPreRunE = func(c *cobra.Command, _ []string) error {
		forPeopleOrPrograms(c, root)
		if !f.given() {
			return nil
		}
		if c.Annotations[clusterMark] == "" {
			return usage(fmt.Errorf("%s works on a machine, not on a cluster: %s; against a cluster work %s",
				c.CommandPath(), instead(c, root), strings.Join(clusterCommands(root), ", ")))
		}
		if c.Name() == "dashboard" {
			return nil // it serves the page itself
		}
		return f.connect(c.Context())
	}
}

// forPeopleOrPrograms has texts of others shown on a terminal without what it would act on; JSON says what they are.
func forPeopleOrPrograms(c, root *cobra.Command) {
	asJSON, err := c.Flags().GetBool("json")
	data := err == nil && asJSON || c.Name() == "show"
	client.OnTerminal(!data)
	if data {
		root.SetOut(plain.JSON(root.OutOrStdout()))
	}
}

// instead says how to do on a cluster what a command does on a machine.
func instead(c, root *cobra.Command) string {
	for c.HasParent() && c.Parent() != root {
		c = c.Parent()
	}
	switch c.Name() {
	case "policy", "tune":
		return "the policy of a cluster is in the configuration of muster kube (policy, place, backfill), and counts when its pods are new: kubectl rollout restart, or helm upgrade"
	case "search":
		return "trials are submitted to muster serve"
	}
	return "kubectl changes what is there"
}

func (f *clusterFlags) given() bool { return f.context != "" || f.kubeconfig != "" }

// args are the flags for the small program.
func (f *clusterFlags) args(more ...string) []string {
	args := []string{"proxy"}
	if f.context != "" {
		args = append(args, "--context", f.context)
	}
	if f.kubeconfig != "" {
		args = append(args, "--kubeconfig", f.kubeconfig)
	}
	return append(args, more...)
}

// proxy is the program that speaks to a cluster: Kubernetes' libraries would
// double what every start of muster costs.
func (f *clusterFlags) proxy(ctx context.Context, more ...string) (*exec.Cmd, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := exec.CommandContext(ctx, filepath.Join(filepath.Dir(exe), kubeProgram), f.args(more...)...)
	c.Stdin, c.Stderr = os.Stdin, os.Stderr // a kubeconfig's plugin may ask for a password
	return c, nil
}

// errProxy is returned when the proxy has said itself what is wrong.
const errProxy = exitCode(exitFailed)

// begin starts the proxy and returns the first line that it prints.
func begin(c *exec.Cmd) (line string, err error) {
	out, err := c.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := c.Start(); errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%s is not beside muster: make build makes both", c.Path)
	} else if err != nil {
		return "", err
	}
	if line, err = bufio.NewReader(out).ReadString('\n'); err != nil {
		_ = c.Wait()
		return "", errProxy
	}
	return strings.TrimSpace(line), nil
}

// connect starts a proxy to the cluster, and makes what follows speak to it: it
// answers like a daemon of this machine, at a socket in a folder of the user's.
// It ends, and takes the folder away, when this process has ended, however that
// came.
func (f *clusterFlags) connect(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "muster-cluster-") // 0700
	if err != nil {
		return err
	}
	socket := filepath.Join(dir, "s")
	c, err := f.proxy(context.WithoutCancel(ctx), "--socket", socket)
	if err != nil {
		return errors.Join(err, os.Remove(dir))
	}
	theirs, ours, err := os.Pipe()
	if err != nil {
		return errors.Join(err, os.Remove(dir))
	}
	c.ExtraFiles = []*os.File{theirs}
	f.lifeline = ours
	_, err = begin(c)
	_ = theirs.Close()
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	for _, name := range []string{"MUSTER_HOST", "MUSTER_TOKEN"} {
		if err := os.Unsetenv(name); err != nil {
			return err
		}
	}
	return os.Setenv("MUSTER_SOCKET", socket)
}

// dashboard serves the dashboard of the cluster until Ctrl-C.
func (f *clusterFlags) dashboard(c *cobra.Command, quiet bool) error {
	p, err := f.proxy(c.Context(), "--dashboard", "127.0.0.1:0")
	if err != nil {
		return err
	}
	link, err := begin(p)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(c.OutOrStdout(), link); err != nil {
		return err
	}
	fmt.Fprintln(c.ErrOrStderr(), "the link lets one browser in, once; Ctrl-C ends the dashboard")
	if !quiet && (os.Getenv("DISPLAY") != "" || os.Getenv("WAYLAND_DISPLAY") != "") {
		if err := openBrowser(c.Context(), link); err != nil {
			fmt.Fprintln(c.ErrOrStderr(), "muster:", err)
		}
	}
	if err := p.Wait(); err != nil && c.Context().Err() == nil {
		return errProxy
	}
	return nil
}
