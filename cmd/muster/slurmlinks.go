//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/muster-gpu/muster/client"
	"github.com/muster-gpu/muster/internal/version"
	"github.com/muster-gpu/muster/slurm"
	"github.com/muster-gpu/muster/slurm/remote"
)

// newSlurm are Slurm's commands on Muster.
func newSlurm() *cobra.Command {
	c := &cobra.Command{
		Use:   "slurm",
		Short: "Slurm's commands: sbatch, srun, salloc, squeue, scancel, sinfo, scontrol, sacct, sprio, sshare, sstat, sacctmgr",
		Long: "muster slurm install DIR puts links into a folder of your PATH, so that Slurm's scripts and habits work.\n" +
			"What works, what differs and what is refused is in docs/guide/slurm.md.",
	}
	c.AddCommand(newSlurmInstall())
	for _, name := range slurm.Commands {
		c.AddCommand(&cobra.Command{
			Use: name + " [options]", Short: "As Slurm's " + name, DisableFlagParsing: true,
			RunE: func(c *cobra.Command, args []string) error {
				if code := runSlurm(c.Context(), name, args); code != 0 {
					return exitCode(code)
				}
				return nil
			},
		})
	}
	return c
}

func newSlurmInstall() *cobra.Command {
	var force bool
	c := &cobra.Command{
		Use: "install DIR", Short: "Link Slurm's commands to this program in a folder", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			exe, err := os.Executable()
			if err != nil {
				return err
			}
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			small := filepath.Join(filepath.Dir(exe), slurmProgram)
			programs := []string{small, exe} // the first is linked to
			if err := fits(c.Context(), exe, small, slurmBuildVerb, version.Build()); err != nil {
				slices.Reverse(programs)
				if !errors.Is(err, os.ErrNotExist) {
					fmt.Fprintf(c.ErrOrStderr(),
						"muster: %v; the commands become links to muster itself, which takes some milliseconds more for each\n", err)
				}
			}
			for _, name := range slurm.Commands {
				if err := linkTo(programs, filepath.Join(args[0], name), force); err != nil {
					return err
				}
			}
			dir, err := filepath.Abs(args[0])
			if err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "%s now has %s\n", dir, strings.Join(slurm.Commands, ", "))
			if !slices.Contains(filepath.SplitList(os.Getenv("PATH")), dir) {
				fmt.Fprintf(c.OutOrStdout(), "put it into your PATH:  export PATH=%s:$PATH\n", dir)
			}
			return nil
		},
	}
	c.Flags().BoolVar(&force, "force", false, "replace what is there already")
	return c
}

// linkTo makes a link to the first of the programs, unless something that is
// none of them has the name.
func linkTo(programs []string, path string, force bool) error {
	have, err := os.Readlink(path)
	switch {
	case err == nil && have == programs[0]:
		return nil
	case errors.Is(err, os.ErrNotExist):
	case force, err == nil && slices.Contains(programs, have):
		if err := os.Remove(path); err != nil {
			return err
		}
	default:
		return fmt.Errorf("%s exists and is not a link to this program (a real Slurm?): choose another folder, or --force", path)
	}
	return os.Symlink(programs[0], path)
}

// slurmName is the Slurm command that this process was called as; "": none.
func slurmName() string {
	if name := filepath.Base(os.Args[0]); slices.Contains(slurm.Commands, name) {
		return name
	}
	return ""
}

// runSlurm runs one of Slurm's commands.
func runSlurm(ctx context.Context, name string, args []string) int {
	return remote.Main(ctx, client.Connect(), name, args, srunAgain(), wallTime)
}

// srunAgain is the command that runs srun inside a job.
func srunAgain() []string {
	exe, err := os.Executable()
	if err != nil {
		exe = "muster"
	}
	return []string{exe, "slurm", "srun"}
}
