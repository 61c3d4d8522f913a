package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/client"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

type defragFlags struct {
	apply, asJSON        bool
	journal, at, compact string
}

// newDefrag says which moves would let waiting jobs start, and makes them.
func newDefrag() *cobra.Command {
	var f defragFlags
	c := &cobra.Command{
		Annotations: onCluster,
		Use:         "defrag [JOB]",
		Short:       "Say which running jobs to move so that a waiting one fits or nodes are empty, and what that costs", Args: cobra.MaximumNArgs(1),
		Long: "Enough GPUs may be free for a gang, but not together, or enough of GPUs, but MIG slices and shares lie in the way: n1:0@4 is\n" +
			"the slice of GPU 0 of n1 that begins at memory slice 4. Says for which waiting jobs moving others would help: which would go\n" +
			"where, how much GPU time that loses, and how much earlier the job would start. Nothing is changed without --apply, which makes\n" +
			"the moves that gain more than they cost (operators may): where they go is booked before any job stops.\n" +
			"--compact moves jobs off nodes when other nodes in use have room for them, while no job waits for room: so that more of what is free is of\n" +
			"use to the tasks submitted last (usable), or, with --compact=nodes, so that nodes are empty.",
		Example:           "  muster defrag\n  muster defrag 42 --json\n  muster defrag --compact=nodes\n  muster defrag 42 --apply\n  muster defrag big --journal fifo.journal --at 2h30m",
		ValidArgsFunction: completeJobs(),
		RunE: func(c *cobra.Command, args []string) error {
			if f.compact != "" && len(args) > 0 {
				return usage(errors.New(
					"--compact empties nodes for no particular job: name no job (and write --compact=nodes)"))
			}
			if f.journal != "" {
				return f.fromJournal(c.OutOrStdout(), args)
			}
			return f.ask(c, args)
		},
	}
	c.Flags().BoolVar(&f.apply, "apply", false, "make the moves that are worth it")
	c.Flags().StringVar(&f.compact, "compact", "",
		"empty nodes, as far as that gains more than it costs: usable GPUs, or empty nodes")
	c.Flags().Lookup("compact").NoOptDefVal = engine.UsableGPUs.String()
	c.Flags().BoolVar(&f.asJSON, "json", false, "JSON")
	c.Flags().StringVar(&f.journal, "journal", "", "read a journal instead of asking a daemon")
	c.Flags().StringVar(&f.at, "at", "",
		"with --journal: the instant, since the start (default: the end of the journal)")
	return c
}

// ask asks the daemon.
func (f *defragFlags) ask(c *cobra.Command, args []string) error {
	cl, job := client.Connect(), 0
	if len(args) > 0 {
		var err error
		if job, err = cl.FindJob(c.Context(), args[0]); err != nil {
			return err
		}
	}
	var list []api.Moves
	var err error
	if f.apply {
		err = cl.Do(c.Context(), http.MethodPost, "/v1/moves", &api.MovesRequest{Job: job, Compact: f.compact}, &list)
	} else {
		path := "/v1/moves"
		if job != 0 {
			path += "?" + url.Values{"job": {strconv.Itoa(job)}}.Encode()
		}
		if f.compact != "" {
			path += "?" + url.Values{"compact": {f.compact}}.Encode()
		}
		err = cl.Do(c.Context(), http.MethodGet, path, nil, &list)
	}
	if err != nil {
		return err
	}
	if f.asJSON {
		return json.NewEncoder(c.OutOrStdout()).Encode(list)
	}
	return f.print(c.OutOrStdout(), list)
}

// print prints the moves for each job, then that nothing was changed.
func (f *defragFlags) print(w io.Writer, list []api.Moves) error {
	if len(list) == 0 {
		fmt.Fprintln(w, "no job waits for room")
	}
	for i := range list {
		p := &list[i]
		switch {
		case p.Job > 0:
			fmt.Fprintf(w, "job %s (%s): %s\n", called(p.Job, p.Name), p.Needs(), p.Verdict())
		case p.Empties != "":
			fmt.Fprintf(w, "node %s (%d GPUs): %s\n", p.Empties, p.GPUs, p.Verdict())
		default:
			fmt.Fprintln(w, p.Verdict())
		}
		for k := range p.Moves {
			x := &p.Moves[k]
			how := fmt.Sprintf("checkpoint %s, restart %s, lost work %s", rounded(x.Stop), rounded(x.Restart),
				rounded(x.Lost))
			if x.Replaced {
				how = fmt.Sprintf("it goes on until another has come in its place, at most for %s", rounded(x.Stop))
			}
			fmt.Fprintf(w, "  job %s (%s) from %s to %s%s: loses %s of GPU time (%s)\n", called(x.Job, x.Name), x.Has(),
				strings.Join(x.From, ","), strings.Join(x.To, ","), afterText(x), gpuSeconds(x.Cost), how)
		}
		if p.Empties != "" {
			fmt.Fprintf(w, "  gains %s of GPU time for %s\n", gpuSeconds(p.Benefit), gpuSeconds(p.Cost))
		} else if len(p.Moves) > 0 {
			without := "no start is in sight without"
			if p.Without != nil {
				without = "without at " + p.Without.Local().Format(time.DateTime)
			}
			fmt.Fprintf(w, "  it would start on %s at %s, %s: saves %s x %g GPUs x %g = %s for %s\n",
				strings.Join(p.On, ","), p.Start.Local().Format(time.DateTime),
				without, rounded(p.Saved), float64(p.Milli)/1000, p.Weight, gpuSeconds(p.Benefit), gpuSeconds(p.Cost))
		}
	}
	if !f.apply {
		fmt.Fprintln(w, "nothing was changed (--apply makes the moves that are worth it)")
	}
	return nil
}

// afterText says for which jobs one that moves waits.
func afterText(x *api.Move) (text string) {
	for k, id := range x.After {
		text += fmt.Sprintf("%s %d", []string{", after job", " and"}[min(k, 1)], id)
	}
	return text
}

// called is a job's number and name.
func called(job int, name string) string {
	if name == "" {
		return strconv.Itoa(job)
	}
	return fmt.Sprintf("%d %s", job, name)
}

// rounded is a duration to the second: what is lost was never a round number.
func rounded(d api.Duration) api.Duration {
	return api.Duration(time.Duration(d).Round(time.Second))
}

func gpuSeconds(s float64) string {
	return cluster.FormatDuration(time.Duration(s) * time.Second)
}

// fromJournal looks for moves in the state at an instant of a journal.
func (f *defragFlags) fromJournal(w io.Writer, args []string) error {
	if f.apply {
		return usage(errors.New("--apply needs a daemon: what is in a journal is over"))
	}
	e, err := replayTo(f.journal, f.at)
	if err != nil {
		return err
	}
	list, err := f.movesIn(e, args)
	if err != nil {
		return err
	}
	if f.asJSON {
		if list == nil {
			list = []engine.Moves{}
		}
		return json.NewEncoder(w).Encode(list)
	}
	if len(list) == 0 {
		fmt.Fprintln(w, "no job waits for room")
	}
	for i := range list {
		if list[i].Job == cluster.NoJob {
			fmt.Fprintln(w, list[i].String())
			continue
		}
		fmt.Fprintf(w, "job %d %s (%s): %s\n", list[i].Job, list[i].Name, list[i].Needs(), list[i].String())
	}
	return nil
}

// movesIn looks for moves in an engine.
func (f *defragFlags) movesIn(e *engine.Engine, args []string) ([]engine.Moves, error) {
	switch {
	case f.compact != "":
		by, err := engine.ParseCompact(f.compact)
		if err != nil {
			return nil, usage(err)
		}
		return e.LookForEmptying(by), nil
	case len(args) == 0:
		return e.LookForMoves(cluster.NoJob), nil
	}
	id, ok := e.FindJob(args[0])
	if !ok {
		return nil, fmt.Errorf("%s: no job has the number or name %q by then", f.journal, args[0])
	}
	return e.LookForMoves(id), nil
}
