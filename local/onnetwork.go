//go:build linux

package local

import (
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/driver"
	"github.com/muster-gpu/muster/show"
)

// addNetwork adds to a running job what it loses on the network, and to which others. It needs the state for itself.
func (m *Machine) addNetwork(v *show.Job) {
	v.Network = driver.OnNetwork(m.eng, cluster.JobID(v.ID), v.Network,
		func(id cluster.JobID) int { return int(id) })
}

// Links lists what the running jobs put on the links of the network, the busiest first.
func (m *Machine) Links() []show.Link {
	if m.opt.Rules.Spec.Network == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	list := driver.Links(m.eng)
	m.traffic.mu.Lock()
	defer m.traffic.mu.Unlock()
	m.traffic.port.Count(list, m.traffic.host)
	return list
}
