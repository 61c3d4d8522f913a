package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/muster-gpu/muster/cluster"
)

type loanFile struct {
	Partition string         `yaml:"partition"`
	Back      map[string]int `yaml:"back"` // nodes that are given back in times of the week
	Zone      string         `yaml:"zone"`
}

// addLoans reads the nodes that are lent; hours are by the clock of the file's timezone where
// a loan names no zone, else UTC: a replay is the same on every machine.
func (f *clusterFile) addLoans(s *cluster.Spec) error {
	for i, l := range f.Loans {
		fail := func(err error) error { return fmt.Errorf("loans[%d]: %w", i, err) }
		if l.Partition == "" {
			return fail(errors.New("partition: whose nodes are lent?"))
		}
		clock, err := ParseZone(cmp.Or(l.Zone, f.Timezone, "UTC"))
		if err != nil {
			return fail(fmt.Errorf("zone: %w", err))
		}
		out := cluster.Loan{Partition: l.Partition, Clock: *clock}
		for _, text := range slices.Sorted(maps.Keys(l.Back)) {
			h, err := parseHours(text)
			if err != nil {
				return fail(fmt.Errorf("back: %w", err))
			}
			out.Back = append(out.Back, cluster.Back{Hours: h, Nodes: l.Back[text]})
		}
		s.Loans = append(s.Loans, out)
	}
	return nil
}
