package engine

// Placer answers "where?". It binds tasks with Site.Take until all are bound,
// or returns false; the engine undoes what was taken in vain.
type Placer interface {
	Name() string
	Place(s *Site) bool
}
