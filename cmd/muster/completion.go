package main

import (
	"net/url"
	"slices"

	"github.com/spf13/cobra"

	"github.com/muster-gpu/muster/client"
)

// completeFlag offers words for a flag of a command, if it has the flag.
func completeFlag(c *cobra.Command, flag string, words cobra.CompletionFunc) {
	if c.Flags().Lookup(flag) == nil {
		return
	}
	if err := c.RegisterFlagCompletionFunc(flag, words); err != nil {
		panic(err) // the flag is there
	}
}

// completeJobFlags offers words for the flags by which jobs are described and chosen.
func completeJobFlags(c *cobra.Command) {
	fixed := func(words ...string) cobra.CompletionFunc {
		return cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)
	}
	completeFlag(c, "tier", fixed("critical", "standard", "best-effort"))
	completeFlag(c, "kind", fixed("training", "batch", "service", "interactive", "trial"))
	completeFlag(c, "isolation", fixed("none", "memory", "full"))
	completeFlag(c, "queue", completeNames(queueNames))
	completeFlag(c, "partition", completeNames(partitionNames))
	completeFlag(c, "user", completeNames(userNames))
}

// completeNames offers names that the service knows; none where it does not answer.
func completeNames(names func(*cobra.Command, *client.Client) ([]string, error)) cobra.CompletionFunc {
	return func(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		if kubeCluster.given() && kubeCluster.connect(c.Context()) != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		list, err := names(c, client.Connect())
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		slices.Sort(list)
		return slices.Compact(list), cobra.ShellCompDirectiveNoFileComp
	}
}

func queueNames(c *cobra.Command, cl *client.Client) (names []string, err error) {
	list, err := cl.Queues(c.Context())
	for _, q := range list {
		names = append(names, q.Name)
	}
	return names, err
}

func partitionNames(c *cobra.Command, cl *client.Client) (names []string, err error) {
	list, err := cl.Partitions(c.Context())
	for _, p := range list {
		names = append(names, p.Name)
	}
	return names, err
}

func nodeNames(c *cobra.Command, cl *client.Client) (names []string, err error) {
	list, err := cl.Nodes(c.Context())
	for i := range list {
		names = append(names, list[i].Name)
	}
	return names, err
}

// userNames are those who have jobs that are not over.
func userNames(c *cobra.Command, cl *client.Client) (names []string, err error) {
	list, err := cl.List(c.Context(), url.Values{"state": {"active"}, "brief": {"true"}})
	for i := range list {
		names = append(names, list[i].User)
	}
	return names, err
}
