package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/learn"
	"github.com/muster-gpu/muster/serving/inss"
	"github.com/muster-gpu/muster/sim"
	"github.com/muster-gpu/muster/trace"
)

// learnFlags are the flags of muster learn.
type learnFlags struct {
	simFlags
	out    string
	from   string
	rounds int
	held   float64
}

// learnable are the systems that muster learn trains.
var learnable = append(slices.Clone(learn.Systems), inss.System)

func newLearn() *cobra.Command {
	f := &learnFlags{}
	c := &cobra.Command{
		Use: "learn sched2|meta-rl|inss-rl", Short: "Train the weights of a learned policy or placer",
		Args: cobra.ExactArgs(1),
		Long: "The network learns in a light world of nodes and jobs that has the rules of the simulator. Without --trace the jobs are made up, and the\n" +
			"weights suit any workload; with it they are drawn from the first part of the trace, and the rest is held out: what the weights are\n" +
			"worth there is printed beside fifo, tiresias-l and srtf. The same flags give the same file. inss-rl plans services on parts of GPUs;\n" +
			"its services are made up, and its plans are compared with those of the solver (inss).",
		Example:   "  muster learn sched2 --out weights.json\n  muster learn sched2 --trace philly.csv --cluster 48x8xV100-32GB --out weights.json",
		ValidArgs: learnable,
		RunE:      func(c *cobra.Command, args []string) error { return f.run(c, args[0]) },
	}
	f.register(c)
	fl := c.Flags()
	f.registerWorld(fl, "auto", "0s", "0s")
	fl.StringVar(&f.out, "out", "", "file to write the weights to (needed)")
	fl.StringVar(&f.from, "from", "", "begin with the weights of this file, instead of none")
	fl.IntVar(&f.rounds, "rounds", 0, "rounds of improvement (default: as the shipped weights)")
	fl.Float64Var(&f.held, "held", 0.3, "the last part of the trace that is held out")
	return c
}

func (f *learnFlags) run(c *cobra.Command, system string) error {
	switch {
	case !slices.Contains(learnable, system):
		return usage(cluster.Unknown("system", system, learnable))
	case f.out == "":
		return usage(errors.New("--out FILE is needed: where the weights go"))
	case f.rounds < 0 || f.rounds > 10000:
		return usage(fmt.Errorf("--rounds %d: between 1 and 10000 are possible", f.rounds))
	case !(f.held > 0 && f.held < 1):
		return usage(fmt.Errorf("--held %g: more than 0 and less than 1 is possible", f.held))
	}
	if system == inss.System {
		return f.services(c)
	}
	t := learn.DefaultTraining(system, f.seed)
	if f.rounds > 0 {
		t.Rounds = f.rounds
	}
	t.Cancelled = func() bool { return c.Context().Err() != nil }
	t.Progress = printProgress(c.ErrOrStderr(), wallClock())
	if f.from != "" {
		var err error
		if t.From, err = learn.Load(system, f.from, "", config.ReadFile); err != nil {
			return usage(fmt.Errorf("--from: %w", err))
		}
	}
	held, spec, err := f.worlds(&t)
	if err != nil {
		return err
	}
	if err := writable(f.out); err != nil {
		return usage(fmt.Errorf("--out: %w", err))
	}
	agent := t.Learn(system)
	text, err := agent.Write(system, f.command(c, system))
	if err != nil {
		return err
	}
	if err := os.WriteFile(f.out, text, 0o644); err != nil {
		return err
	}
	if agent, err = learn.Read(system, text); err != nil {
		return err
	}
	fmt.Fprintf(c.OutOrStdout(), "%s: weights of %s, digest %s\n", f.out, system, agent.Digest())
	if c.Context().Err() != nil {
		fmt.Fprintln(c.OutOrStdout(), "interrupted: they are the best so far; go on with --from")
		return errInterrupted
	}
	return f.judge(c, system, spec, held)
}

// services trains the agents that plan services.
func (f *learnFlags) services(c *cobra.Command) error {
	if f.trace != "" || f.from != "" {
		return usage(errors.New("inss-rl learns from made-up services: without --trace and --from"))
	}
	if err := writable(f.out); err != nil {
		return usage(fmt.Errorf("--out: %w", err))
	}
	clock := wallClock()
	t := inss.Training{Rounds: cmp.Or(f.rounds, inss.Rounds), Seed: f.seed,
		Cancelled: func() bool { return c.Context().Err() != nil }}
	t.Progress = func(round int, score float64) {
		fmt.Fprintf(c.ErrOrStderr(), "round %d of %d: GPUs and their parts %.4f of the solver's, at best (%s)\n", round,
			t.Rounds,
			score, cluster.FormatDuration(clock().Round(time.Second)))
	}
	text, err := t.Learn().Write(f.command(c, inss.System))
	if err != nil {
		return err
	}
	if err := os.WriteFile(f.out, text, 0o644); err != nil {
		return err
	}
	agents, err := inss.ReadAgents(text)
	if err != nil {
		return err
	}
	j := agents.Judge(judged, f.seed+judgedSeed)
	fmt.Fprintf(c.OutOrStdout(),
		"%s: weights of %s\nheld out: %d cases of 4 to 15 services; the agents' plan is better than the "+
			"solver's in %d, worse in %d\n", f.out, inss.System, j.Cases, j.Better, j.Worse)
	w := tabwriter.NewWriter(c.OutOrStdout(), 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "plans of\tGPUs\tof them used")
	for _, x := range []struct {
		name string
		sum  [2]int
	}{{"solver (inss)", j.Solver}, {"agents", j.Agents}, {"the better of both (inss-rl)", j.Both}} {
		fmt.Fprintf(w, "%s\t%d\t%.2f\n", x.name, x.sum[0], float64(x.sum[1])/100)
	}
	fmt.Fprintf(w, "no plan takes fewer than\t%d\t\n", j.Least)
	if err := w.Flush(); err != nil {
		return err
	}
	if c.Context().Err() != nil {
		return errInterrupted
	}
	return nil
}

// What the weights of inss-rl are judged by: cases that no training draws.
const (
	judged     = 1000
	judgedSeed = 7_000_003
)

// writable reports why a file cannot be written, before the time is spent. What is in it stays.
func writable(name string) error {
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err == nil {
		return f.Close()
	}
	if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if f, err = os.CreateTemp(filepath.Dir(name), ".weights-*"); err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// command is the command that trains these weights, for their file: with all flags that were given, but where they go.
func (f *learnFlags) command(c *cobra.Command, system string) string {
	words := []string{"muster learn", system}
	c.Flags().Visit(func(fl *pflag.Flag) { // in the order of their names
		if fl.Name != "out" {
			words = append(words, "--"+fl.Name+" "+fl.Value.String())
		}
	})
	if c.Context().Err() != nil {
		words = append(words, "(interrupted)")
	}
	return strings.Join(words, " ")
}

// printProgress says how a training gets on, a line for each round.
func printProgress(w io.Writer, clock func() time.Duration) func(learn.Progress) {
	return func(p learn.Progress) {
		if p.Round == 0 {
			fmt.Fprintf(w, "%s: mean JCT %.4f of the rule's\n", p.Stage, p.Score)
			return
		}
		fmt.Fprintf(w, "round %d of %d, load up to %.2f: mean JCT %.4f of the rule's, at best %.4f (%s)\n", p.Round,
			p.Rounds, p.Load, p.Score, p.Best,
			cluster.FormatDuration(clock().Round(time.Second)))
	}
}

// worlds has the training draw its worlds from a trace, if there is one, and returns what is held
// out, or the demo.
func (f *learnFlags) worlds(t *learn.Training) ([]trace.Entry, *cluster.Spec, error) {
	f.demo = f.trace == ""
	if f.demo && f.cluster != "" {
		return nil, nil, usage(errors.New("--cluster: only with --trace; without one clusters are made up"))
	}
	wl, spec, err := f.load1()
	if err != nil {
		return nil, nil, err
	}
	entries, err := f.prepare(wl, spec)
	if err != nil || f.demo {
		return entries, spec, err
	}
	learnt, held := trace.HoldOut(entries, f.held)
	base, err := f.baseSetup()
	if err != nil {
		return nil, nil, usage(err)
	}
	draw, err := sim.LearnWorlds(spec, learnt, base.World.Model)
	if err != nil {
		return nil, nil, err
	}
	t.World = draw
	return held, spec, nil
}

// judge replays what was held out under the new weights and under policies that learn nothing.
func (f *learnFlags) judge(c *cobra.Command, system string, spec *cluster.Spec, held []trace.Entry) error {
	base, err := f.baseSetup()
	if err != nil {
		return usage(err)
	}
	var setups []sim.Setup
	add := func(policy, placer string) {
		s := base
		s.Policy, s.Placer = policy, placer
		setups = append(setups, s)
	}
	for _, name := range []string{"fifo", "tiresias-l", "srtf"} {
		if add(name, "best-fit"); system == learn.SystemMetaRL {
			add(name, system+":weights="+f.out)
		}
	}
	if system == learn.SystemSched2 {
		add(system+":weights="+f.out, "best-fit")
	}
	what := "held out: the last " + fmt.Sprintf("%d jobs of %s", len(held), f.trace)
	if f.demo {
		what = fmt.Sprintf("held out: %d jobs of muster sim --demo", len(held))
	}
	fmt.Fprintln(c.OutOrStdout(), what)
	w := tabwriter.NewWriter(c.OutOrStdout(), 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "policy\tplacer\tmean JCT\tp95\tmakespan\tpreemptions")
	for _, out := range sim.RunAll(c.Context(), spec, held, setups, wallClock()) {
		if out.Err != nil {
			return fmt.Errorf("%s: %w", out.Label, out.Err)
		}
		s := out.Run.Summarise()
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\n", out.Label, out.Run.Placer, lasted(&s.JCT.Mean), lasted(&s.JCT.P95),
			lasted(&s.Makespan), s.Preemptions)
	}
	return w.Flush()
}
