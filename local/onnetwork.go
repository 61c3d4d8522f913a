//go:build linux

package local

import (
	"os"
	"strings"

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
	m.addCounted(list)
	return list
}

// addCounted adds to links what this machine's interface counted, if they are its own: those of the host of its name.
func (m *Machine) addCounted(list []show.Link) {
	m.traffic.mu.Lock()
	defer m.traffic.mu.Unlock()
	out, back, known := m.traffic.port.Rates()
	name, err := os.Hostname()
	if !known || err != nil {
		return
	}
	short, _, _ := strings.Cut(name, ".")
	for i := range list {
		l := &list[i]
		from, to, _ := strings.Cut(l.Name, ">")
		rate := out
		switch {
		case from == name || from == short:
		case to == name || to == short:
			rate = back
		default:
			continue
		}
		part := rate / float64(l.Rate)
		l.Counted = &part
	}
}
