//go:build linux

package rules

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/show"
	"github.com/muster-gpu/muster/store"
)

const metaPolicy = "policy"

// PolicyChange is under what name a change of the policy is in the record of changes.
const PolicyChange = metaPolicy

// NoJob is under which number the record of changes is kept.
const NoJob = 0

// byConfig stands for who set the policy where nobody did it live.
const byConfig = "the configuration"

// InForce is the policy in force, with the contents of the files that it names.
type InForce struct {
	mu    sync.RWMutex
	now   Standing
	files *config.Files
}

// Now is what is stored of the policy.
func (f *InForce) Now() Standing {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.now
}

// Set replaces the policy.
func (f *InForce) Set(p *Standing) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = *p
}

// Hold keeps the contents of the files of the policy that is in force now, or lets them go if it is not: what is built
// later (a reload, a forecast) reads no file, and has the weights that count.
func (f *InForce) Hold(files *config.Files, counts bool) {
	if counts {
		f.mu.Lock()
		files, f.files = f.files, files
		f.mu.Unlock()
	}
	files.Release()
}

// Release lets the contents of the files go.
func (f *InForce) Release() { f.files.Release() }

// Put stores a policy.
func (p *Standing) Put(t *store.Tx) error {
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return t.PutMeta(metaPolicy, text)
}

// Restore finds which policy is in force when the daemon starts: the one that was set live, unless the file or a flag
// has another one since. It becomes that of the rules.
func (f *InForce) Restore(ctx context.Context, st *store.Store, r *config.Rules, at time.Time, log *slog.Logger) error {
	file := Choice{Policy: r.Policy, Placer: r.Placer, Backfill: r.Backfill}
	now := &Standing{Choice: file, Configured: file, At: at.UTC(), By: byConfig}
	old := &Standing{}
	text, err := st.Meta(ctx, metaPolicy)
	switch {
	case errors.Is(err, store.ErrNotFound):
		old = nil
	case err != nil:
		return err
	default:
		if err := json.Unmarshal(text, old); err != nil {
			return fmt.Errorf("the stored policy: %w", err)
		}
	}
	if old != nil && old.Configured == file && (old.Live || old.Choice == file) {
		h := *r
		h.Policy, h.Placer, h.Backfill = old.Policy, old.Placer, old.Backfill
		held, err := config.Hold(h.Policy, h.Placer)
		if err == nil {
			err = h.Check()
		}
		if f.Hold(held, err == nil); err == nil {
			*r = h
			f.Set(old)
			return nil
		}
		// of another version of this program, or the cluster is another
		log.Warn("the policy that was set live does not hold any more", "policy", old.Text(), "error", err)
	}
	held, err := config.Hold(file.Policy, file.Placer)
	if err != nil {
		return err
	}
	f.Hold(held, true)
	f.Set(now)
	return st.Write(ctx, func(t *store.Tx) error {
		if err := now.Put(t); err != nil || old == nil {
			return err
		}
		return t.PutHistory(NoJob, now.At.UnixNano(), PolicyChange, byConfig+": "+old.Text()+" -> "+now.Text())
	})
}

// mostChanges is how many of the latest changes are shown.
const mostChanges = 20

// Show says which policy is in force, since when, and what changed lately.
func (f *InForce) Show(ctx context.Context, st *store.Store) (show.Policy, error) {
	rows, err := st.History(ctx, NoJob)
	if err != nil {
		return show.Policy{}, err
	}
	p := f.Now()
	v := show.Policy{PolicyChoice: p.View(), Since: p.At, By: p.By, Live: p.Live, Configured: p.Configured.View(),
		Guard: p.Guard, Changes: []show.Moment{}}
	for _, r := range rows[max(0, len(rows)-mostChanges):] {
		v.Changes = append(v.Changes, show.Moment{At: time.Unix(0, r.At).UTC(), State: r.What, Text: r.Text})
	}
	return v, nil
}

// FilesOf reads the files that a request comes to, before anything is locked: only the request waits for a disk that
// hangs.
func (f *InForce) FilesOf(r *ask.PolicyRequest) (*config.Files, error) {
	p := f.Now()
	c := p.Choice
	if r.FromConfig {
		c = p.Configured
	}
	c.Policy, c.Placer = cmp.Or(r.Policy, c.Policy), cmp.Or(r.Place, c.Placer)
	files, err := config.Hold(c.Policy, c.Placer)
	if err != nil {
		field := "policy"
		if r.Policy == "" && r.Place != "" {
			field = "place"
		}
		return nil, &ask.FieldError{Field: field, Text: err.Error()}
	}
	return files, nil
}
