package api

import "time"

// PolicyChoice is who is next, where, and what may pass a blocked job.
type PolicyChoice struct {
	Policy   string `json:"policy" doc:"Who is next, with its knobs: las or las:base=1h"`
	Place    string `json:"place" doc:"Where"`
	Backfill string `json:"backfill,omitempty" doc:"What may pass a blocked job; absent: as the policy wants it"`
}

// Text is the choice in one line.
func (c *PolicyChoice) Text() string {
	text := c.Policy + ", place " + c.Place
	if c.Backfill != "" {
		text += ", backfill " + c.Backfill
	}
	return text
}

// Policy is what counts now.
type Policy struct {
	PolicyChoice
	Since      time.Time    `json:"since"`
	By         string       `json:"by" doc:"Who set it"`
	Live       bool         `json:"live" doc:"It was set while the daemon ran, and counts until the configuration says something new"`
	Configured PolicyChoice `json:"configured" doc:"What file and flags say"`
	Guard      *PolicyWatch `json:"guard,omitempty" doc:"It is watched against the policy before"`
	Changes    []Moment     `json:"changes" doc:"The latest changes of policy and configuration, the oldest first"`
}

// PolicyGuard has the policy before go on as a shadow: every now and then the jobs that
// were submitted and ended since are replayed under both, and if they would have been
// served better by the one before, beyond a bound, the daemon goes back to it.
type PolicyGuard struct {
	For       Duration `json:"for" doc:"How long"`
	Every     Duration `json:"every,omitempty" doc:"How often; 10m if it is not given"`
	Objective string   `json:"objective,omitempty" doc:"By what it is judged, as in muster tune; mean-jct if it is not given"`
	Bound     float64  `json:"bound,omitempty" minimum:"0" maximum:"1" doc:"By what part the policy before has to be better; 0.05 if it is not given"`
	Jobs      int      `json:"jobs,omitempty" minimum:"0" doc:"The fewest jobs to judge by; 20 if it is not given"`
}

// PolicyWatch is a guard at work.
type PolicyWatch struct {
	PolicyGuard
	Against PolicyChoice `json:"against" doc:"The policy before"`
	Until   time.Time    `json:"until"`
	Text    string       `json:"text,omitempty" doc:"What the last look found"`
}

// PolicyRequest asks for another policy. What is empty stays as it is.
type PolicyRequest struct {
	Policy     string `json:"policy,omitempty" doc:"Name, with knobs if wanted: las:base=30m,levels=8"`
	Place      string `json:"place,omitempty"`
	Backfill   string `json:"backfill,omitempty" doc:"none, skip, easy, conservative, or own: as the policy wants it"`
	FromConfig bool   `json:"from_config,omitempty" doc:"Go back to what file and flags say"`
	DryRun     bool   `json:"dry_run,omitempty" doc:"Change nothing: say what would happen"`

	Guard *PolicyGuard `json:"guard,omitempty" doc:"Go back if it turns out worse"`
}

// PolicyChange is a change of the policy and, of a dry run, what would come of it.
type PolicyChange struct {
	Before    PolicyChoice `json:"before"`
	After     PolicyChoice `json:"after"`
	DryRun    bool         `json:"dry_run,omitempty"`
	Starts    []PolicyJob  `json:"starts,omitempty" doc:"Jobs that would start now, or as soon as those have left that are preempted"`
	Preempted []PolicyJob  `json:"preempted,omitempty" doc:"Jobs that would be preempted"`
	Waiting   []PolicyJob  `json:"waiting,omitempty" doc:"Jobs that would still wait, in their new order"`
}

// PolicyJob is a job under two policies.
type PolicyJob struct {
	Job            int        `json:"job"`
	Name           string     `json:"name"`
	User           string     `json:"user"`
	Queue          string     `json:"queue,omitempty"`
	GPUs           float64    `json:"gpus"`
	How            string     `json:"how,omitempty" doc:"Of those preempted: suspend, checkpoint or kill"`
	For            int        `json:"for,omitempty" doc:"Of those preempted: the job that needs the devices; absent: nobody in particular"`
	Before         int        `json:"before,omitempty" doc:"Position in the line; absent: it runs"`
	After          int        `json:"after,omitempty" doc:"Position in the line; absent: it runs"`
	ExpectedBefore *time.Time `json:"expected_before,omitempty" doc:"Expected start; absent: not in sight"`
	ExpectedAfter  *time.Time `json:"expected_after,omitempty"`
}

// Reloaded is what became of reading the configuration again.
type Reloaded struct {
	File    string         `json:"file,omitempty" doc:"Absent: there is none, everything has its default"`
	Applied []ConfigChange `json:"applied" doc:"What counts now"`
	Restart []ConfigChange `json:"restart" doc:"What the daemon must be started again for"`
	Notes   []string       `json:"notes"`
}

// ConfigChange is a setting that changed. An empty value stands for none.
type ConfigChange struct {
	Key string `json:"key"`
	Old string `json:"old"`
	New string `json:"new"`
}
