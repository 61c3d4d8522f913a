package cluster

import "fmt"

// Loan is a partition of lent nodes of which the lender wants some back in certain hours of the
// week: no job runs on those then.
type Loan struct {
	Partition string `json:"partition"`
	Back      []Back `json:"back"`
	Clock     Weekly `json:"clock"` // the zone whose clock counts, without hours
}

// Back is the number of nodes that are given back in some hours.
type Back struct {
	Hours
	Nodes int `json:"nodes"`
}

// Wanted is the number of nodes to be given back at an instant, in Unix seconds: the maximum over
// all hours that contain it.
func (l *Loan) Wanted(unix int64) (nodes int) {
	wall, _, _ := l.Clock.local(unix)
	for i := range l.Back {
		if b := &l.Back[i]; b.Open(wall) {
			nodes = max(nodes, b.Nodes)
		}
	}
	return nodes
}

// Next is the first instant after unix at which Wanted may change; both in Unix seconds.
func (l *Loan) Next(unix int64) int64 {
	wall, set, changes := l.Clock.local(unix)
	weekday, tod := Calendar(wall)
	next := wall + 8*daySeconds
	for day := int64(-1); day <= 8; day++ {
		midnight := wall - tod + day*daySeconds
		for i := range l.Back {
			b := &l.Back[i]
			if !b.Begins((weekday + int(day) + 7) % 7) {
				continue
			}
			from, to := b.Bounds()
			for _, edge := range [2]int64{midnight + from, midnight + to} {
				if edge > wall {
					next = min(next, edge)
				}
			}
		}
	}
	if next += unix - wall; changes && set < next {
		return set // the clock changes then
	}
	return next
}

// Says formats, for people, the time until which at least nodes nodes are given back at an instant
// (Unix seconds); "": fewer are.
func (l *Loan) Says(unix int64, nodes int) string {
	w := l.Clock
	for i := range l.Back {
		if b := &l.Back[i]; b.Nodes >= nodes {
			w.Hours = append(w.Hours, b.Hours)
		}
	}
	return w.until(unix)
}

// Check describes what is wrong with a loan of a number of nodes.
func (l *Loan) Check(nodes int) error {
	if len(l.Back) == 0 {
		return fmt.Errorf("%s: back: says when how many nodes are given back, such as {\"mon-fri 08:00-20:00\": 2}",
			l.Partition)
	}
	for i := range l.Back {
		if n := l.Back[i].Nodes; n < 1 || n > nodes {
			return fmt.Errorf("%s: back: %d nodes; the partition has %d, between 1 and as many can be given back",
				l.Partition, n, nodes)
		}
	}
	return nil
}
