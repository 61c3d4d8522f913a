package ask

// Selection selects the jobs of an action: those that are named, and those that pass all filters, if there are
// any. Jobs that are over are never selected.
type Selection struct {
	Jobs     []int      `json:"jobs,omitempty" maxItems:"100000" doc:"Numbers of jobs; that of an array stands for all of its elements"`
	Elements []Elements `json:"elements,omitempty" maxItems:"10000" doc:"Elements of arrays"`
	Users    []string   `json:"users,omitempty" maxItems:"1000" doc:"Filter: jobs of these users; without it filters choose the caller's own"`
	Names    []string   `json:"names,omitempty" maxItems:"1000" doc:"Filter: jobs with these names"`
	States   []string   `json:"states,omitempty" maxItems:"10" doc:"Filter: pending, starting, running, suspended, stopping"`
	Queues   []string   `json:"queues,omitempty" maxItems:"1000" doc:"Filter: jobs in these queues"`
	All      bool       `json:"all,omitempty" doc:"A filter that all jobs pass"`
}

// Elements are elements of an array.
type Elements struct {
	Array   int    `json:"array" minimum:"1" doc:"Number of the array"`
	Indices string `json:"indices" doc:"Such as 3, 3-9 or 1,4"`
}

// Filters reports whether jobs are selected by filters.
func (s *Selection) Filters() bool {
	return s.All || len(s.Users)+len(s.Names)+len(s.States)+len(s.Queues) > 0
}

// Acted is the result of an action on the jobs of a selection.
type Acted struct {
	Jobs    []int     `json:"jobs" doc:"Numbers of the jobs to which the action was applied"`
	Refused []Refusal `json:"refused" doc:"Named jobs to which the action could not be applied"`
}

// Refusal is why an action was not applied to a job.
type Refusal struct {
	Job  int    `json:"job"`
	Text string `json:"text"`
	Gone bool   `json:"gone,omitempty" doc:"It does not exist, or is over"`
}

// Filter selects the jobs of a list.
type Filter struct {
	User, Queue, Name string
	Search            string // part of the name, the user or the queue, or the number
	States            []string
	Since             int64 // ended at or after, Unix nanoseconds; jobs that are not over are included
	Before            int   // number below; 0: any
	Limit             int   // most; 0: all
	Arrays            bool  // waiting elements of an array may come as one; may be ignored
}

// MovesRequest asks for moves to be made.
type MovesRequest struct {
	Job     int    `json:"job,omitempty" minimum:"1" doc:"The waiting job; absent: any job that moves help"`
	Compact string `json:"compact,omitempty" enum:"usable,nodes" doc:"Instead of moves for a job, empty nodes: so that more free GPUs are usable by the tasks submitted last, or for the sake of empty nodes"`
}
