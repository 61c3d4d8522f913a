package ask

// ServiceFile is a service as its file describes it.
type ServiceFile struct {
	Text string `json:"text" maxLength:"1000000" doc:"YAML, as in docs/reference/services.md"`
	Dir  string `json:"dir,omitempty" maxLength:"4096" doc:"Working directory of variants that state none; the owner's home if empty"`
}

// ServiceScale sets how many replicas a service has.
type ServiceScale struct {
	Min int `json:"min" minimum:"0" doc:"At least; 0: none while there are no requests"`
	Max int `json:"max" minimum:"1" doc:"At most"`
}
