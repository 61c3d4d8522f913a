package main

import (
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

func newMan() *cobra.Command {
	return &cobra.Command{
		Use:   "man DIR",
		Short: "Write manual pages into a directory (read them with man -l)",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			root := c.Root()
			root.DisableAutoGenTag = true // no date: the pages are the same each time
			return doc.GenManTree(root,
				&doc.GenManHeader{Title: "MUSTER", Section: "1", Source: "Muster", Manual: "Muster"}, args[0])
		},
	}
}
