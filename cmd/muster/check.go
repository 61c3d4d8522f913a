package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/muster-gpu/muster/scenario"
)

func newCheck() *cobra.Command {
	var rewrite bool
	c := &cobra.Command{
		Use:   "check FILE...",
		Short: "Run scenarios: does the scheduler still do what they say?",
		Long: "Runs scenario files (and every *.scn below folders) and compares what Muster does with what they say.\n" +
			"The language is described in scenario/README.md. Exit status 3: something differs.",
		Example: "  muster check scenario/testdata\n" +
			"  muster check mine.scn --rewrite    # then read the diff: accept only what you can explain",
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return runCheck(c, args, rewrite) },
	}
	c.Flags().BoolVar(&rewrite, "rewrite", false, "replace the expected outputs by what Muster does")
	return c
}

func runCheck(c *cobra.Command, args []string, rewrite bool) error {
	files, err := scenarioFiles(args)
	if err != nil {
		return err
	}
	out := c.OutOrStdout()
	failed, mistakes := 0, 0
	for _, path := range files {
		ok, err := checkOne(c, out, path, rewrite)
		if c.Context().Err() != nil {
			return errInterrupted
		}
		switch {
		case err != nil && scenario.IsMistake(err):
			fmt.Fprintf(out, "FAIL %s\n  %v\n", path, err)
			mistakes++
		case err != nil:
			return err
		case !ok:
			failed++
		}
	}
	switch {
	case failed > 0:
		return fmt.Errorf("%w: %d of %d scenarios, %d more could not be run", errDiffers, failed, len(files), mistakes)
	case mistakes > 0:
		return fmt.Errorf("%d of %d scenarios could not be run", mistakes, len(files))
	}
	return nil
}

func checkOne(c *cobra.Command, out io.Writer, path string, rewrite bool) (bool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return false, err
	}
	res, err := scenario.Run(c.Context(), path, text, scenario.Options{Rewrite: rewrite})
	if err != nil {
		return false, err
	}
	if res.Changed {
		err := writeFile(path, func(w io.Writer) error { _, err := w.Write(res.Text); return err })
		if err != nil {
			return false, err
		}
		fmt.Fprintf(out, "rewrote %s: read the diff, accept only what you can explain\n", path)
	}
	if res.OK() {
		fmt.Fprintf(out, "ok   %s (%d runs, %d checks)\n", path, res.Runs, res.Checks)
		return true, nil
	}
	fmt.Fprintf(out, "FAIL %s\n  %s\n  %s\n", path, res.About,
		strings.ReplaceAll(strings.TrimSpace(res.String()), "\n", "\n  "))
	return false, nil
}

// scenarioFiles replaces folders by the scenarios below them, in order of name.
func scenarioFiles(args []string) ([]string, error) {
	var files []string
	for _, a := range args {
		n := len(files)
		err := filepath.WalkDir(a, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && (path == a || filepath.Ext(path) == ".scn") {
				files = append(files, path)
			}
			return err
		})
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, usage(fmt.Errorf("%s: no such file or folder", a))
		case err != nil:
			return nil, err
		case len(files) == n:
			return nil, usage(fmt.Errorf("%s: no *.scn files below it", a))
		}
	}
	return files, nil
}
