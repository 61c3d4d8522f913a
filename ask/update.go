package ask

import "time"

// Update changes a waiting job. Absent fields stay as they are.
type Update struct {
	Name        *string    `json:"name,omitempty" maxLength:"256"`
	Queue       *string    `json:"queue,omitempty"`
	Partitions  *[]string  `json:"partitions,omitempty"`
	Reservation *string    `json:"reservation,omitempty"`
	Tier        *string    `json:"tier,omitempty" enum:"critical,standard,best-effort"`
	Priority    *int64     `json:"priority,omitempty"`
	Tasks       *int       `json:"tasks,omitempty" minimum:"1"`
	GPUs        *int       `json:"gpus,omitempty" minimum:"0" doc:"Whole GPUs of each task"`
	Profile     *string    `json:"profile,omitempty" doc:"MIG profile instead of whole devices; empty: none"`
	Share       *int64     `json:"share,omitempty" minimum:"0" maximum:"1000" doc:"Milli-GPU of each device; 0: whole devices"`
	Memory      *int64     `json:"gpu_memory,omitempty" minimum:"0" doc:"GPU memory needed on each device, MiB"`
	Isolation   *string    `json:"isolation,omitempty" enum:"none,memory,full"`
	MinSpeed    *float64   `json:"min_speed,omitempty" minimum:"0" maximum:"1"`
	CPU         *int64     `json:"cpu,omitempty" minimum:"0" doc:"Milli-cores of each task"`
	RAM         *int64     `json:"ram,omitempty" minimum:"0" doc:"Host memory of each task, MiB"`
	GPUTypes    *[]string  `json:"gpu_types,omitempty"`
	Limit       *Duration  `json:"limit,omitempty" doc:"0s: none"`
	Estimate    *Duration  `json:"estimate,omitempty" doc:"0s: unknown"`
	Begin       *time.Time `json:"begin,omitempty" doc:"1970-01-01T00:00:00Z: now"`
	Deadline    *time.Time `json:"deadline,omitempty" doc:"1970-01-01T00:00:00Z: none"`
	After       *[]After   `json:"after,omitempty" doc:"Other jobs to wait for, instead of those so far"`
	AnyOf       *bool      `json:"any_of,omitempty" doc:"One condition of after is enough"`
	Cap         *int       `json:"cap,omitempty" minimum:"0" doc:"Elements of its array at once; 0: no cap"`
	NoRequeue   *bool      `json:"no_requeue,omitempty"`
	Comment     *string    `json:"comment,omitempty"`
}

// set replaces a value if another one is given.
func set[T any](to *T, v *T) {
	if v != nil {
		*to = *v
	}
}

// Apply returns the submission with the changes; the submission itself is not modified.
func (u *Update) Apply(s Submission) Submission {
	set(&s.Name, u.Name)
	set(&s.Queue, u.Queue)
	set(&s.Partitions, u.Partitions)
	set(&s.Reservation, u.Reservation)
	set(&s.Tier, u.Tier)
	set(&s.Priority, u.Priority)
	set(&s.Tasks, u.Tasks)
	set(&s.GPUs, u.GPUs)
	if set(&s.Share, u.Share); u.Share != nil && u.GPUs == nil && s.GPUs == 0 && s.Share > 0 {
		s.GPUs = 1 // a part of one GPU
	}
	set(&s.Profile, u.Profile)
	set(&s.Memory, u.Memory)
	set(&s.Isolation, u.Isolation)
	set(&s.MinSpeed, u.MinSpeed)
	set(&s.CPU, u.CPU)
	set(&s.RAM, u.RAM)
	set(&s.GPUTypes, u.GPUTypes)
	set(&s.Limit, u.Limit)
	set(&s.Estimate, u.Estimate)
	for _, t := range []struct {
		v  *time.Time
		to **time.Time
	}{{u.Begin, &s.Begin}, {u.Deadline, &s.Deadline}} {
		if t.v != nil {
			if *t.to = t.v; t.v.Unix() == 0 {
				*t.to = nil
			}
		}
	}
	set(&s.After, u.After)
	set(&s.AnyOf, u.AnyOf)
	set(&s.NoRequeue, u.NoRequeue)
	set(&s.Comment, u.Comment)
	return s
}
