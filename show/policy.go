package show

import (
	"time"

	"github.com/muster-gpu/muster/ask"
)

// PolicyChoice names the policy, the placer and the backfill.
type PolicyChoice struct {
	Policy   string `json:"policy" doc:"The policy, with its knobs: las or las:base=1h"`
	Place    string `json:"place" doc:"Where"`
	Backfill string `json:"backfill,omitempty" doc:"Which jobs may pass a blocked one; absent: the policy's own rule"`
}

// Text is the choice in one line.
func (c *PolicyChoice) Text() string {
	text := c.Policy + ", place " + c.Place
	if c.Backfill != "" {
		text += ", backfill " + c.Backfill
	}
	return text
}

// Policy is the policy in force.
type Policy struct {
	PolicyChoice
	Since      time.Time    `json:"since"`
	By         string       `json:"by" doc:"The user who set it"`
	Live       bool         `json:"live" doc:"It was set while the daemon ran, and stays in force until the configuration changes"`
	Configured PolicyChoice `json:"configured" doc:"The policy of file and flags"`
	Guard      *PolicyWatch `json:"guard,omitempty" doc:"The guard that compares it with the previous policy"`
	Changes    []Moment     `json:"changes" doc:"The latest changes of policy and configuration, the oldest first"`
}

// PolicyWatch is a running guard.
type PolicyWatch struct {
	ask.PolicyGuard
	Against PolicyChoice `json:"against" doc:"The previous policy"`
	Until   time.Time    `json:"until"`
	Text    string       `json:"text,omitempty" doc:"The result of the last check"`
}

// PolicyChange is a change of the policy and, for a dry run, its effects.
type PolicyChange struct {
	Before    PolicyChoice `json:"before"`
	After     PolicyChoice `json:"after"`
	DryRun    bool         `json:"dry_run,omitempty"`
	Starts    []PolicyJob  `json:"starts,omitempty" doc:"Jobs that would start now, or as soon as the preempted ones have left"`
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
	How            string     `json:"how,omitempty" doc:"If preempted: suspend, checkpoint or kill"`
	For            int        `json:"for,omitempty" doc:"If preempted: the job that needs the devices; absent: no particular one"`
	Before         int        `json:"before,omitempty" doc:"Position in the line; absent: it runs"`
	After          int        `json:"after,omitempty" doc:"Position in the line; absent: it runs"`
	ExpectedBefore *time.Time `json:"expected_before,omitempty" doc:"Expected start; absent: not in sight"`
	ExpectedAfter  *time.Time `json:"expected_after,omitempty"`
}
