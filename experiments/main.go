// Command experiments replays published experiments and sets our figures beside the published ones:
//
//	go run . --traces ../../shared/traces --out ../docs
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"github.com/muster-gpu/muster/experiments/results"
)

// errDiffers is returned for figures that are beyond their tolerance without a reason.
var errDiffers = errors.New("differs")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		stop()
		os.Exit(1)
	}
}

// options are the command's arguments.
type options struct {
	traces, out, only string
}

func run(ctx context.Context, args []string, w io.Writer) error {
	var o options
	fl := flag.NewFlagSet("experiments", flag.ContinueOnError)
	fl.StringVar(&o.traces, "traces", "", "directory of the recorded traces")
	fl.StringVar(&o.out, "out", "", "directory of results.md and its pages (default: the pages, on the terminal)")
	fl.StringVar(&o.only, "only", "", "one page: "+strings.Join(results.Names(), ", "))
	if err := fl.Parse(args); err != nil {
		return err
	}
	if fl.NArg() > 0 {
		return fmt.Errorf("%q: there are flags only", fl.Arg(0))
	}
	dir, err := os.Stat(o.traces)
	if err == nil && !dir.IsDir() {
		err = fmt.Errorf("%s is a file", o.traces)
	}
	if err != nil {
		return fmt.Errorf("--traces: %w; want the directory with the recorded traces, as philly/philly_pollux.csv", err)
	}
	return o.replay(ctx, w)
}

// replay writes the requested pages.
func (o *options) replay(ctx context.Context, w io.Writer) error {
	var tables []results.Table
	var err error
	if o.only != results.Comparing {
		if tables, err = results.All(ctx, o.traces, o.only); err != nil {
			return err
		}
	}
	for i := range tables {
		if err := o.page(w, "results/"+tables[i].Name+".md", tables[i].Write); err != nil {
			return err
		}
	}
	if o.only == "" || o.only == results.Comparing {
		began := time.Now()
		all, err := results.Compare(ctx, o.traces, func() time.Duration { return time.Since(began) })
		if err != nil {
			return err
		}
		err = o.page(w, "results/"+results.Comparing+".md", func(w io.Writer) error {
			return results.WriteComparisons(w, all)
		})
		if err != nil {
			return err
		}
	}
	if o.only == "" {
		if err := o.page(w, "results.md", func(w io.Writer) error { return results.Index(w, tables) }); err != nil {
			return err
		}
	}
	for i := range tables {
		if bad := tables[i].Failed(); len(bad) > 0 {
			return fmt.Errorf("%w: %s: %d figures beyond the tolerance without a reason", errDiffers, tables[i].Title,
				len(bad))
		}
	}
	return nil
}

// page writes a page to its file atomically, or to the terminal.
func (o *options) page(w io.Writer, name string, write func(io.Writer) error) error {
	if o.out == "" {
		return write(w)
	}
	path := filepath.Join(o.out, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".page-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	if err := errors.Join(write(f), f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
