// Package traffic is what a machine does of how the network is to treat the traffic of its jobs (cluster.Treatment): a
// file tells a job when its iterations are to begin, and what it sends is marked (local/dscp).
package traffic

import (
	"strconv"

	"github.com/muster-gpu/muster/local/dscp"
)

// FileName is the file, in the folder of a run, that says how its traffic is treated now; FileVariable names it.
const (
	FileName     = "network.json"
	FileVariable = "MUSTER_NETWORK"
)

// Marks says what became of the marks of a run's tasks.
func Marks(marks []dscp.State) string {
	spaces := 0
	for _, s := range marks {
		if s.Err != nil {
			return "not applied: " + s.Err.Error()
		}
		spaces = max(spaces, s.Spaces)
	}
	switch {
	case len(marks) == 0:
		return "not applied yet"
	case spaces > 1:
		return "applied, in " + strconv.Itoa(spaces) + " network namespaces"
	}
	return "applied"
}
