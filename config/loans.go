package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/muster-gpu/muster/cluster"
)

type loanFile struct {
	Partition string         `yaml:"partition"`
	Back      map[string]int `yaml:"back"` // nodes that are given back, by times of the week
	Zone      string         `yaml:"zone"`
}

// addLoans reads the nodes that are lent. Hours are on the clock of the loan's zone, else of the file's
// timezone, else UTC: a replay is the same on every machine.
func (f *clusterFile) addLoans(s *cluster.Spec) error {
	for i, l := range f.Loans {
		fail := func(err error) error { return fmt.Errorf("loans[%d]: %w", i, err) }
		if l.Partition == "" {
			return fail(errors.New("partition: which nodes are lent?"))
		}
		out, err := l.loan(f.Timezone)
		if err != nil {
			return fail(err)
		}
		s.Loans = append(s.Loans, out)
	}
	return nil
}

func (l *loanFile) loan(timezone string) (cluster.Loan, error) {
	out := cluster.Loan{Partition: l.Partition}
	clock, err := ParseZone(cmp.Or(l.Zone, timezone, "UTC"))
	if err != nil {
		return out, fmt.Errorf("zone: %w", err)
	}
	out.Clock = *clock
	for _, text := range slices.Sorted(maps.Keys(l.Back)) {
		h, err := parseHours(text)
		if err != nil {
			return out, fmt.Errorf("back: %w", err)
		}
		out.Back = append(out.Back, cluster.Back{Hours: h, Nodes: l.Back[text]})
	}
	return out, nil
}

// KubeLoan is a set of lent nodes of a Kubernetes cluster: those with all of these labels.
type KubeLoan struct {
	Loan     cluster.Loan // its partition is the selector as text
	Selector map[string]string
}

type kubeLoanFile struct {
	loanFile `yaml:",inline"`
	Selector map[string]string `yaml:"selector"`
}

// loans reads the nodes that are lent.
func (f *kubeFile) loans() (list []KubeLoan, err error) {
	for i := range f.Loans {
		l := &f.Loans[i]
		fail := func(err error) ([]KubeLoan, error) { return nil, fmt.Errorf("%d: %w", i, err) }
		switch {
		case l.Partition != "":
			return fail(errors.New("partition: on Kubernetes nodes are chosen by their labels: selector: {pool: lent}"))
		case len(l.Selector) == 0:
			return fail(errors.New("selector: which nodes are lent? Name a label that they have, such as {pool: lent}"))
		}
		out, err := l.loan(f.Timezone)
		if err != nil {
			return fail(err)
		}
		out.Partition = selectorText(l.Selector)
		for k := range out.Back {
			if n := out.Back[k].Nodes; n < 1 {
				return fail(fmt.Errorf("back: %d nodes; 1 or more are possible", n))
			}
		}
		if err := out.Check(math.MaxInt32); err != nil {
			return fail(err)
		}
		for k := range list {
			if err := apart(l.Selector, list[k].Selector, k); err != nil {
				return fail(err)
			}
		}
		list = append(list, KubeLoan{out, l.Selector})
	}
	return list, nil
}

// selectorText formats labels as one line.
func selectorText(labels map[string]string) string {
	var list []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		list = append(list, k+"="+labels[k])
	}
	return strings.Join(list, ",")
}

// text formats the loan as one line.
func (l *KubeLoan) text() string {
	var w words
	w.add("selector", l.Loan.Partition)
	for i := range l.Loan.Back {
		at := l.Loan.Clock
		at.Hours = []cluster.Hours{l.Loan.Back[i].Hours}
		w.add("back", fmt.Sprintf("%d %s", l.Loan.Back[i].Nodes, weeklyText(&at)))
	}
	return w.text()
}
