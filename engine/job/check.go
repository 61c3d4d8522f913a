package job

import (
	"fmt"

	"github.com/muster-gpu/muster/cluster"
)

// CheckTasks describes what is wrong with the task sets of a job, on any cluster; "": nothing. A
// job that fails the check cannot be in a snapshot.
func CheckTasks(s *cluster.Job) string {
	if len(s.Tasks) == 0 {
		return "the job has no tasks"
	}
	total := 0
	for i := range s.Tasks {
		t := &s.Tasks[i]
		r := &t.Request
		switch {
		case t.Count < 1 || t.Count > cluster.MaxTasks:
			return fmt.Sprintf("task set %d: count %d; between 1 and %d are possible", i, t.Count, cluster.MaxTasks)
		case r.GPUs < 0 || r.GPUs > cluster.MaxGPUsPerNode:
			return fmt.Sprintf("task set %d: %d GPUs in a task; between 0 and %d are possible (a task runs on one node)", i, r.GPUs, cluster.MaxGPUsPerNode)
		case r.Share < 0 || r.Share > cluster.Whole:
			return fmt.Sprintf("task set %d: share %d; between 1 and 1000 thousandths of a GPU are possible", i,
				r.Share)
		case r.CPU < 0 || r.CPU > cluster.MaxMilli || r.RAM < 0 || r.RAM > cluster.MaxMiB || r.Memory < 0 ||
			r.Memory > cluster.MaxMiB:
			return fmt.Sprintf("task set %d: CPU, RAM or GPU memory is negative or absurdly large", i)
		case r.Profile != "" && (r.GPUs != 1 || r.Fractional()):
			return fmt.Sprintf("task set %d: a MIG profile goes with gpus=1 and no share", i)
		}
		total += t.Count
	}
	if err := s.Traffic.Check(); err != nil {
		return "traffic: " + err.Error()
	}
	if s.MinSpeed < 0 || s.MinSpeed > Million {
		return fmt.Sprintf("least speed %g; between 0 and 1 are possible", float64(s.MinSpeed)/Million)
	}
	if el := s.Elastic; el != (cluster.Elastic{}) && (el.Min < 1 || el.Max < el.Min || el.Max > cluster.MaxTasks) {
		return fmt.Sprintf("elastic %d..%d: need 1 <= min <= max", el.Min, el.Max)
	}
	if total > cluster.MaxTasks {
		return fmt.Sprintf("%d tasks; at most %d are possible", total, cluster.MaxTasks)
	}
	return ""
}
