//go:build linux

package local

import (
	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/progress"
)

// Speeds is what jobs' progress told of their speeds.
func (m *Machine) Speeds() api.Speeds {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return progress.Speeds(m.eng)
}
