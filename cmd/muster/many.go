package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/client"
	"github.com/muster-gpu/muster/show"
)

// mostListed bounds how many jobs are listed one by one after a command.
const mostListed = 10

// elementForm is an element of an array, or several: 12_3, 12_[3-9].
var elementForm = regexp.MustCompile(`^(\d+)_(\d+|\[[0-9,:-]+\])$`)

// newManyVerb is a command that does one thing to many jobs, in one step.
func newManyVerb(verb, short, past string) *cobra.Command {
	var sel api.Selection
	var asJSON bool
	c := &cobra.Command{
		Use: verb + " [JOB...]", Short: short, ValidArgsFunction: completeJobs(),
		Long: short + ". All that are chosen, at one instant: none starts when another ends.\n\n" +
			"JOB is a number, that of an array for all of its elements, or elements of one: 12_3, 12_[3-9].\n" +
			"Filters choose those of your jobs that pass all of them; --user chooses another's, which only operators may.",
		Example: fmt.Sprintf("  muster %[1]s 12 17\n  muster %[1]s '12_[3-9]'\n  muster %[1]s --name train --state pending\n  muster %[1]s --all", verb),
		RunE: func(c *cobra.Command, args []string) error {
			if err := selectJobs(&sel, args); err != nil {
				return err
			}
			if !sel.Filters() && len(args) == 0 {
				return usage(errors.New(
					"name jobs, or choose them: --name, --state, --queue, --user, or --all of yours"))
			}
			done, err := client.Connect().ActOnAll(c.Context(), &sel, verb)
			if err != nil {
				return err
			}
			return printActed(c, &done, past, asJSON)
		},
	}
	fl := c.Flags()
	fl.StringSliceVarP(&sel.Users, "user", "u", nil, "jobs of these users")
	fl.StringSliceVar(&sel.Names, "name", nil, "jobs with these names")
	fl.StringSliceVarP(&sel.States, "state", "s", nil, "jobs in these states")
	fl.StringSliceVarP(&sel.Queues, "queue", "q", nil, "jobs in these queues")
	fl.BoolVarP(&sel.All, "all", "a", false, "all of your jobs")
	fl.BoolVar(&asJSON, "json", false, "JSON")
	return c
}

// selectJobs reads numbers of jobs and of elements of arrays.
func selectJobs(sel *api.Selection, args []string) error {
	for _, state := range sel.States {
		if !strings.Contains(" "+strings.Join(show.Live, " ")+" ", " "+state+" ") {
			return usage(fmt.Errorf("--state %q is none of %s", state, strings.Join(show.Live, ", ")))
		}
	}
	for _, arg := range args {
		if id, err := strconv.Atoi(arg); err == nil && id > 0 {
			sel.Jobs = append(sel.Jobs, id)
			continue
		}
		m := elementForm.FindStringSubmatch(arg)
		if m == nil {
			return usage(fmt.Errorf("%q is not the number of a job, nor elements of an array such as 12_3 or 12_[3-9]; --name chooses by name", arg))
		}
		id, err := strconv.Atoi(m[1])
		if err != nil || id < 1 {
			return usage(fmt.Errorf("%q: %s is not the number of an array", arg, m[1]))
		}
		if _, err := ask.ParseArray(m[2]); err != nil {
			return usage(fmt.Errorf("%s: %w", arg, err))
		}
		sel.Elements = append(sel.Elements, api.Elements{Array: id, Indices: m[2]})
	}
	return nil
}

// printActed says what was done, one by one if it was done to few, and what could not be done.
func printActed(c *cobra.Command, done *api.Acted, past string, asJSON bool) error {
	w := c.OutOrStdout()
	switch {
	case asJSON:
		if err := json.NewEncoder(w).Encode(done); err != nil {
			return err
		}
	case len(done.Jobs) > mostListed:
		fmt.Fprintf(w, "%d jobs: %s\n", len(done.Jobs), past)
	default:
		for _, id := range done.Jobs {
			j, err := client.Connect().Job(c.Context(), id)
			if err != nil {
				return err
			}
			if err := printJob(c, &j, false); err != nil {
				return err
			}
		}
	}
	var refused []error
	for i := range done.Refused {
		if i == mostListed {
			refused = append(refused, fmt.Errorf("and %d more", len(done.Refused)-i))
			break
		}
		r := &done.Refused[i]
		text := r.Text
		if !strings.Contains(text, strconv.Itoa(r.Job)) {
			text = fmt.Sprintf("job %d: %s", r.Job, text)
		}
		refused = append(refused, errors.New(text))
	}
	if len(done.Jobs)+len(refused) == 0 && !asJSON {
		fmt.Fprintln(w, "no job is chosen")
	}
	return errors.Join(refused...)
}
