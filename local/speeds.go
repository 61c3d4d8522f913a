//go:build linux

package local

import (
	"github.com/muster-gpu/muster/progress"
	"github.com/muster-gpu/muster/show"
)

// Speeds are the speeds of jobs as measured by their progress.
func (m *Machine) Speeds() show.Speeds {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return progress.Speeds(m.eng)
}
