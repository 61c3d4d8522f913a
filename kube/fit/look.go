package fit

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
)

// Ask is what the world is asked: where pods may be that start together.
type Ask struct {
	Pods    []*Neighbour
	Nodes   []string // among these, in this order
	Binding bool     // they are about to be bound: none leaves for them any more
	Careful bool     // what the answer allowed came out wrong before: say exactly where
}

// Limits is what nodes take of pods that start together.
type Limits struct {
	Each  int // at most so many on a node; 0: any number
	Nodes []cluster.NodeLimit
	Text  string // what keeps them off some nodes, for people
	Why   string // what keeps them off every node for now; "": nothing
	// The pods that have what they need alone.
	Rivals []Rival
}

// ToldTo reports whether a job is told these limits already.
func (l *Limits) ToldTo(j *cluster.Job) bool {
	return j.PerNode == l.Each && slices.EqualFunc(j.NodeLimits, l.Nodes, func(a, b cluster.NodeLimit) bool {
		return a.Tasks == b.Tasks && slices.Equal(a.Nodes, b.Nodes)
	})
}

// Rival is a pod that has a volume claim which is for one pod.
type Rival struct {
	Claim string
	User  *Neighbour
}

// Text says so.
func (r *Rival) Text() string {
	return fmt.Sprintf("volume claim %s (ReadWriteOncePod) is in use by pod %s", r.Claim, r.User.Obj.Name)
}

// Look gathers limits.
type Look struct {
	*World
	Ask
	shut   map[string]string // nodes that take none: why
	groups []cluster.NodeLimit
	each   int
	why    string
	rivals []Rival
}

// Limits finds what nodes take of some pods at the moment.
func (w *World) Limits(ask Ask) Limits {
	l := &Look{World: w, Ask: ask, shut: map[string]string{}}
	for _, p := range ask.Pods {
		if l.why == "" {
			l.limit(p)
		}
	}
	if l.why != "" {
		return Limits{Why: l.why}
	}
	for _, f := range w.list {
		if j, ok := f.(Joint); ok {
			j.Together(l)
		}
	}
	return l.found()
}

func (l *Look) limit(p *Neighbour) {
	if p.Err != nil {
		l.why = p.Err.Error()
		return
	}
	for _, f := range l.list {
		f.Limit(l, p)
	}
}

// Never says that no node takes them for now; the first to say so is heard.
func (l *Look) Never(why string) { l.why = cmp.Or(l.why, why) }

// Shut closes a node.
func (l *Look) Shut(node, why string) { l.shut[node] = why }

// Open calls f for each node that is there and not closed.
func (l *Look) Open(f func(name string, n *v1.Node)) {
	for _, name := range l.Ask.Nodes {
		if n := l.Node(name); n != nil && l.shut[name] == "" {
			f(name, n)
		}
	}
}

// ShutIf closes the nodes of which f holds.
func (l *Look) ShutIf(why string, f func(n *v1.Node) bool) {
	l.Open(func(name string, n *v1.Node) {
		if f(n) {
			l.shut[name] = why
		}
	})
}

// Most bounds the pods on one node.
func (l *Look) Most(node string, n int64, why string) {
	switch {
	case n >= int64(len(l.Pods)):
	case n == 0:
		l.shut[node] = why
	default:
		l.Group([]string{node}, int(n))
	}
}

// Group bounds the pods on some nodes together.
func (l *Look) Group(nodes []string, most int) {
	l.groups = append(l.groups, cluster.NodeLimit{Nodes: nodes, Tasks: most})
}

// Apart has each of the pods be on a node of its own.
func (l *Look) Apart() { l.each = 1 }

// Contest says which pods have what they need alone.
func (l *Look) Contest(list ...Rival) { l.rivals = append(l.rivals, list...) }

// byDomain lists the nodes of each value of a label.
func (l *Look) byDomain(key string) map[string][]string {
	list := map[string][]string{}
	for _, name := range l.Ask.Nodes {
		if v, ok := l.Domain(name, key); ok {
			list[v] = append(list[v], name)
		}
	}
	return list
}

// found is the limits in an order that is always the same.
func (l *Look) found() Limits {
	got := Limits{Each: l.each, Rivals: l.rivals}
	known := map[string]bool{}
	for _, name := range l.Ask.Nodes {
		known[name] = true
	}
	unknown := func(name string) bool { return !known[name] }
	if shut := slices.DeleteFunc(slices.Sorted(maps.Keys(l.shut)), unknown); len(shut) > 0 {
		got.Nodes = append(got.Nodes, cluster.NodeLimit{Nodes: shut})
	}
	got.Text = l.text(known)
	slices.SortFunc(l.groups, func(a, b cluster.NodeLimit) int {
		return cmp.Or(strings.Compare(a.Nodes[0], b.Nodes[0]), cmp.Compare(len(a.Nodes), len(b.Nodes)),
			cmp.Compare(a.Tasks, b.Tasks))
	})
	got.Nodes = append(got.Nodes, l.groups...)
	return got
}

// text counts the nodes by what closes them.
func (l *Look) text(known map[string]bool) string {
	count := map[string]int{}
	for name, why := range l.shut {
		if known[name] {
			count[why]++
		}
	}
	var parts []string
	for _, why := range slices.Sorted(maps.Keys(count)) {
		parts = append(parts, fmt.Sprintf("%d: %s", count[why], why))
	}
	return strings.Join(parts, "; ")
}

// Verify says why so many of the pods cannot be on each of these nodes, by limits that were found just now; "": they
// can.
func (w *World) Verify(l *Limits, ask *Ask, on map[string]int) string {
	for name, n := range on {
		if l.Each > 0 && n > l.Each {
			return fmt.Sprintf("%d of its pods on node %s; %d may be", n, name, l.Each)
		}
	}
	for i := range l.Nodes {
		sum := 0
		for _, name := range l.Nodes[i].Nodes {
			sum += on[name]
		}
		if sum > l.Nodes[i].Tasks {
			return "another pod was bound there meanwhile"
		}
	}
	for _, f := range w.list {
		if v, ok := f.(Verifier); ok {
			if why := v.Verify(w, ask, on); why != "" {
				return why
			}
		}
	}
	return ""
}
