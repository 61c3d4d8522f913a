// Package api has the types that pass between muster serve and its clients: the command line, the dashboard,
// scripts. Requests are types of package ask, answers of package show; here both have one name, together with
// what only HTTP needs: identities, tokens, reloads. Times are RFC 3339; durations are text such as "1h30m" or
// "2d4h".
package api

// SignalRequest requests a signal to a running job.
type SignalRequest struct {
	Signal string `json:"signal" doc:"Name or number, such as USR1"`
	Shell  bool   `json:"shell,omitempty" doc:"To the first process of each task only, not to its process group"`
}

// Drain says why a node takes no more jobs.
type Drain struct {
	Reason string `json:"reason,omitempty" maxLength:"500"`
}

// Reloaded is the result of reading the configuration again.
type Reloaded struct {
	File    string         `json:"file,omitempty" doc:"Absent: there is none, everything has its default"`
	Applied []ConfigChange `json:"applied" doc:"Changes that are in force now"`
	Restart []ConfigChange `json:"restart" doc:"Changes that need a restart of the daemon"`
	Notes   []string       `json:"notes"`
}

// ConfigChange is a setting that changed. An empty value means that the setting is absent.
type ConfigChange struct {
	Key string `json:"key"`
	Old string `json:"old"`
	New string `json:"new"`
}
