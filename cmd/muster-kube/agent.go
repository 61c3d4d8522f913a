package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/client-go/dynamic"

	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/internal/kubeapi"
	"github.com/muster-gpu/muster/kube/agent"
	"github.com/muster-gpu/muster/kube/front"
)

type agentFlags struct {
	target
	node, cgroups, authority, logLevel string
}

// newAgent marks what the pods of a node send.
func newAgent() *cobra.Command {
	f := &agentFlags{}
	c := &cobra.Command{
		Use: "agent", Short: "Mark what this node's pods send over TCP and UDP, as the scheduler wrote it to them", Args: cobra.NoArgs,
		Long: "Sets the DSCP of what pods of this node send that have the annotation muster.sh/traffic-dscp, by rules of nftables\n" +
			"in a table of its own (inet muster-kube). It needs control groups of version 2, the processes and the network of the\n" +
			"node, and may do no more than list the cluster's pods and read --authority (docs/howto/kubernetes-network.md).",
		Example: "  muster kube agent --node $(hostname)",
		RunE:    func(c *cobra.Command, _ []string) error { return f.run(c.Context(), c) },
	}
	f.add(c)
	c.Flags().StringVar(&f.node, "node", os.Getenv("NODE_NAME"), "name of the node, as the cluster knows it (default $NODE_NAME)")
	c.Flags().StringVar(&f.cgroups, "cgroups", "/sys/fs/cgroup", "where the node's control groups are")
	c.Flags().StringVar(&f.authority, "authority", front.Service,
		"APIService whose caBundle has the authority of the scheduler: only what that sealed is believed; none: whatever the annotation says")
	c.Flags().StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
	return c
}

func (f *agentFlags) run(ctx context.Context, c *cobra.Command) error {
	if f.node == "" {
		return fmt.Errorf("%w: which node is this? (--node, or NODE_NAME)", errUsage)
	}
	level, err := config.ParseLevel(f.logLevel)
	if err != nil {
		return fmt.Errorf("%w: --log-level: %w", errUsage, err)
	}
	rc, err := f.reach()
	if err != nil {
		return err
	}
	client, err := kubeapi.New(rc)
	if err != nil {
		return err
	}
	if f.authority == "none" {
		f.authority = ""
	}
	objects, err := dynamic.NewForConfig(rc)
	if err != nil {
		return err
	}
	err = agent.Run(ctx, agent.Options{Client: client, Dynamic: objects, Node: f.node, Cgroups: f.cgroups,
		Authority: f.authority,
		Log:       slog.New(slog.NewTextHandler(c.ErrOrStderr(), &slog.HandlerOptions{Level: level}))})
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
