package cluster

// Lender is a service that lends what it does not run: other jobs hold it until the service needs it.
type Lender struct {
	Service  string `json:"service"`           // as its replicas name it (Job.Service)
	Replica  *Job   `json:"replica"`           // what its next replica asks for
	Replicas int    `json:"replicas"`          // the most that it may have
	Servers  bool   `json:"servers,omitempty"` // it has whole servers back (Lyra)
}
