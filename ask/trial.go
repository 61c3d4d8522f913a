package ask

// Trial marks a job as a run of a hyper-parameter search: of one trial or of a fused group of several towards a
// budget, or as the search's tuner.
type Trial struct {
	Search   string         `json:"search" minLength:"1" maxLength:"200" doc:"Name of the search"`
	Spec     string         `json:"spec" doc:"Fingerprint of the search: its runs have the same"`
	Method   string         `json:"method,omitempty"`
	Metric   string         `json:"metric,omitempty" doc:"Name of the metric that trials are compared by"`
	Maximise bool           `json:"maximise,omitempty" doc:"Higher is better"`
	Trials   int            `json:"trials,omitempty" minimum:"0" doc:"How many configurations the search tries"`
	Tuner    bool           `json:"tuner,omitempty" doc:"The job is the tuner, which submits the others"`
	Number   int            `json:"number" minimum:"0" doc:"Which trial it is, from 0; of a fused group the first"`
	Rung     int            `json:"rung" minimum:"0"`
	Budget   int64          `json:"budget,omitempty" minimum:"0" doc:"Step at which the run ends"`
	Marks    []int64        `json:"marks,omitempty" maxItems:"64" doc:"Steps at which the metrics are kept: those of the first report at or after each"`
	Scale    int            `json:"scale,omitempty" minimum:"0" doc:"The model's width is divided by it; 0 or 1: full size"`
	Target   bool           `json:"target,omitempty" doc:"The full-size run of the best trial of a search with narrower models"`
	Config   map[string]any `json:"config,omitempty" doc:"The trial's parameters"`
	Fused    []FusedTrial   `json:"fused,omitempty" maxItems:"4096" doc:"The trials of a fused group, which one process runs"`
}

// FusedTrial is a trial of a fused group.
type FusedTrial struct {
	Number int            `json:"number" minimum:"0"`
	Config map[string]any `json:"config"`
	From   int            `json:"from,omitempty" minimum:"0" doc:"Job from whose checkpoint of the trial it continues; 0: it starts from the beginning"`
}
