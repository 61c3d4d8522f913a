//go:build linux

package local

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/local/run"
	"github.com/muster-gpu/muster/show"
)

// toBeMade begins the UUID of an instance that does not exist yet.
const toBeMade = "MIG-to-be-made/"

// serveMIG makes the instances that a run needs, and has GPUs be whole that it needs
// whole.
func (r *runner) serveMIG(tasks []*run.Task) error {
	if r.m.opt.Rules.Spec.MIG == cluster.StaticMIG {
		return nil
	}
	r.m.cutting.Lock()
	defer r.m.cutting.Unlock()
	for _, t := range tasks {
		for i := range t.Devices {
			d := &t.Devices[i]
			switch {
			case strings.HasPrefix(d.UUID, toBeMade):
				if err := r.makeInstance(t, d); err != nil {
					return err
				}
			case d.Parent == "" && r.m.opt.Rules.Spec.MIG == cluster.DynamicMIG:
				if err := r.m.opt.Devices.Whole(d.UUID, r.inUse()); err != nil {
					return fmt.Errorf("GPU %d is not whole: %w", d.Index, err)
				}
				r.repartitioned(d.UUID, false, nil)
			}
		}
	}
	return nil
}

// makeInstance makes one, and tells the task its name.
func (r *runner) makeInstance(t *run.Task, d *show.Device) error {
	start := 0
	if _, err := fmt.Sscanf(d.UUID[strings.LastIndex(d.UUID, "/"):], "/%d", &start); err != nil {
		return err
	}
	want := cluster.Instance{Profile: d.Profile, Start: start}
	list, err := r.m.opt.Devices.Make(d.Parent, want, r.inUse())
	if err != nil {
		return fmt.Errorf("GPU %d: %s at %d cannot be made: %w", d.Index, want.Profile, start, err)
	}
	for _, in := range list {
		if in.Instance == want {
			for i := range t.Spec.Env {
				t.Spec.Env[i] = strings.ReplaceAll(t.Spec.Env[i], d.UUID, in.UUID)
			}
			d.UUID = in.UUID
			var all []show.MIG
			for _, in := range list {
				all = append(all, show.MIG{Profile: in.Profile, Start: in.Start, UUID: in.UUID})
			}
			slices.SortFunc(all, func(a, b show.MIG) int { return a.Start - b.Start })
			r.repartitioned(d.Parent, true, all)
			return nil
		}
	}
	return fmt.Errorf("GPU %d: %s at %d was made and is not there", d.Index, want.Profile, start)
}

// inUse reports which instances another job's tasks may be on.
func (r *runner) inUse() func(uuid string) bool {
	r.m.mu.RLock()
	defer r.m.mu.RUnlock()
	var held []string
	for id, j := range r.m.jobs {
		if id == r.ID || j.run == nil {
			continue
		}
		for i := range j.info.Devices {
			held = append(held, j.info.Devices[i].UUID)
		}
	}
	return func(uuid string) bool { return slices.Contains(held, uuid) }
}

// repartitioned books what a GPU's instances are now, and which of them the job has.
func (r *runner) repartitioned(uuid string, mig bool, list []show.MIG) {
	r.m.inbox.Put(func(cluster.Time) ([]engine.Event, func(error)) {
		for i := range r.m.opt.GPUs {
			if g := &r.m.opt.GPUs[i]; g.UUID == uuid {
				g.MIG, g.Instances = mig, list
			}
		}
		if r.job.run != r {
			return nil, nil
		}
		info := r.job.own()
		info.Devices = r.m.devices(info.On)
		return []engine.Event{{Type: engine.Progress, Job: r.ID}}, nil // so that it is stored
	})
}
