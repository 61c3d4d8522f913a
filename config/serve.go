package config

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/place"
	"github.com/muster-gpu/muster/policy"
)

// People names users and groups of a machine.
type People struct {
	Users  []string `yaml:"users"`
	Groups []string `yaml:"groups"`
}

// Serve is the configuration of muster serve. What is empty has its default.
type Serve struct {
	Policy, Placer, Backfill         string
	MinRuntime, Starvation, KillWait time.Duration
	Stop                             [3]engine.StopRule
	Queues                           []cluster.Queue
	Members                          map[string]People // by queue: who may submit there
	Operators, Admins                People
}

type serveFile struct {
	Policy     string              `yaml:"policy"`
	Place      string              `yaml:"place"`
	Backfill   string              `yaml:"backfill"`
	MinRuntime Duration            `yaml:"min_runtime"`
	Starvation Duration            `yaml:"starvation"`
	KillWait   Duration            `yaml:"kill_wait"`
	Stop       map[string]stopFile `yaml:"stop"`
	Queues     []queueFile         `yaml:"queues"`
	Members    map[string]People   `yaml:"members"`
	Operators  People              `yaml:"operators"`
	Admins     People              `yaml:"admins"`
}

type stopFile struct {
	How   string    `yaml:"how"`
	Grace *Duration `yaml:"grace"`
}

// ReadServe reads the configuration of muster serve; name stands in errors.
func ReadServe(name string, r io.Reader) (*Serve, error) {
	data, err := io.ReadAll(io.LimitReader(r, 16<<20))
	if err != nil {
		return nil, err
	}
	var f serveFile
	if err := decode(name, data, &f); err != nil {
		return nil, err
	}
	c, err := f.serve()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return c, nil
}

func (f *serveFile) serve() (*Serve, error) {
	c := &Serve{Policy: f.Policy, Placer: f.Place, Backfill: f.Backfill, MinRuntime: time.Duration(f.MinRuntime), Starvation: time.Duration(f.Starvation),
		KillWait: time.Duration(f.KillWait), Stop: engine.DefaultStop, Members: f.Members, Operators: f.Operators, Admins: f.Admins}
	if c.Policy != "" {
		if _, err := policy.New(c.Policy); err != nil {
			return nil, fmt.Errorf("policy: %w", err)
		}
	}
	if c.Placer != "" {
		if _, err := place.New(c.Placer); err != nil {
			return nil, fmt.Errorf("place: %w", err)
		}
	}
	if c.Backfill != "" {
		if _, err := engine.ParseBackfill(c.Backfill); err != nil {
			return nil, fmt.Errorf("backfill: %w", err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.Stop)) {
		tier, err := cluster.ParseTier(name)
		if err != nil {
			return nil, fmt.Errorf("stop: %w", err)
		}
		rule, s := &c.Stop[tier], f.Stop[name]
		if s.How != "" {
			if rule.How, err = engine.ParseHow(s.How); err != nil {
				return nil, fmt.Errorf("stop: %s: how: %w", name, err)
			}
		}
		if s.Grace != nil {
			rule.Grace = time.Duration(*s.Grace)
		}
	}
	var spec cluster.Spec
	if err := addQueues(&spec, f.Queues, ""); err != nil {
		return nil, err
	}
	c.Queues = spec.Queues
	var names []string
	for i := range c.Queues {
		names = append(names, c.Queues[i].Name)
	}
	for _, q := range slices.Sorted(maps.Keys(f.Members)) {
		if !slices.Contains(names, q) {
			return nil, fmt.Errorf("members: %w", cluster.Unknown("queue", q, names))
		}
	}
	return c, nil
}
