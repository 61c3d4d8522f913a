package slurm

import (
	"slices"
	"strconv"
	"strings"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/ask"
)

// Variables are added to the environment of a task in addition to what was submitted.
func Variables(j *api.Job, task int) []string { return append(Env(*j), TaskEnv(task)...) }

// Env is added to the environment of a job in addition to what was submitted: the SLURM_* variables, as
// NAME=VALUE in a fixed order. The server sets the devices that CUDA sees.
func Env(j api.Job) []string {
	s := &j.Submission
	id, n, node := strconv.Itoa(j.ID), gpus(&j), j.Node
	var out []string
	add := func(name, value string) { out = append(out, name+"="+value) }
	for _, name := range []string{"SLURM_JOB_ID", "SLURM_JOBID"} {
		add(name, id)
	}
	add("SLURM_CLUSTER_NAME", "muster")
	add("SLURM_JOB_NAME", s.Name)
	add("SLURM_JOB_USER", j.User)
	add("SLURM_JOB_UID", idOf(j.User))
	_, gid := groupOf(j.User)
	add("SLURM_JOB_GID", gid)
	if len(s.Partitions) > 0 {
		add("SLURM_JOB_PARTITION", s.Partitions[0])
	}
	if s.Queue != "" {
		add("SLURM_JOB_ACCOUNT", s.Queue)
	}
	if s.Tier != "" {
		add("SLURM_JOB_QOS", s.Tier)
	}
	if s.Reservation != "" {
		add("SLURM_JOB_RESERVATION", s.Reservation)
	}
	for _, name := range []string{"SLURM_JOB_NODELIST", "SLURM_NODELIST", "SLURMD_NODENAME", "SLURM_TOPOLOGY_ADDR"} {
		add(name, node)
	}
	add("SLURM_TOPOLOGY_ADDR_PATTERN", "node")
	out = append(out, "SLURM_JOB_NUM_NODES=1", "SLURM_NNODES=1", "SLURM_NODEID=0", "SLURM_PROCID=0", "SLURM_LOCALID=0",
		"SLURM_GTIDS=0")
	tasks, perTask := taskLayout(&j)
	if !s.Once { // a job of muster's own; sbatch sets these itself, if they were asked for
		add("SLURM_NTASKS", strconv.Itoa(tasks))
		add("SLURM_NPROCS", strconv.Itoa(tasks))
		add("SLURM_CPUS_PER_TASK", strconv.Itoa(perTask))
	}
	add("SLURM_TASKS_PER_NODE", strconv.Itoa(tasks))
	if c := cpus(&j); c > 0 {
		add("SLURM_CPUS_ON_NODE", strconv.FormatInt(c, 10))
		add("SLURM_JOB_CPUS_PER_NODE", strconv.FormatInt(c, 10))
	}
	if _, given := lookupEnv(s.Env, "SLURM_MEM_PER_CPU"); memory(&j) > 0 && !given {
		add("SLURM_MEM_PER_NODE", strconv.FormatInt(memory(&j), 10))
	}
	if n > 0 {
		add("SLURM_GPUS_ON_NODE", strconv.Itoa(n))
		add("SLURM_JOB_GPUS", deviceList(&j))
	}
	if j.Started != nil {
		add("SLURM_JOB_START_TIME", strconv.FormatInt(j.Started.Unix(), 10))
		if limit(s) > 0 {
			add("SLURM_JOB_END_TIME", strconv.FormatInt(j.Started.Add(limit(s)).Unix(), 10))
		}
	}
	if j.Restarts > 0 {
		add("SLURM_RESTART_COUNT", strconv.Itoa(j.Restarts))
	}
	if s.Dir != "" {
		if _, given := lookupEnv(s.Env, "SLURM_SUBMIT_DIR"); !given {
			add("SLURM_SUBMIT_DIR", s.Dir)
		}
	}
	return append(out, arrayEnv(&j)...)
}

func arrayEnv(j *api.Job) []string {
	a, err := ask.ParseArray(j.Submission.Array)
	if j.Array == 0 || err != nil {
		return nil
	}
	return []string{
		"SLURM_ARRAY_JOB_ID=" + strconv.Itoa(j.Array),
		"SLURM_ARRAY_TASK_ID=" + strconv.Itoa(j.Index),
		"SLURM_ARRAY_TASK_COUNT=" + strconv.Itoa(len(a.Indices)),
		"SLURM_ARRAY_TASK_MIN=" + strconv.Itoa(a.Indices[0]),
		"SLURM_ARRAY_TASK_MAX=" + strconv.Itoa(a.Indices[len(a.Indices)-1]),
		"SLURM_ARRAY_TASK_STEP=" + strconv.Itoa(a.Step()),
	}
}

// TaskEnv is added for one task of a job that runs its command once per task; it comes after Env.
func TaskEnv(task int) []string {
	n := strconv.Itoa(task)
	return []string{"SLURM_PROCID=" + n, "SLURM_LOCALID=" + n}
}

// deviceList is a list such as 0,1,5, in the form of SLURM_JOB_GPUS.
func deviceList(j *api.Job) string {
	v := make([]int, len(j.Devices))
	for i, d := range j.Devices {
		v[i] = d.Index
	}
	slices.Sort(v)
	out := make([]string, len(v))
	for i, n := range v {
		out[i] = strconv.Itoa(n)
	}
	return strings.Join(out, ",")
}
