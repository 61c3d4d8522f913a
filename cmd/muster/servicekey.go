package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/muster-gpu/muster/config"
)

func newServiceKey() *cobra.Command {
	return &cobra.Command{
		Use: "key NAME SERVICE...", Short: "Make a key with which a caller may use services; nothing else knows it",
		Long: "Makes a key with which a caller may use services, and prints the line that lets it in, for services.keys of the\n" +
			"daemon's configuration. The line has the key's hash only: the key is shown once, and kept nowhere. '*' is all\n" +
			"services. docs/howto/access.md says more.",
		Example: "  muster service key shop vision chat",
		Args:    cobra.MinimumNArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			key, line, err := config.NewServiceKey(args[0], args[1:])
			if err != nil {
				return usage(err)
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "The key, which is shown only now:\n\n    %s\n\n"+
				"For the daemon's configuration, with rate, burst and tier if need be; it counts from the next reload on:\n\n"+
				"services:\n  keys:\n    %s\n", key, line)
			return err
		},
	}
}
