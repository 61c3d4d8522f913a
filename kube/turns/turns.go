// Package turns lets those go one after the other that are in each other's way: where one goes decides where the next
// may.
package turns

import "slices"

// Turns is whose turn it is, by what those have in common that are in each other's way.
type Turns[G comparable] struct{ by map[string]*turn[G] }

type turn[G comparable] struct {
	taken  bool
	now    G   // if it is taken
	behind []G // by age
}

// Take gives g the turn, if it is free or its own; else g stands behind, and wait is whose turn it is.
func (t *Turns[G]) Take(key string, g G) (wait G, taken bool) {
	if t.by == nil {
		t.by = map[string]*turn[G]{}
	}
	at := t.by[key]
	if at == nil {
		at = &turn[G]{}
		t.by[key] = at
	}
	if !at.taken || at.now == g {
		at.now, at.taken = g, true
		return wait, true
	}
	if !slices.Contains(at.behind, g) {
		at.behind = append(at.behind, g)
	}
	return at.now, false
}

// Has reports whether it is the turn of g.
func (t *Turns[G]) Has(key string, g G) bool {
	at := t.by[key]
	return at != nil && at.taken && at.now == g
}

// End frees the turn, and returns the first behind that still waits, which may take it; false: there is none.
func (t *Turns[G]) End(key string, waits func(G) bool) (next G, ok bool) {
	at := t.by[key]
	var none G
	at.now, at.taken = none, false
	for len(at.behind) > 0 {
		next = at.behind[0]
		at.behind = at.behind[1:]
		if waits(next) {
			return next, true
		}
	}
	delete(t.by, key)
	return none, false
}
