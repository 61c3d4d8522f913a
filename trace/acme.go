package trace

import (
	"strings"

	"github.com/muster-gpu/muster/cluster"
)

// acmeFormat is trace_seren.csv and trace_kalos.csv of Shanghai AI Lab's Acme
// (AcmeTrace). Kalos has more columns than Seren; we use what both have. The
// published column duration includes the waiting time in places, so the run
// time is end_time - start_time.
var acmeFormat = Format{
	Name:   "acme",
	About:  "Acme: job_id,user,node_num,gpu_num,cpu_num,...,type,state,submit_time,start_time,end_time,...",
	Detect: columns(',', "job_id", "user", "gpu_num", "type", "state", "submit_time", "start_time", "end_time"),
	Read:   readAcme,
}

func readAcme(b *Builder) error {
	t, err := b.table(',', "job_id", "user", "gpu_num", "type", "state", "submit_time", "start_time", "end_time")
	if err != nil {
		return err
	}
	b.calendar = true
	id, user, gpus, cpus := t.col("job_id"), t.col("user"), t.col("gpu_num"), t.col("cpu_num")
	kind, state, submit := t.col("type"), t.col("state"), t.col("submit_time")
	start, end, mem, nodes := t.col("start_time"), t.col("end_time"), t.col("mem_per_pod_gb"), t.col("node_num")
	var left unusable
	err = t.each(func(e *Entry) bool {
		if !left.ran(t, e, state, start, end) {
			return false
		}
		e.Job.Name, e.Job.User, e.Job.Tier = t.str(id), t.str(user), cluster.Standard
		e.Job.Kind, e.Job.Queue = acmeKind(t.str(kind)), t.str(kind)
		e.Job.Submit = t.stamp(submit)
		e.Run = t.between(start, end)
		var ram float64 // MiB of the whole job
		if mem >= 0 && !t.missing(mem) {
			ram = t.real(mem, 0, 1<<20) * 1024 * float64(max(1, t.num(nodes, 0, cluster.MaxTasks)))
		}
		b.gang(e, int(t.num(gpus, 0, cluster.MaxTasks)), 1000*t.num(cpus, 0, 1<<30),
			cluster.MiB(min(ram, float64(cluster.MaxMiB))))
		return true
	})
	left.note(b)
	return err
}

// acmeKind translates the workload type; evaluation is batch inference.
func acmeKind(s string) cluster.Kind {
	switch strings.ToLower(s) {
	case "eval", "evaluation":
		return cluster.Batch
	case "debug", "notebook":
		return cluster.Interactive
	}
	return cluster.Training
}
