package main

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/muster-gpu/muster/client"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/journal"
	"github.com/muster-gpu/muster/trace"
	"github.com/muster-gpu/muster/tune"
)

// history reads what is to be replayed: a trace, journals, or those of the daemon.
func (f *tuneFlags) history(c *cobra.Command) (*trace.Workload, *cluster.Spec, error) {
	if (f.trace != "" || f.demo) && len(f.journals) > 0 {
		return nil, nil, usage(fmt.Errorf("--from-journal excludes --trace and --demo"))
	}
	h := tune.NewHistory()
	switch {
	case f.trace != "" || f.demo:
		if f.current == "" {
			f.notes = append(f.notes,
				"gains are over "+daemonPolicy+
					", which muster serve runs by default; --current names the policy in force")
		}
		f.defaults(daemonPolicy, "best-fit")
		return f.load1()
	case len(f.journals) > 0:
		for _, path := range f.journals {
			j, done, err := openJournal(path)
			if err != nil {
				return nil, nil, err
			}
			err = h.Add(j)
			done()
			if err != nil {
				return nil, nil, err
			}
		}
	default:
		if err := f.fromDaemon(c, h); err != nil {
			return nil, nil, fmt.Errorf("the daemon's history: %w (or give --trace FILE, --from-journal FILE, --demo)",
				err)
		}
	}
	force := tuneName(h.Header.Policy, h.Header.Backfill)
	f.defaults(force, h.Header.Placer)
	wl, spec, err := h.Workload()
	if err != nil {
		return nil, nil, err
	}
	f.notes, f.past = h.Notes, h
	if f.cluster != "" || f.load != 0 {
		spec, err = f.clusterFor(wl)
	}
	return wl, spec, err
}

func tuneName(policy, backfill string) string {
	if backfill == "" {
		return policy
	}
	return policy + "+" + backfill
}

func (f *tuneFlags) defaults(current, placer string) {
	if f.current == "" {
		f.current = current
	}
	if f.placers == "" {
		f.placers = placer
	}
}

// fromDaemon reads every segment of the daemon's journal that is still stored.
func (f *tuneFlags) fromDaemon(c *cobra.Command, h *tune.History) error {
	cl, read := client.Connect(), 0
	for n := 1; ; n++ {
		r, err := cl.Journal(c.Context(), n)
		var refused *client.Error
		if errors.As(err, &refused) && refused.Status == http.StatusNotFound && n > 1 {
			break
		}
		if errors.As(err, &refused) && refused.Status == http.StatusConflict {
			continue // its first step is not kept any more
		}
		if err != nil {
			return err
		}
		j, err := journal.NewReader(fmt.Sprintf("segment %d", n), r)
		if err == nil {
			err = h.Add(j)
		}
		if err = errors.Join(err, r.Close()); err != nil {
			return err
		}
		read++
	}
	if read == 0 {
		return fmt.Errorf("no segment of its journal is kept in full")
	}
	return nil
}
