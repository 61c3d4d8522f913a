package show

import "time"

// Audit is an entry of the audit trail: an action, by which user, from where, on what.
type Audit struct {
	ID      int64     `json:"id"`
	At      time.Time `json:"at"`
	User    string    `json:"user" doc:"The user who did it; empty: unknown"`
	Role    string    `json:"role,omitempty" doc:"In which role"`
	From    string    `json:"from" doc:"From where: the user and process at the Unix socket, or an address and a token's number"`
	Action  string    `json:"action"`
	Job     int       `json:"job,omitempty"`
	Owner   string    `json:"owner,omitempty" doc:"Whose job it is"`
	Subject string    `json:"subject,omitempty" doc:"The node, token or policy concerned"`
	Text    string    `json:"text,omitempty" doc:"What was changed"`
}
