// Package api is what travels between muster serve and whoever talks to it: the command line, the dashboard, scripts.
// What people ask for is of package ask, what they are shown of package show; here both have one name, with what
// only the way over HTTP needs: who is who, tokens, a reload. Times are RFC 3339; durations are text such as "1h30m" or "2d4h".
package api

// SignalRequest asks for a signal to a running job.
type SignalRequest struct {
	Signal string `json:"signal" doc:"Name or number, such as USR1"`
	Shell  bool   `json:"shell,omitempty" doc:"To the first process of each task only, not to its process group"`
}

// Drain says why a node takes no more jobs.
type Drain struct {
	Reason string `json:"reason,omitempty" maxLength:"500"`
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
