//go:build linux

package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/local/after"
	"github.com/muster-gpu/muster/local/audit"
	"github.com/muster-gpu/muster/local/rules"
	"github.com/muster-gpu/muster/show"
	"github.com/muster-gpu/muster/store"
)

// Update changes a waiting job: what is refused at submission is refused here.
func (m *Machine) Update(ctx context.Context, id int, u *ask.Update, by *User) error {
	return m.commit(ctx, func(now cluster.Time) ([]engine.Event, error) {
		j := m.jobs[cluster.JobID(id)]
		if j == nil {
			return nil, fmt.Errorf("%w that waits: %d", ErrNoJob, id)
		}
		old := m.eng.Record(j.ID)
		if old != nil && (old.State > engine.Placed || j.run != nil) {
			return nil, fmt.Errorf("job %d is %s: only a waiting job can be changed", id, j.Info.State)
		}
		was := j.Spec
		sub := u.Apply(*j.Sub)
		spec, err := sub.Job()
		if err != nil {
			return nil, err
		}
		sharing, err := m.choose(&sub, &spec)
		if err != nil {
			return nil, err
		}
		spec.ID, spec.User, spec.Submit, spec.Hold, spec.After, spec.Array = was.ID, was.User, was.Submit, was.Hold,
			was.After, was.Array
		if old != nil {
			spec.Hold = old.Spec.Hold
		}
		if u.Estimate == nil { // as its own progress said, or that of similar jobs
			spec.Estimate = was.Estimate
		}
		if spec.Queue == "" {
			spec.Queue, sub.Queue = was.Queue, was.Queue
		}
		if u.After != nil || u.AnyOf != nil {
			index := after.NotElement
			if j.Info.Array != 0 {
				index = j.Index
			}
			if spec.After, err = m.dependencies(&sub, index); err != nil {
				return nil, err
			}
		}
		if u.Cap != nil && spec.Array == nil {
			return nil, &ask.FieldError{Field: "cap", Text: fmt.Sprintf("job %d is no element of an array", id)}
		} else if u.Cap != nil {
			a := *spec.Array
			a.Cap, spec.Array = *u.Cap, &a
		}
		owner := j.Info.User
		if err := m.access().MaySubmit(&owner, spec.Queue); u.Queue != nil && err != nil {
			return nil, err
		}
		if err := m.mayChange(j, &sub, &spec, by); err != nil {
			return nil, err
		}
		if text := m.eng.Check(&spec); text != "" {
			return nil, &ask.FieldError{Field: "update", Text: text}
		}
		text, err := json.Marshal(u)
		if err != nil {
			return nil, err
		}
		m.note(ctx, now, "update", j, string(text))
		j.Said = append(j.Said, fmt.Sprintf("%s changed by %s", changedFields(text), by.Name))
		j.Sub, j.Edited, j.Own().Sharing, j.noWay = &sub, true, sharing, ""
		m.tally.Add(j.Info.User.Name, 0, rules.BareTasks(&spec)-int(j.bare))
		j.bare = int32(rules.BareTasks(&spec))
		return []engine.Event{{Type: engine.Updated, Job: j.ID, Spec: &spec}}, nil
	})
}

// changedFields names the fields of an update. Their values are the business of those who may see the job in
// full, the history is everybody's.
func changedFields(update []byte) string {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(update, &fields); err != nil {
		return "something"
	}
	return strings.Join(slices.Sorted(maps.Keys(fields)), ", ")
}

// mayChange says why a job may not become this, if so.
func (m *Machine) mayChange(j *job, sub *ask.Submission, spec *cluster.Job, by *User) error {
	if err := errors.Join(m.opt.Limits.CheckSizes(sub), sub.CheckTexts()); err != nil {
		return err
	}
	if err := m.tally.Room(&m.opt.Limits, by, 0, rules.BareTasks(spec)-int(j.bare)); err != nil {
		return err
	}
	return m.access().MayUrge(by, spec, j.Spec)
}

// Drain lets a node take no more jobs (undo: again); jobs that run there continue.
func (m *Machine) Drain(ctx context.Context, node, reason, by string, undo bool) error {
	if name := m.opt.Rules.Spec.Nodes[0].Name; node != name {
		return fmt.Errorf("%w: %q; there is %s", ErrNoNode, node, name)
	}
	d, action := rules.Drain{Reason: reason, By: by, At: m.opt.Now().UTC()}, "drain"
	if undo {
		d, action = rules.Drain{}, "undrain"
	}
	if err := m.store.Write(ctx, func(t *store.Tx) error {
		return errors.Join(d.Put(t),
			t.PutAudit(audit.Entry(audit.Named(ctx, by), m.opt.Now(), action, node, reason)))
	}); err != nil {
		return err
	}
	m.drained.Store(&d)
	return m.commit(ctx, func(cluster.Time) ([]engine.Event, error) {
		return []engine.Event{{Type: engine.NodeDrained, Node: node, Undo: undo}}, nil
	})
}

// ErrNoNode is returned for a node that there is not.
var ErrNoNode = errors.New("no such node")

// History returns what happened to a job, in order.
func (m *Machine) History(ctx context.Context, id int) ([]show.Moment, error) {
	if _, err := m.Job(ctx, id); err != nil {
		return nil, err
	}
	rows, err := m.store.History(ctx, id)
	if err != nil {
		return nil, err
	}
	list := []show.Moment{}
	for _, r := range rows {
		list = append(list, show.Moment{At: time.Unix(0, r.At).UTC(), State: r.What, Text: r.Text})
	}
	return list, nil
}
