//go:build linux

package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/local/gpu"
	"github.com/muster-gpu/muster/show"
	"github.com/muster-gpu/muster/store"
)

// healthEvery is how often the GPUs are looked at; the driver reports errors of
// its own at once.
const healthEvery = 2 * time.Second

// DescribeGPUs lists devices as the interface shows them.
func DescribeGPUs(devices []gpu.Device) (list []show.GPU) {
	for _, d := range devices {
		list = append(list, show.GPU{Index: d.Index, UUID: d.UUID, Model: d.Model, Memory: d.Memory,
			Simulated: d.Simulated,
			MIG:       d.MIG, Healthy: true})
		for _, in := range d.Instances {
			g := &list[len(list)-1]
			g.Instances = append(g.Instances, show.MIG{Profile: in.Profile, Start: in.Start, UUID: in.UUID})
		}
	}
	return list
}

// Geometry is the MIG instances of devices, as cluster.Node has it: they stay as
// they are.
func Geometry(gpus []show.GPU) string {
	list := make([][]cluster.Instance, len(gpus))
	for i, g := range gpus {
		if g.MIG {
			list[i] = []cluster.Instance{}
		}
		for _, in := range g.Instances {
			list[i] = append(list[i], cluster.Instance{Profile: in.Profile, Start: in.Start})
		}
	}
	return cluster.GeometryText(list)
}

// geometry is what the engine is told of the instances that there are.
func geometry(way cluster.MIGWay, gpus []show.GPU) string {
	if way == cluster.DynamicMIG {
		return ""
	}
	list := slices.Clone(gpus)
	for i := range list {
		if list[i].MIG && way == cluster.InstancesMIG {
			list[i].Instances = []show.MIG{{Profile: cluster.AsNeeded}}
		}
	}
	return Geometry(list)
}

// known keeps those of a GPU's instances that can be what they say.
func known(model *cluster.GPUModel, g *show.GPU) {
	all := g.Instances
	g.Instances = nil
	for _, in := range all {
		g.Instances = append(g.Instances, in)
		node := cluster.Node{GPUs: 1, MIG: Geometry([]show.GPU{*g})}
		if _, _, err := node.Geometry(model); err != nil {
			g.Instances = g.Instances[:len(g.Instances)-1]
		}
	}
}

// steady keeps every GPU at the place by which the engine knows it: the driver
// counts again when one is gone. While jobs hold devices, one that is gone keeps
// its place, as unhealthy, and new ones come last.
func (m *Machine) steady(ctx context.Context) error {
	var old []show.GPU
	text, err := m.store.Meta(ctx, "devices")
	switch {
	case errors.Is(err, store.ErrNotFound):
	case err != nil:
		return err
	default:
		if err := json.Unmarshal(text, &old); err != nil {
			return fmt.Errorf("the stored devices: %w", err)
		}
	}
	held, err := m.anyHeld(ctx)
	if err != nil {
		return err
	}
	if held {
		m.opt.GPUs = inOrder(old, m.opt.GPUs)
	}
	nodes := slices.Clone(m.opt.Rules.Spec.Nodes)
	if n := len(m.opt.GPUs); n != nodes[0].GPUs {
		nodes[0].GPUs = n
	}
	if model, ok := m.opt.Rules.Spec.Model(nodes[0].Model); ok {
		for i := range m.opt.GPUs {
			known(&model, &m.opt.GPUs[i])
		}
	}
	nodes[0].MIG = geometry(m.opt.Rules.Spec.MIG, m.opt.GPUs)
	m.opt.Rules.Spec.Nodes = nodes
	m.faults = make([]string, len(m.opt.GPUs))
	for i, g := range m.opt.GPUs {
		m.faults[i] = g.Fault
	}
	if text, err = json.Marshal(m.opt.GPUs); err != nil {
		return err
	}
	return m.store.Write(ctx, func(t *store.Tx) error { return t.PutMeta("devices", text) })
}

// anyHeld reports whether a job holds devices, or will want its own back.
func (m *Machine) anyHeld(ctx context.Context) (bool, error) {
	rows, err := m.store.Active(ctx)
	if err != nil {
		return false, err
	}
	for i := range rows {
		var info Info
		if err := json.Unmarshal(rows[i].Data, &info); err != nil {
			return false, fmt.Errorf("stored job %d: %w", rows[i].ID, err)
		}
		if len(info.Record.Allocs) > 0 || len(info.Record.Home) > 0 {
			return true, nil
		}
	}
	return false, nil
}

// inOrder lists the devices that there are in the order of an earlier list.
func inOrder(old, now []show.GPU) (list []show.GPU) {
	for _, o := range old {
		i := slices.IndexFunc(now, func(g show.GPU) bool { return g.UUID == o.UUID })
		if i >= 0 {
			list = append(list, now[i])
			continue
		}
		o.Healthy, o.Fault = false, "it is not there any more"
		list = append(list, o)
	}
	for _, g := range now {
		if !slices.ContainsFunc(old, func(o show.GPU) bool {
			return o.UUID == g.UUID
		}) && len(list) < cluster.MaxGPUsPerNode {
			list = append(list, g)
		}
	}
	return list
}

// watchHealth tells the engine which devices are unhealthy, until the daemon ends.
func (m *Machine) watchHealth() {
	defer m.runners.Done()
	place := m.places()
	for wait := time.Duration(0); m.running.Err() == nil; wait = healthEvery {
		found := m.opt.Devices.Health(m.running, wait)
		if m.running.Err() != nil {
			return
		}
		faults := make([]string, len(m.opt.GPUs))
		for i := range m.opt.GPUs {
			g := &m.opt.GPUs[i]
			switch {
			case g.Fault != "":
				faults[i] = g.Fault
			case m.opt.Rules.Spec.MIG == cluster.StaticMIG && g.MIG && len(g.Instances) == 0:
				faults[i] = "it is in MIG mode and has no instance that Muster knows (nvidia-smi mig -lgi; make some, or nvidia-smi -mig 0, and start the daemon again)"
			default:
				faults[i] = found[place[i]]
			}
		}
		m.inbox.Put(func(cluster.Time) ([]engine.Event, func(error)) { return m.healthEvents(faults), nil })
	}
}

// places maps the engine's devices to the source's; -1: there is none.
func (m *Machine) places() (list []int) {
	devices := m.opt.Devices.Devices()
	for _, g := range m.opt.GPUs {
		list = append(list, slices.IndexFunc(devices, func(d gpu.Device) bool { return d.UUID == g.UUID }))
	}
	return list
}

// healthEvents compares what was found with what the engine believes. It runs
// with the state locked.
func (m *Machine) healthEvents(faults []string) (events []engine.Event) {
	var mask uint64
	for i, f := range faults {
		if f != "" {
			mask |= 1 << i
		}
		if f != m.faults[i] {
			m.opt.Log.Warn("a GPU's health changed", "gpu", m.opt.GPUs[i].Index, "uuid", m.opt.GPUs[i].UUID, "fault", f)
		}
	}
	m.faults = faults
	n := m.eng.Nodes()[0]
	if bad := mask &^ n.Bad; bad != 0 {
		events = append(events, engine.Event{Type: engine.GPUBad, Node: n.Name, GPUs: bad})
	}
	if good := n.Bad &^ mask; good != 0 {
		events = append(events, engine.Event{Type: engine.GPUBad, Node: n.Name, GPUs: good, Undo: true})
	}
	return events
}

// lostText says which GPU of a job failed.
func (m *Machine) lostText(j *job) string {
	for i, g := range m.opt.GPUs {
		if f := m.faults[i]; f != "" &&
			slices.ContainsFunc(j.info.Devices, func(d show.Device) bool { return d.GPU() == g.UUID }) {
			return fmt.Sprintf("GPU %d failed: %s", g.Index, f)
		}
	}
	return "a GPU failed"
}
