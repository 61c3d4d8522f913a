package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/muster-gpu/muster/client"
)

// newJournal copies the decisions of a live daemon.
func newJournal() *cobra.Command {
	c := &cobra.Command{Use: "journal", Short: "The events and decisions of muster serve, step by step"}
	var out string
	var segment int
	export := &cobra.Command{
		Use: "export", Short: "Write the journal since the daemon's last start, or change of its rules, for muster replay and muster explain", Args: cobra.NoArgs,
		Long: "A segment begins with each start of the daemon and each change of its rules. It holds what jobs asked for,\n" +
			"their names and users; no commands, scripts or environments. Only admins may read it.",
		Example: "  muster journal export -o incident.journal && muster replay incident.journal",
		RunE: func(c *cobra.Command, _ []string) error {
			r, err := client.Connect().Journal(c.Context(), segment)
			if err != nil {
				return err
			}
			defer r.Close()
			if out == "" || out == "-" {
				_, err = io.Copy(c.OutOrStdout(), r)
				return err
			}
			f, err := os.CreateTemp(filepath.Dir(out), ".journal")
			if err != nil {
				return err
			}
			_, err = io.Copy(f, r)
			if err = errors.Join(err, f.Close()); err == nil {
				err = os.Rename(f.Name(), out)
			}
			if err != nil {
				return errors.Join(fmt.Errorf("%s: %w", out, err), os.Remove(f.Name()))
			}
			return nil
		},
	}
	export.Flags().StringVarP(&out, "output", "o", "", "file; standard output if not given")
	export.Flags().IntVar(&segment, "segment", 0, "which segment: 1 is the first, 0 the last")
	c.AddCommand(export)
	return c
}
