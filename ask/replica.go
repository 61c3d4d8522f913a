package ask

import (
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// Replica marks a job as a replica of a service. The daemon sets it; it is refused in what users submit.
type Replica struct {
	Service    string `json:"service"`
	Variant    string `json:"variant"`
	Generation string `json:"generation" doc:"Fingerprint of what the replicas run"`
	Port       int    `json:"port" doc:"Where it answers, on 127.0.0.1"`

	Replace  time.Duration `json:"replace_ns,omitempty" doc:"Within which another comes in its place when it is to be moved"`
	Replaces int           `json:"replaces,omitempty" doc:"The replica in whose place it comes"`
	Within   time.Duration `json:"within_ns,omitempty" doc:"Jobs that make room for it have at most this time, however much their tier has"`
}

// place is within what time another job comes in the place of one that is moved, and in whose place a job comes; 0:
// none does.
func (s *Submission) place() (within time.Duration, of cluster.JobID) {
	if s.Replica == nil {
		return 0, 0
	}
	return s.Replica.Replace, cluster.JobID(s.Replica.Replaces)
}

// Lender is the service of which a job is a replica, if that lends what it does not run; else "".
func (s *Submission) Lender() string {
	if s.Replica == nil || s.Replica.Within == 0 {
		return ""
	}
	return s.Replica.Service
}
