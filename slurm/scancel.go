package slurm

import (
	"cmp"
	"errors"
	"slices"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/ask"
)

var scancelOptions = []option{
	{name: "account", short: 'A', arg: needs},
	{name: "batch", short: 'b'},
	{name: "ctld", use: warned, note: "there is one server"},
	{name: "full", short: 'f'},
	{name: "help"},
	{name: "hurry", short: 'H', use: warned, note: "there is no burst buffer"},
	{name: "interactive", short: 'i', use: refused, note: "squeue with the same filters shows what would be cancelled"},
	{name: "jobname", short: 'n', arg: needs},
	{name: "name", arg: needs},
	{name: "me"},
	{name: "nodelist", short: 'w', arg: needs},
	{name: "partition", short: 'p', arg: needs},
	{name: "qos", short: 'q', arg: needs},
	{name: "quiet", short: 'Q'},
	{name: "signal", short: 's', arg: needs},
	{name: "state", short: 't', arg: needs},
	{name: "usage"},
	{name: "user", short: 'u', arg: needs},
	{name: "verbose", short: 'v'},
	{name: "version", short: 'V'},
}

// scancel signals or ends the named jobs that pass all filters. Without names the filters apply to the caller's
// jobs, unless they name a user.
func (c *command) scancel() (int, error) {
	l, rest, done, err := c.common(scancelOptions, "scancel [OPTIONS] [JOB[_INDEX]...]")
	if done || err != nil {
		return 0, err
	}
	if n := l.set.get("jobname"); n != "" {
		l.names = append(l.names, n)
	}
	if l.set.has("state") {
		if l.states, err = parseStates(l.set.get("state")); err != nil {
			return 1, err
		}
	}
	any := len(l.users)+len(l.parts)+len(l.names)+len(l.accounts)+len(l.nodes)+len(l.qos)+len(l.states) > 0
	if len(rest) == 0 && !any {
		return 1, says("No job identification provided")
	}
	for _, w := range rest {
		refs, err := parseRefs(w)
		if err != nil {
			return 1, err
		}
		l.ids = append(l.ids, refs...)
	}
	if len(rest) == 0 && len(l.users) == 0 {
		l.users = []string{c.svc.User()}
	}
	v, err := c.view(c.svc.Jobs())
	if err != nil {
		return 1, err
	}
	return c.cancelAll(&l, v)
}

func (c *command) cancelAll(l *listing, v *view) (int, error) {
	code := 0
	quiet := l.set.has("quiet")
	for _, ref := range l.ids {
		if slices.ContainsFunc(v.jobs, func(j api.Job) bool { return ref.is(&j) }) {
			continue
		}
		if j, err := c.svc.Job(ref.id); err == nil && stateOf(&j).over {
			if l.set.has("verbose") && !quiet {
				c.errorf("scancel: error: Kill job error on job id %d: Job/step already completing or completed\n",
					ref.id)
			}
			continue // as with Slurm, that is no failure
		}
		if code = 1; !quiet {
			c.errorf("scancel: error: Kill job error on job id %d: Invalid job id specified\n", ref.id)
		}
	}
	rows := v.rows(&l.filter, true)
	slices.SortFunc(rows, func(a, b row) int { return cmp.Compare(a.ID, b.ID) })
	all, err := c.cancelAtOnce(&l.set, rows)
	if err != nil {
		return 1, err
	}
	for _, r := range rows {
		err, done := all[r.Job.ID], all != nil
		if !done {
			err = c.cancelOne(&l.set, r.Job)
		}
		if err != nil {
			if errors.Is(err, ErrNoJob) {
				continue // it ended meanwhile
			}
			code = 1
			c.errorf("scancel: error: Kill job error on job id %s: %v\n", r.idText(), err)
		} else if l.set.has("verbose") && !quiet {
			c.errorf("scancel: Terminating job %s\n", r.idText())
		}
	}
	return code, nil
}

// cancelAtOnce cancels several jobs in one step, so that none starts when another ends; nil: there is one job,
// or they are signalled, which is done one by one.
func (c *command) cancelAtOnce(s *settings, rows []row) (map[int]error, error) {
	if len(rows) < 2 || s.has("signal") || s.has("batch") || s.has("full") {
		return nil, nil
	}
	jobs := make([]api.Job, len(rows))
	for i := range rows {
		jobs[i] = *rows[i].Job
	}
	failed, err := c.svc.CancelAll(jobs)
	if failed == nil {
		failed = map[int]error{}
	}
	return failed, err
}

// cancelOne cancels a job; with --signal, --batch or --full it signals it. SIGKILL ends a job whatever its
// scripts do, so that is a cancellation.
func (c *command) cancelOne(s *settings, j *api.Job) error {
	if !s.has("signal") && !s.has("batch") && !s.has("full") {
		return c.svc.Cancel(j.ID)
	}
	sig := "KILL"
	if s.has("signal") {
		var err error
		if sig, _, err = ask.ParseSignal(s.get("signal")); err != nil {
			return err
		}
	}
	to := Steps
	switch {
	case s.has("batch"):
		to = Shell
	case s.has("full"):
		to = Full
	}
	if sig == "KILL" && to != Shell {
		return c.svc.Cancel(j.ID)
	}
	if j.State == api.StatePending {
		return nil // there is no process to signal
	}
	return c.svc.Signal(j.ID, sig, to)
}
