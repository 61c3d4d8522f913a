package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/client"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/serving/bulk"
)

func newServiceBatch() *cobra.Command {
	opt, deadline, submit := bulk.Options{}, "", false
	c := &cobra.Command{
		Use: "batch FILE", Short: "Have a file of requests answered, on what the others leave of the services",
		Long: "Has each request of a file answered once, however often it is interrupted: what has its answer in --out is not asked\n" +
			"again. The file has the form of OpenAI's batch interface: a line of JSON for each request, with custom_id, url and\n" +
			"body. The requests wait for whatever the others leave, and with --deadline, for the replicas that are started so\n" +
			"that it is kept.",
		Example: "  muster service batch questions.jsonl --out answers.jsonl\n" +
			"  muster service batch questions.jsonl --out answers.jsonl --deadline 2h --submit",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) (err error) {
			opt.In = args[0]
			if opt.Out == "" {
				return usage(errors.New("--out: say where the answers go"))
			}
			if opt.Deadline, err = deadlineOf(deadline); err != nil {
				return usage(err)
			}
			if submit {
				return submitBatch(c, &opt)
			}
			progress, stop, err := batchProgress(c.ErrOrStderr())
			if err != nil {
				return err
			}
			defer stop()
			opt.Key, opt.Now, opt.Progress = os.Getenv("MUSTER_GATEWAY_KEY"), wallTime, progress
			done, failed, err := bulk.Run(c.Context(), opt)
			if err != nil {
				return fmt.Errorf("%w; %d answers are in %s, and the same command goes on from there", err, done,
					opt.Out)
			}
			fmt.Fprintf(c.OutOrStdout(), "%d answers in %s, %d of them errors\n", done, opt.Out, failed)
			return nil
		},
	}
	c.Flags().StringVar(&opt.Out, "out", "", "file of the answers")
	c.Flags().StringVar(&opt.Gateway, "gateway", "http://127.0.0.1:8000",
		"address of the gateway; MUSTER_GATEWAY_KEY is its key")
	c.Flags().IntVar(&opt.AtOnce, "at-once", 32, "requests that are open at a time")
	c.Flags().StringVar(&deadline, "deadline", "", "when all should be answered, such as 2h or 2026-12-01T08:00:00Z")
	c.Flags().BoolVar(&submit, "submit", false, "as a job, in the background; it needs no GPU")
	return c
}

// deadlineOf reads a time span from now, or a time.
func deadlineOf(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, nil
	}
	d, err := cluster.ParseDuration(text)
	if err != nil || d <= 0 {
		return time.Time{}, fmt.Errorf(
			"--deadline: %q is neither a time span such as 2h nor a time such as 2026-12-01T08:00:00Z",
			text)
	}
	return wallTime().Add(d), nil
}

// batchProgress reports how far a file is: to the job that this process is, or as a line that is replaced.
func batchProgress(w io.Writer) (report func(done, all int), stop func(), err error) {
	path := os.Getenv("MUSTER_PROGRESS")
	if path == "" {
		_, progress := narrator(w)
		return func(done, all int) { progress(fmt.Sprintf("%d of %d requests are answered", done, all)) },
			func() { progress("") }, nil
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return nil, nil, err
	}
	last := time.Time{}
	return func(done, all int) {
		now := wallTime()
		if done < all && now.Sub(last) < time.Second {
			return
		}
		last = now
		_ = json.NewEncoder(f).Encode(map[string]int{"step": done, "steps": all}) // only people look at it
	}, func() { _ = f.Close() }, nil
}

// submitBatch submits the same command as a job. It may be stopped at any moment: the file of answers says where it
// goes on.
func submitBatch(c *cobra.Command, opt *bulk.Options) error {
	n, err := bulk.Check(opt.In)
	if err != nil {
		return err
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	s := &api.Submission{Name: filepath.Base(opt.In), Kind: "batch", Env: os.Environ(), Dir: dir, Signal: "TERM",
		Umask: fmt.Sprintf("%04o", umask()), Output: filepath.Base(opt.In) + ".%j.log",
		Command: []string{exe, "service", "batch", opt.In, "--out", opt.Out, "--gateway", opt.Gateway, "--at-once",
			fmt.Sprint(opt.AtOnce)}}
	if !opt.Deadline.IsZero() {
		s.Deadline = &opt.Deadline
		s.Command = append(s.Command, "--deadline", opt.Deadline.Format(time.RFC3339))
	}
	id, err := client.Connect().SubmitOnly(c.Context(), s)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.OutOrStdout(), "job %d answers %d requests; muster show %d says how far it is\n", id, n, id)
	return err
}
