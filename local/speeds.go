//go:build linux

package local

import (
	"github.com/muster-gpu/muster/progress"
	"github.com/muster-gpu/muster/show"
)

// Speeds is what jobs' progress told of their speeds.
func (m *Machine) Speeds() show.Speeds {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return progress.Speeds(m.eng)
}
