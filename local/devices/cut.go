//go:build linux

package devices

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/show"
)

// Partition is what a GPU was changed to.
type Partition struct {
	UUID         string
	MIG          bool
	Instances    []show.MIG
	before, made string // names of the instance that was made
}

// Rename replaces the name that an instance had before it was made.
func (p *Partition) Rename(text string) string {
	if p.before == "" {
		return text
	}
	return strings.ReplaceAll(text, p.before, p.made)
}

// Cut makes the instances among some devices that do not exist yet, and has GPUs be whole that are needed whole. inUse
// returns which instances others may be on, and done is called after each change.
func (g *GPUs) Cut(way cluster.MIGWay, devices []*show.Device, inUse func() func(uuid string) bool,
	done func(*Partition)) error {
	if way == cluster.StaticMIG {
		return nil
	}
	g.cutting.Lock()
	defer g.cutting.Unlock()
	for _, d := range devices {
		switch {
		case strings.HasPrefix(d.UUID, toBeMade):
			p, err := g.makeInstance(d, inUse())
			if err != nil {
				return err
			}
			done(p)
		case d.Parent == "" && way == cluster.DynamicMIG:
			if err := g.source.Whole(d.UUID, inUse()); err != nil {
				return fmt.Errorf("GPU %d is not whole: %w", d.Index, err)
			}
			done(&Partition{UUID: d.UUID})
		}
	}
	return nil
}

// makeInstance makes an instance, and gives it its name.
func (g *GPUs) makeInstance(d *show.Device, inUse func(uuid string) bool) (*Partition, error) {
	start := 0
	if _, err := fmt.Sscanf(d.UUID[strings.LastIndex(d.UUID, "/"):], "/%d", &start); err != nil {
		return nil, err
	}
	want := cluster.Instance{Profile: d.Profile, Start: start}
	list, err := g.source.Make(d.Parent, want, inUse)
	if err != nil {
		return nil, fmt.Errorf("GPU %d: %s at %d cannot be made: %w", d.Index, want.Profile, start, err)
	}
	p := &Partition{UUID: d.Parent, MIG: true, before: d.UUID}
	for _, in := range list {
		if in.Instance == want && p.made == "" {
			p.made = in.UUID
		}
		p.Instances = append(p.Instances, show.MIG{Profile: in.Profile, Start: in.Start, UUID: in.UUID})
	}
	if p.made == "" {
		return nil, fmt.Errorf("GPU %d: %s at %d was made and is not there", d.Index, want.Profile, start)
	}
	slices.SortFunc(p.Instances, func(a, b show.MIG) int { return a.Start - b.Start })
	d.UUID = p.made
	return p, nil
}

// Repartitioned notes what a GPU was changed to.
func (g *GPUs) Repartitioned(p *Partition) {
	for i := range g.List {
		if v := &g.List[i]; v.UUID == p.UUID {
			v.MIG, v.Instances = p.MIG, p.Instances
		}
	}
}
