package shape

import "github.com/muster-gpu/muster/engine/inventory"

// Closed is the nodes that jobs leave to others which are before them and wait: those of some classes, and of others
// those that blocked jobs which name sets of nodes reach.
type Closed struct {
	Any     bool // a job is blocked, so none that comes after it passes it
	Classes inventory.ClassSet
	Nodes   NodeBits
}

// Clear opens all nodes again.
func (c *Closed) Clear() { c.Any, c.Classes, c.Nodes = false, inventory.ClassSet{}, c.Nodes[:0] }

// Close closes the nodes of a blocked shape to all that come after it; all: no class is open any more.
func (c *Closed) Close(st *inventory.Store, s *Shape) (all bool) {
	c.Any = true
	if s.Most.Within != nil {
		for _, id := range s.Most.Within.Nodes {
			if s.Any.Has(st.Nodes()[id].Class()) {
				c.Nodes.Add(id)
			}
		}
		return false
	}
	c.Classes.Union(&s.Any)
	for ci := range st.Classes() {
		if !c.Classes.Has(int32(ci)) {
			return false
		}
	}
	return true
}

// Shuts reports whether all nodes on which a shape's jobs could run are closed.
func (c *Closed) Shuts(st *inventory.Store, s *Shape) bool {
	if !c.Any {
		return false
	}
	if s.Shut(&c.Classes) {
		return true
	}
	set := s.Most.Within
	if set == nil || len(c.Nodes) == 0 {
		return false
	}
	for _, id := range set.Nodes {
		class := st.Nodes()[id].Class()
		if s.Any.Has(class) && !c.Nodes.Has(id) && !c.Classes.Has(class) {
			return false
		}
	}
	return true
}
