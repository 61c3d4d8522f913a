package slurm

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/muster-gpu/muster/api"
)

// The JSON that --json prints has Slurm's structure and names (its version 0.0.38), with the fields that have a
// meaning here.

type jsonJob struct {
	Account     string  `json:"account"`
	Array       int     `json:"array_job_id"`
	Index       *int    `json:"array_task_id"`
	IndexText   string  `json:"array_task_string"`
	BatchHost   string  `json:"batch_host"`
	Command     string  `json:"command"`
	Comment     string  `json:"comment"`
	WorkDir     string  `json:"current_working_directory"`
	CPUs        int64   `json:"cpus"`
	Deadline    int64   `json:"deadline"`
	Dependency  string  `json:"dependency"`
	Eligible    int64   `json:"eligible_time"`
	End         int64   `json:"end_time"`
	ExitCode    int     `json:"exit_code"`
	Features    string  `json:"features"`
	ID          int     `json:"job_id"`
	State       string  `json:"job_state"`
	Name        string  `json:"name"`
	Nodes       string  `json:"nodes"`
	NodeCount   int     `json:"node_count"`
	Nice        int64   `json:"nice"`
	Partition   string  `json:"partition"`
	Memory      int64   `json:"memory_per_node"`
	Priority    int64   `json:"priority"`
	QOS         string  `json:"qos"`
	Requeue     bool    `json:"requeue"`
	Restarts    int     `json:"restart_cnt"`
	Reservation string  `json:"resv_name"`
	Start       int64   `json:"start_time"`
	Reason      string  `json:"state_reason"`
	Description string  `json:"state_description"`
	StdErr      string  `json:"standard_error"`
	StdIn       string  `json:"standard_input"`
	StdOut      string  `json:"standard_output"`
	Submit      int64   `json:"submit_time"`
	Limit       int64   `json:"time_limit"`
	TresReq     string  `json:"tres_req_str"`
	TresPerNode string  `json:"tres_per_node"`
	User        string  `json:"user_name"`
	GPUHours    float64 `json:"muster_gpu_hours"`
	Devices     []int   `json:"muster_devices"`
}

func unix(t *time.Time) int64 {
	if t == nil || t.IsZero() {
		return 0
	}
	return t.Unix()
}

func jobsJSON(v *view, rows []row) any {
	out := []jsonJob{}
	for _, r := range rows {
		j := r.Job
		x := jsonJob{Account: j.Submission.Queue, Array: j.Array, BatchHost: nodeOf(r), Command: commandText(j),
			Comment: j.Submission.Comment,
			WorkDir: j.Submission.Dir, CPUs: cpus(j), Deadline: unix(j.Submission.Deadline),
			Dependency: strings.TrimPrefix(dependencyText(j), "(null)"),
			Eligible:   unix(j.Eligible), End: unix(endOf(j)), ExitCode: j.ExitCode,
			Features: strings.Join(j.Submission.GPUTypes, "|"), ID: j.ID,
			State: stateOf(j).name, Name: j.Submission.Name, Nodes: nodeOf(r), NodeCount: 1, Nice: nice(j),
			Partition: v.partitionText(j),
			Memory:    memory(j), Priority: priority(j), QOS: j.Submission.Tier, Requeue: !j.Submission.NoRequeue,
			Restarts:    j.Restarts,
			Reservation: j.Submission.Reservation, Start: unix(j.Started), Reason: reason(j), Description: j.Reason,
			StdErr: j.StdErr,
			StdIn:  j.Submission.Input, StdOut: j.StdOut, Submit: unix(&j.Submitted),
			Limit:   int64(limit(&j.Submission) / time.Minute),
			TresReq: tresText(j), TresPerNode: strings.TrimPrefix(gresText(j), "N/A"), User: j.User,
			GPUHours: j.GPUHours, Devices: []int{}}
		if j.State == api.StatePending {
			x.Start = unix(expectedStart(j))
		}
		switch {
		case r.indices != nil:
			x.IndexText = r.indexText()
		case j.Array != 0:
			x.Index = &j.Index
		}
		for _, d := range j.Devices {
			x.Devices = append(x.Devices, d.Index)
		}
		out = append(out, x)
	}
	return out
}

type jsonNode struct {
	Name       string   `json:"name"`
	Host       string   `json:"hostname"`
	State      string   `json:"state"`
	Partitions []string `json:"partitions"`
	CPUs       int64    `json:"cpus"`
	AllocCPUs  int64    `json:"alloc_cpus"`
	IdleCPUs   int64    `json:"idle_cpus"`
	Memory     int64    `json:"real_memory"`
	AllocMem   int64    `json:"alloc_memory"`
	Gres       string   `json:"gres"`
	GresUsed   string   `json:"gres_used"`
	Reason     string   `json:"reason"`
}

func nodesJSON(v *view) any {
	out := []jsonNode{}
	for _, n := range v.nodes {
		d := v.describe(n)
		x := jsonNode{Name: n.Name, Host: n.Name, State: d.state, CPUs: n.CPU / 1000, AllocCPUs: d.cpus,
			IdleCPUs: max(n.CPU/1000-d.cpus, 0),
			Memory:   n.RAM, AllocMem: d.ram, Gres: nodeGres(d), GresUsed: gresUsed(d),
			Reason: strings.TrimPrefix(d.reason, "none"), Partitions: []string{}}
		for _, p := range v.parts {
			for _, name := range p.Nodes {
				if name == n.Name {
					x.Partitions = append(x.Partitions, p.Name)
				}
			}
		}
		out = append(out, x)
	}
	return out
}

// json prints a list under its name, in Slurm's envelope.
func (c *command) json(name string, list any) error {
	body, err := json.MarshalIndent(list, "  ", "  ")
	if err != nil {
		return err
	}
	meta := `{"plugin": {"type": "muster", "name": "Muster, after Slurm OpenAPI v0.0.38"}, "Slurm": {"version": {"major": 22, "micro": 8, "minor": 5}, "release": "22.05.8"}}`
	c.printf("{\n  \"meta\": %s,\n  \"errors\": [],\n  \"%s\": %s\n}\n", meta, name, body)
	return nil
}
