//go:build linux

package local

import "github.com/muster-gpu/muster/show"

// Replicas lists the jobs that are replicas of services and are not over.
func (m *Machine) Replicas() (list []show.Job) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for _, j := range m.jobs {
		if j.Sub.Replica != nil && j.Stored() {
			list = append(list, m.view(j))
		}
	}
	return list
}
