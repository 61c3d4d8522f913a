package ask

// PolicyGuard keeps the previous policy as a shadow: periodically the jobs submitted and ended since the change
// are replayed under both, and if the previous policy would have served them better by more than a bound, the
// daemon returns to it.
type PolicyGuard struct {
	For       Duration `json:"for" doc:"How long"`
	Every     Duration `json:"every,omitempty" doc:"Interval between checks; default 10m"`
	Objective string   `json:"objective,omitempty" doc:"The objective, as in muster tune; default mean-jct"`
	Bound     float64  `json:"bound,omitempty" minimum:"0" maximum:"1" doc:"How much better the previous policy has to be, as a fraction; default 0.05"`
	Jobs      int      `json:"jobs,omitempty" minimum:"0" doc:"The fewest jobs to judge by; default 20"`
}

// PolicyRequest requests another policy. Empty fields stay as they are.
type PolicyRequest struct {
	Policy     string `json:"policy,omitempty" doc:"Name, with knobs if wanted: las:base=30m,levels=8"`
	Place      string `json:"place,omitempty"`
	Backfill   string `json:"backfill,omitempty" doc:"none, skip, easy, conservative, or own: the policy's own"`
	FromConfig bool   `json:"from_config,omitempty" doc:"Return to the policy of file and flags"`
	DryRun     bool   `json:"dry_run,omitempty" doc:"Change nothing: say what would happen"`

	Guard *PolicyGuard `json:"guard,omitempty" doc:"Return to the previous policy if this one turns out worse"`
}
