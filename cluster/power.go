package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Power says when unused nodes of a partition are put to sleep, and woken: the knobs, with their
// units, of Helios' rule (package power).
type Power struct {
	Partition string        `json:"partition,omitempty"` // partition with nodes that may sleep; "": all nodes
	Except    []string      `json:"except,omitempty"`    // nodes that never sleep (Slurm's SuspendExcNodes)
	Every     time.Duration `json:"every"`               // period of the rule: a step
	Buffer    int           `json:"buffer"`              // nodes awake beyond those in use
	History   time.Duration `json:"history"`             // over which the mean of past use is taken
	Future    time.Duration `json:"future"`              // over which the mean of the forecast is taken
	// minimum by which use must be below its mean, in thousandths of a node
	Fell int64 `json:"fell"`
	// minimum by which the forecast must be below use, in thousandths of a node
	Falls int64         `json:"falls"`
	Least int           `json:"least"` // minimum number of nodes put to sleep at once
	Keep  time.Duration `json:"keep"`  // no node is put to sleep for this long after nodes woke
	// after this long with too many awake, the fall of use is no longer required; 0: always (Helios)
	Settled time.Duration `json:"settled,omitempty"`
	Wake    time.Duration `json:"wake"` // from wake-up until jobs can run
	Watts   Watts         `json:"watts,omitzero"`
}

// Watts is the power draw of a node.
type Watts struct {
	Asleep int64 `json:"asleep"`
	Idle   int64 `json:"idle"` // awake without jobs, or waking
	Busy   int64 `json:"busy"` // with all of its GPUs held; proportional in between
}

// DefaultPower is the rule with the knobs that Helios had on most of its clusters: a history of one
// hour, a future of three, thresholds of one node, two hours between a wake-up and the next
// shrinking (Helios, SC'21). The buffer, five to seven nodes there, is a twentieth of the nodes
// here.
func DefaultPower(nodes int) Power {
	return Power{Every: 10 * time.Minute, Buffer: max(1, (nodes+19)/20), History: time.Hour, Future: 3 * time.Hour,
		Fell: 1000, Falls: 1000,
		Least: 1, Keep: 2 * time.Hour, Settled: 2 * time.Hour, Wake: 5 * time.Minute}
}

// maxPowerSteps bounds the number of steps in a history or a future.
const maxPowerSteps = 10_000

// Check describes what is wrong with the knobs.
func (p *Power) Check() error {
	switch {
	case p.Every < time.Minute || p.Every > 24*time.Hour:
		return fmt.Errorf("every: %s; between 1m and 24h are possible", FormatDuration(p.Every))
	case p.Wake < time.Second || p.Wake > 24*time.Hour:
		return fmt.Errorf("resume_time: %s; between 1s and 24h are possible", FormatDuration(p.Wake))
	case p.Buffer < 0:
		return fmt.Errorf("buffer: %d nodes; 0 or more are possible", p.Buffer)
	case p.Least < 1:
		return fmt.Errorf("least: %d nodes; 1 or more are possible", p.Least)
	case p.History < p.Every || p.History > maxPowerSteps*p.Every:
		return fmt.Errorf("history: %s; between a step (every: %s) and %d of them are possible",
			FormatDuration(p.History), FormatDuration(p.Every), maxPowerSteps)
	case p.Future < p.Every || p.Future > maxPowerSteps*p.Every:
		return fmt.Errorf("future: %s; between a step (every: %s) and %d of them are possible",
			FormatDuration(p.Future), FormatDuration(p.Every), maxPowerSteps)
	case p.Keep < 0 || p.Settled < 0:
		return fmt.Errorf("keep and suspend_time are 0 or more")
	case p.Watts.Asleep < 0 || p.Watts.Idle < p.Watts.Asleep || p.Watts.Busy < p.Watts.Idle:
		return fmt.Errorf("watts: asleep %d, idle %d, busy %d; each is at least the one before, and none is below 0",
			p.Watts.Asleep, p.Watts.Idle, p.Watts.Busy)
	}
	return nil
}

// PowerNodes lists the nodes that may sleep, by index in Nodes, for each of the rules: no node may
// have two rules, and no lent node may have one (the loan determines whether those are there).
func (s *Spec) PowerNodes() ([][]int, error) {
	of := map[string]string{} // looked up, never iterated
	for i := range s.Loans {
		for _, name := range s.partitionNodes(s.Loans[i].Partition) {
			of[name] = "it is lent (loans)"
		}
	}
	var lists [][]int
	for i := range s.Power {
		p := &s.Power[i]
		fail := func(err error) ([][]int, error) { return nil, fmt.Errorf("power[%d]: %w", i, err) }
		if err := p.Check(); err != nil {
			return fail(err)
		}
		names, all := s.partitionNodes(p.Partition), []string(nil)
		if p.Partition != "" && names == nil {
			for k := range s.Partitions {
				all = append(all, s.Partitions[k].Name)
			}
			return fail(Unknown("partition", p.Partition, all))
		}
		for _, name := range p.Except {
			if !slices.Contains(names, name) {
				return fail(fmt.Errorf("suspend_exc_nodes: %s is not of %s", name, cmp.Or(p.Partition, "the cluster")))
			}
		}
		var list []int
		for k := range s.Nodes {
			name := s.Nodes[k].Name
			if !slices.Contains(names, name) || slices.Contains(p.Except, name) {
				continue
			}
			if why := of[name]; why != "" {
				return fail(fmt.Errorf("node %s cannot sleep: %s", name, why))
			}
			of[name] = fmt.Sprintf("it is of power[%d], too", i)
			list = append(list, k)
		}
		if len(list) == 0 {
			return fail(fmt.Errorf("no node of %s may sleep", cmp.Or(p.Partition, "the cluster")))
		}
		lists = append(lists, list)
	}
	return lists, nil
}

// partitionNodes lists the nodes of a partition; "": all.
func (s *Spec) partitionNodes(name string) (names []string) {
	if name == "" {
		for i := range s.Nodes {
			names = append(names, s.Nodes[i].Name)
		}
		return names
	}
	for i := range s.Partitions {
		if s.Partitions[i].Name == name {
			names = append(names, s.Partitions[i].Nodes...)
		}
	}
	return names
}
