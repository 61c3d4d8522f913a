package ask

import (
	"math"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// Traffic is what a job does in an iteration, as far as it is known before it runs.
type Traffic struct {
	Pattern string   `json:"pattern" enum:"ring,tree,hierarchical,all-to-all,pipeline,parameter-server" doc:"Which rank sends to which"`
	Bytes   int64    `json:"bytes,omitempty" minimum:"0" doc:"That each rank reduces, sends to all others, or hands to the next stage"`
	Compute Duration `json:"compute,omitempty" doc:"Computing time"`
	Overlap float64  `json:"overlap,omitempty" minimum:"0" maximum:"1" doc:"Part of the computing time during which it transmits already"`
	Hosts   []string `json:"hosts,omitempty" maxItems:"1024" doc:"Between which hosts of the network, one rank on each; those that it runs on if empty"`
}

// traffic reads what is stated of the job's traffic.
func (s *Submission) traffic(j *cluster.Job) (err error) {
	t := s.Traffic
	if t == nil {
		return nil
	}
	if j.Traffic.Pattern, err = cluster.ParsePattern(t.Pattern); err != nil {
		return bad("traffic.pattern", "%v", err)
	}
	if len(t.Hosts) > mostHosts {
		return bad("traffic.hosts", "%d hosts; at most %d are possible", len(t.Hosts), mostHosts)
	}
	j.Traffic.Bytes, j.Traffic.Compute, j.Hosts = t.Bytes, time.Duration(t.Compute), t.Hosts
	j.Traffic.Overlap = cluster.Milli(math.Round(max(-1, min(2, t.Overlap)) * float64(cluster.Whole)))
	if err := j.Traffic.Check(); err != nil {
		return bad("traffic", "%v", err)
	}
	return nil
}

const mostHosts = 1024
