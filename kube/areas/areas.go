// Package areas says among which nodes a gang is looked for places first: those of a topology domain that it is in
// already, or those that its pods like better than others; then among more, and at last anywhere.
package areas

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/kube/fit"
	"github.com/muster-gpu/muster/kube/gpus"
)

// Area is nodes among which a gang is looked for places.
type Area struct {
	label, value string // a domain
	level        cluster.Level
	required     bool            // there is nothing beyond it
	liked        map[string]bool // nodes by name; nil: it is a domain
}

// has reports whether a node is in the area.
func (a *Area) has(name string, world *fit.World) bool {
	if a.liked != nil {
		return a.liked[name]
	}
	v, ok := world.Domain(name, a.label)
	return ok && v == a.value
}

// Shared lists the topology domains that all of these nodes are in, the closest first; where a domain is required, only
// that.
func Shared(nodes []string, domains []gpus.Domain, t cluster.Topology, world *fit.World) (list []Area) {
	for _, domain := range domains {
		a := Area{label: domain.Label, level: domain.Level, required: t.Required}
		if t.Required && a.level != t.Level {
			continue
		}
		same := len(nodes) > 0
		for i, name := range nodes {
			v, ok := world.Domain(name, a.label)
			same = same && ok && (i == 0 || v == a.value)
			a.value = v
		}
		if same {
			list = append(list, a)
		}
	}
	return list
}

// mostLiked bounds how many sets of liked nodes a gang is tried on: each is a step of the engine.
const mostLiked = 3

// Liked lists the sets of nodes that are liked best, each with those before it; not the set of all.
func Liked(names []string, likes map[string]int64) (list []Area) {
	byLike := map[int64][]string{}
	for _, name := range names {
		byLike[likes[name]] = append(byLike[likes[name]], name)
	}
	levels := slices.SortedFunc(maps.Keys(byLike), func(a, b int64) int { return cmp.Compare(b, a) })
	liked := map[string]bool{}
	for _, level := range levels[:min(mostLiked, max(0, len(levels)-1))] {
		liked = maps.Clone(liked)
		for _, name := range byLike[level] {
			liked[name] = true
		}
		list = append(list, Area{liked: liked})
	}
	return list
}

// Search goes through areas, one after the other. The zero search is anywhere.
type Search struct {
	Asked int64 // the batch in which the engine was asked last

	areas []Area
	at    int         // len(areas): anywhere
	of    []types.UID // the pods for which it was said what they like
}

// In is a search through areas.
func In(list []Area) Search { return Search{areas: list} }

// Prefer begins with the areas that these pods like. What was tried in vain for the same pods is not tried again.
func (s *Search) Prefer(pods []types.UID, liked func() []Area) {
	if s.at == 0 || !slices.Equal(pods, s.of) {
		s.of, s.at, s.areas = pods, 0, liked()
	}
}

// IsNarrow reports whether the search is in an area that the gang need not be in: none leaves for that.
func (s *Search) IsNarrow() bool { return s.at < len(s.areas) && !s.areas[s.at].required }

// Widen goes on to the next area.
func (s *Search) Widen() { s.at++ }

// WidenAfter goes on to the next area, if the search is narrow and the engine found nothing in the batch in which it
// was asked.
func (s *Search) WidenAfter(batch int64) bool {
	if !s.IsNarrow() || batch < s.Asked {
		return false
	}
	s.Widen()
	return true
}

// Anywhere goes beyond all areas.
func (s *Search) Anywhere() { s.at = len(s.areas) }

// Confine adds to what nodes take of the gang that those outside the present area take nothing.
func (s *Search) Confine(l fit.Limits, order []string, world *fit.World) fit.Limits {
	if s.at >= len(s.areas) || l.Why != "" {
		return l
	}
	a := &s.areas[s.at]
	var outside []string
	for _, name := range order {
		if !a.has(name, world) {
			outside = append(outside, name)
		}
	}
	if len(outside) == 0 {
		return l
	}
	slices.Sort(outside)
	l.Nodes = append([]cluster.NodeLimit{{Nodes: outside}}, l.Nodes...)
	text := fmt.Sprintf("%d: outside the %s domain of its gang", len(outside), a.level)
	if a.liked != nil {
		text = fmt.Sprintf("%d: liked less than others", len(outside))
	}
	if l.Text != "" {
		text = l.Text + "; " + text
	}
	l.Text = text
	return l
}
