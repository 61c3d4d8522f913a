package ask

// PolicyGuard keeps the previous policy as a shadow: periodically the jobs submitted and ended since the change
// are replayed under both, and if the previous policy would have served them better by more than a bound, the
// daemon returns to it.
type PolicyGuard struct {
	For       Duration `json:"for" doc:"How long"`
	Every     Duration `json:"every,omitempty" doc:"How often; 10m if it is not given"`
	Objective string   `json:"objective,omitempty" doc:"By what it is judged, as in muster tune; mean-jct if it is not given"`
	Bound     float64  `json:"bound,omitempty" minimum:"0" maximum:"1" doc:"By what part the policy before has to be better; 0.05 if it is not given"`
	Jobs      int      `json:"jobs,omitempty" minimum:"0" doc:"The fewest jobs to judge by; 20 if it is not given"`
}

// PolicyRequest requests another policy. Empty fields stay as they are.
type PolicyRequest struct {
	Policy     string `json:"policy,omitempty" doc:"Name, with knobs if wanted: las:base=30m,levels=8"`
	Place      string `json:"place,omitempty"`
	Backfill   string `json:"backfill,omitempty" doc:"none, skip, easy, conservative, or own: as the policy wants it"`
	FromConfig bool   `json:"from_config,omitempty" doc:"Go back to what file and flags say"`
	DryRun     bool   `json:"dry_run,omitempty" doc:"Change nothing: say what would happen"`

	Guard *PolicyGuard `json:"guard,omitempty" doc:"Go back if it turns out worse"`
}
