package config

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// powerFile is a power block of a cluster file or, with selector, of the configuration of muster kube.
type powerFile struct {
	Partition string    `yaml:"partition"`
	Buffer    *int      `yaml:"buffer"`
	Every     *Duration `yaml:"every"`
	History   *Duration `yaml:"history"`
	Future    *Duration `yaml:"future"`
	Fell      *float64  `yaml:"fell"`
	Falls     *float64  `yaml:"falls"`
	Least     *int      `yaml:"least"`
	Keep      *Duration `yaml:"keep"`
	Settled   *Duration `yaml:"suspend_time"`
	Except    string    `yaml:"suspend_exc_nodes"`
	Wake      *Duration `yaml:"resume_time"`
	Watts     wattsFile `yaml:"watts"`
}

type wattsFile struct {
	Asleep int64 `yaml:"asleep"`
	Idle   int64 `yaml:"idle"`
	Busy   int64 `yaml:"busy"`
}

// rule fills in the defaults, for this many nodes.
func (f *powerFile) rule(nodes int) (cluster.Power, error) {
	p := cluster.DefaultPower(nodes)
	p.Partition, p.Watts = f.Partition, cluster.Watts(f.Watts)
	for _, v := range []struct {
		from *Duration
		to   *time.Duration
	}{{f.Every, &p.Every}, {f.History, &p.History}, {f.Future, &p.Future}, {f.Keep, &p.Keep}, {f.Settled, &p.Settled},
		{f.Wake, &p.Wake}} {
		if v.from != nil {
			*v.to = time.Duration(*v.from)
		}
	}
	for _, v := range []struct{ from, to *int }{{f.Buffer, &p.Buffer}, {f.Least, &p.Least}} {
		if v.from != nil {
			*v.to = *v.from
		}
	}
	for _, v := range []struct {
		name string
		from *float64
		to   *int64
	}{{"fell", f.Fell, &p.Fell}, {"falls", f.Falls, &p.Falls}} {
		if v.from == nil {
			continue
		}
		if math.IsNaN(*v.from) || math.Abs(*v.from) > 1e6 {
			return p, fmt.Errorf("%s: %g is not a number of nodes", v.name, *v.from)
		}
		*v.to = int64(math.Round(*v.from * 1000))
	}
	except, err := Expand(f.Except)
	if err != nil {
		return p, fmt.Errorf("suspend_exc_nodes: %w", err)
	}
	p.Except = except
	return p, p.Check()
}

// addPower reads which nodes may sleep.
func (f *clusterFile) addPower(s *cluster.Spec) error {
	for i := range f.Power {
		nodes := len(s.Nodes)
		for _, p := range s.Partitions {
			if p.Name == f.Power[i].Partition {
				nodes = len(p.Nodes)
			}
		}
		p, err := f.Power[i].rule(nodes)
		if err != nil {
			return fmt.Errorf("power[%d]: %w", i, err)
		}
		s.Power = append(s.Power, p)
	}
	_, err := s.PowerNodes()
	return err
}

// errOnePower is the error of a configuration of one machine.
var errOnePower = errors.New("one machine cannot sleep while it schedules; muster sim has power in the cluster file, muster kube in its configuration")
