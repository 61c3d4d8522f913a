package record

import "github.com/muster-gpu/muster/engine/job"

var codes = map[job.Parked]string{job.NotParked: "Priority", job.ParkedHold: "JobHeldUser",
	job.ParkedBegin: "BeginTime", job.ParkedDependency: "Dependency", job.ParkedArray: "JobArrayTaskLimit",
	job.ParkedSingleton: "Dependency", job.ParkedPlan: "Resources"}

// Code is Slurm's name of what keeps a job out of the line.
func Code(p job.Parked) string { return codes[p] }
