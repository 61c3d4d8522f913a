//go:build linux

package local

import (
	"github.com/muster-gpu/muster/local/rules"
)

// count counts a job that is not over.
func (j *job) count(t rules.Tally) {
	j.bare = int32(rules.BareTasks(j.Spec))
	t.Add(j.Info.User.Name, 1, int(j.bare))
}

// access says who may submit where, as the settings have it.
func (m *Machine) access() *rules.Access {
	o := &m.opt
	return &rules.Access{Queues: o.Rules.Spec.Queues, Members: o.Members, Defaults: o.DefaultQueues, Urgency: o.Urgency}
}
