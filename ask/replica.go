package ask

import "time"

// Replica marks a job as a replica of a service. The daemon sets it; it is refused in what users submit.
type Replica struct {
	Service    string `json:"service"`
	Variant    string `json:"variant"`
	Generation string `json:"generation" doc:"Fingerprint of what the replicas run"`
	Port       int    `json:"port" doc:"Where it answers, on 127.0.0.1"`

	Within time.Duration `json:"within_ns,omitempty" doc:"Jobs that make room for it have at most this time, however much their tier has"`
}

// Lender is the service of which a job is a replica, if that lends what it does not run; else "".
func (s *Submission) Lender() string {
	if s.Replica == nil || s.Replica.Within == 0 {
		return ""
	}
	return s.Replica.Service
}
