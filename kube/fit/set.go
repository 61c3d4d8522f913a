package fit

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// Set is the nodes on which all of some pods may run, kept up to date node by node. It is named after what it contains,
// so that all pods that the same nodes suit have one name.
type Set struct {
	Names []string // in the order of the nodes
	Name  string
	Off   string // the other nodes, counted by what keeps them off; "": there are none
	Why   string // ... in full if no node is left

	pods    []Pod   // one of each kind
	keptOff []int16 // by a node's number: 0: it suits, notThere, else a reason
	reasons []string
	changed bool // Names and the rest have yet to follow
}

// notThere stands for a node that is gone.
const notThere = -1

// NewSet is the nodes for some pods, none of which was looked at yet.
func NewSet(pods []Pod) *Set { return &Set{pods: pods, changed: true} }

// Len is how many nodes were looked at.
func (s *Set) Len() int { return len(s.keptOff) }

// Within is the set as a job names it; "": all nodes suit.
func (s *Set) Within() string {
	if s.Off == "" {
		return ""
	}
	return s.Name
}

// Wants reports whether one of the pods needs more of its GPUs than their name says.
func (s *Set) Wants() bool {
	return slices.ContainsFunc(s.pods, func(p Pod) bool { return p.Want.Any() })
}

// Judge looks whether the set contains a node now, by its number, which may be the next; nil: it is gone.
func (s *Set) Judge(list Nodes, i int, n *v1.Node) {
	if i == len(s.keptOff) {
		s.keptOff, s.changed = append(s.keptOff, notThere), true
	}
	is := int16(notThere)
	if n != nil {
		is = s.code(list.Unsuitable(s.pods, n))
	}
	if s.keptOff[i] != is {
		s.keptOff[i], s.changed = is, true
	}
}

// Unsuitable says why one of some pods may not be on a node; "": all may.
func (list Nodes) Unsuitable(pods []Pod, n *v1.Node) (why string) {
	for k := 0; k < len(pods) && why == ""; k++ {
		why = list.Suits(&pods[k], n)
	}
	return why
}

// code is the number of a reason.
func (s *Set) code(reason string) int16 {
	if reason == "" {
		return 0
	}
	i := slices.Index(s.reasons, reason)
	if i < 0 {
		i = len(s.reasons)
		s.reasons = append(s.reasons, reason)
	}
	return int16(i + 1)
}

// SumUp writes down what the set contains, if that changed, and reports whether it did.
func (s *Set) SumUp(order []string) bool {
	if !s.changed {
		return false
	}
	s.changed, s.Names, s.Why = false, nil, ""
	count, nodes := make([]int, len(s.reasons)), 0
	for i, code := range s.keptOff {
		if code == notThere {
			continue
		}
		nodes++
		if code == 0 {
			s.Names = append(s.Names, order[i])
		} else {
			count[code-1]++
		}
	}
	var parts []string
	for i, k := range count {
		if k > 0 {
			parts = append(parts, fmt.Sprintf("%d: %s", k, s.reasons[i]))
		}
	}
	slices.Sort(parts)
	s.Off, s.Name = strings.Join(parts, "; "), SetName(s.Names)
	if len(s.Names) == 0 {
		s.Why = fmt.Sprintf("none of %d nodes suits it (%s)", nodes, s.Off)
	}
	return true
}

// SetName is that of a set of nodes.
func SetName(names []string) string {
	h := sha256.New() // tenants choose sets: no two may be found that have one name
	for _, n := range names {
		_, _ = h.Write([]byte(n))
		_, _ = h.Write([]byte{0})
	}
	return fmt.Sprintf("nodes-%x", h.Sum(nil)[:16])
}
